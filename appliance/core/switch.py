"""Another model while the box runs: looked at first, loaded behind, remembered when it works."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from appliance.config import Config, choose_model, models_dir
from appliance.engine.base import Engine
from appliance.errors import ApplianceError, BadRequestError, EngineError
from appliance.models import ModelInfo, ModelStore
from appliance.models.store import use_of
from appliance.system.gguf import GgufHeader, inspect
from appliance.system.memory import machine_memory

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_COMPUTE_BYTES = 150 * _MIB
"""What llama.cpp takes beside weights and KV: its compute buffers at 512 tokens a step."""

_KV_BYTES_PER_VALUE = 2


class ModelSwitch:
    """Changes one model at a time, in a thread of its own.

    Args:
        config: what is in force; where model files and the data folder are.
        engine: what loads the model.
    """

    def __init__(self, config: Config, engine: Engine) -> None:
        self._config = config
        self._engine = engine
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._name = config.models.generation
        self._wanted: str | None = None
        self._error: ApplianceError | None = None

    @property
    def name(self) -> str:
        """Catalogue name or path of the model that answers."""
        return self._name

    def models(self) -> list[ModelInfo]:
        """Return every model of the catalogue and every imported one."""
        return self._store().list()

    def start(self, name: str) -> None:
        """Begin to use a model that is here.

        Raises:
            BadRequestError: ``model_change_running`` or ``model_not_for_answers``.
            ModelMissingError, ModelRejectedError: its file is not here or cannot be used.
            EngineError: ``model_too_large``, or ``done_by_server`` when a server answers.
        """
        if self._config.engine.kind != "llama":
            raise EngineError("done_by_server")
        path = self._store().path(name)
        header = inspect(path)
        if use_of(header) != "generation":
            raise BadRequestError("model_not_for_answers", model=name)
        self._demand_memory(name, header)
        with self._lock:
            if self._is_running():
                raise BadRequestError("model_change_running")
            self._wanted, self._error = name, None
            self._thread = threading.Thread(
                target=self._run, args=(name, path), name="model-switch"
            )
            self._thread.start()

    def state(self) -> dict[str, Any]:
        """Return what is being changed: ``answers_left`` of the model before come first."""
        status = self._engine.status()
        is_running = self._is_running()
        return {
            "is_running": is_running,
            "model": self._wanted,
            "answers_left": status.n_running + status.n_waiting if is_running else 0,
            "error": None if self._error is None else (self._error.code, self._error.facts),
        }

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _store(self) -> ModelStore:
        return ModelStore(models_dir(self._config))

    def _run(self, name: str, path: Path) -> None:
        try:
            self._engine.use(path)
        except ApplianceError as error:
            _log.error("%s cannot be used: %s", name, error)
            self._error = error
            return
        self._name = name
        try:
            choose_model(self._config.data, name)
        except ApplianceError as error:
            # It answers, but the next start would bring the other one back: the owner is told.
            self._error = error

    def _demand_memory(self, name: str, header: GgufHeader) -> None:
        """Refuse a model that would drive the machine out of memory; an NPU has its own."""
        status = self._engine.status()
        if "CPU" not in status.device:
            return
        engine = self._config.engine
        n_needed = header.n_bytes + kv_bytes(header, engine.n_ctx, engine.n_slots) + _COMPUTE_BYTES
        # Weights are mapped files, which count as available; the rest is freed before.
        freed = sum(status.memory.get(kind, 0) for kind in ("kv", "compute"))
        n_free = machine_memory().available + freed
        if n_needed > n_free:
            raise EngineError(
                "model_too_large",
                model=name,
                n_needed_mib=n_needed // _MIB,
                n_free_mib=n_free // _MIB,
            )


def kv_bytes(header: GgufHeader, n_ctx: int, n_slots: int) -> int:
    """Return the bytes of keys and values: layers x KV heads x their lengths, 16 bits each."""
    arch = header.architecture
    n_heads = header.number(f"{arch}.attention.head_count") or 1
    n_kv_heads = header.number(f"{arch}.attention.head_count_kv") or n_heads
    per_head = header.embedding_length // n_heads
    n_key = header.number(f"{arch}.attention.key_length") or per_head
    n_value = header.number(f"{arch}.attention.value_length") or per_head
    n_tokens = min(n_ctx, header.context_length or n_ctx) * n_slots
    n_values = header.number(f"{arch}.block_count") * n_kv_heads * (n_key + n_value)
    return n_values * n_tokens * _KV_BYTES_PER_VALUE
