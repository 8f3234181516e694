"""What ``/api/status`` and ``appliance status`` say of the box."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import appliance
from appliance.core import Core, EngineStatus, ServerStatus
from appliance.errors import ApplianceError, EngineStoppedError, Fact
from appliance.messages import Lang, sentence
from appliance.system.memory import machine_memory, process_memory
from appliance.units import MIB


def status_of(core: Core, lang: Lang, uptime_s: float) -> dict[str, Any]:
    """Return the state of the box as plain values; sizes in bytes, times in seconds."""
    engine = core.engine_status()
    embedding = _embedding(core)
    problems = core.problems()
    if engine.device_failure is not None:
        problems.append(engine.device_failure)
    if engine.error is not None:
        problems.append((engine.error, engine.error_facts))
    problems += [
        server.problem
        for server in engine.servers
        if server.role == "embedding" and server.problem is not None
    ]
    if embedding.problem is not None:
        problems.append(embedding.problem)
    state: str = engine.state
    if problems or engine.state == "failed":
        state = "degraded"
    return {
        "state": state,
        "problems": [sentence(code, lang, facts).as_json() for code, facts in problems],
        "models": {
            "generation": {
                "name": engine.model or core.switch.name,
                "state": engine.state,
                "n_ctx": engine.n_ctx,
            },
            "embedding": {
                "name": engine.embedder or core.config.models.embedding,
                "state": embedding.state,
            },
        },
        "device": _device(engine, lang),
        "memory": _memory(dict(engine.memory)),
        "servers": [_server(server, lang) for server in engine.servers],
        "queue": {
            "running": engine.n_running,
            "waiting": engine.n_waiting,
            "slots": engine.n_slots,
        },
        "speed": {
            "prefill_tok_s": engine.prefill_tok_s,
            "decode_tok_s": engine.decode_tok_s,
        },
        "counters": {
            "tokens_prefilled": engine.tokens_prefilled,
            "tokens_decoded": engine.tokens_decoded,
            "texts_embedded": engine.texts_embedded,
        },
        "documents": core.stats(),
        "work": asdict(core.progress()),
        "selftest_outdated": core.selftest.state()["is_outdated"],
        "keep_history": core.config.assistant.keep_history,
        "uptime_s": uptime_s,
        "versions": versions(),
    }


_LAYOUT_REASONS = {
    "fits": "layout_fits",
    "memory": "layout_memory",
    "configured": "layout_configured",
}


def _device(engine: EngineStatus, lang: Lang) -> dict[str, Any]:
    """Return where the models run and why; with an NPU also how its memory is used."""
    device: dict[str, Any] = {
        "name": engine.device,
        "reason": sentence(engine.device_reason, lang, engine.device_facts).message,
    }
    if engine.npu:
        facts = dict(engine.npu)
        for name in ("layout_needed", "layout_free"):
            facts[f"{name}_mb"] = int(facts.get(name) or 0) // MIB
        code = _LAYOUT_REASONS.get(str(facts.get("layout_why")), "layout_undecided")
        device["layout"] = facts.get("layout")
        device["layout_reason"] = sentence(code, lang, facts).message
        device["fused"] = facts.get("fused")
        device["memory"] = {
            name: facts.get(name) for name in ("used", "peak", "free", "total", "allocations")
        }
    if engine.n_npu_failures:
        device["failures"] = engine.n_npu_failures
        device["last_failure"] = engine.last_npu_failure
    return device


def _server(server: ServerStatus, lang: Lang) -> dict[str, Any]:
    """Return a server that works for the box; ``problem`` is a sentence or null."""
    problem = server.problem
    return {
        "role": server.role,
        "url": server.url,
        "up": server.is_up,
        "lost": server.n_lost,
        "problem": str(sentence(problem[0], lang, problem[1])) if problem else None,
    }


def versions() -> dict[str, str]:
    """Return the versions a bug report needs."""
    return {
        "appliance": appliance.__version__,
        "python": platform.python_version(),
        "llama-cpp-python": metadata.version("llama-cpp-python"),
        "machine": platform.machine(),
        "kernel": platform.release(),
    }


@dataclass(frozen=True)
class _Embedding:
    state: str
    problem: tuple[str, dict[str, Fact]] | None = None


def _embedding(core: Core) -> _Embedding:
    """Return whether texts can be embedded, found out by counting one."""
    try:
        core.count_embed_tokens("a")
    except EngineStoppedError as error:
        return _Embedding(str(error.facts.get("state", "loading")))
    except ApplianceError as error:
        return _Embedding("failed", (error.code, error.facts))
    return _Embedding("ready")


def _memory(engine: dict[str, int]) -> dict[str, Any]:
    """Return the memory budget.

    ``own`` is what is resident beside weights and KV cache: mapped model files, weights copied or
    repacked into memory and the cache are taken off, compute buffers are not.
    """
    process, machine = process_memory(), machine_memory()
    weights, kv = engine.get("weights", 0), engine.get("kv", 0)
    n_copied = max(0, weights - process.model_files)
    own = max(0, process.resident - process.model_files - n_copied - kv)
    return {
        "resident": process.resident,
        "model_files_mapped": process.model_files,
        **engine,
        "own": own,
        "machine_total": machine.total,
        "machine_available": machine.available,
    }
