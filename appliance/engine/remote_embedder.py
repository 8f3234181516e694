"""Vectors from an OpenAI-compatible server.

A vector belongs to its model, so the model must be named: its name and the prefixes are the
identity that the store keeps. A request may be repeated without harm, so it is tried again for
``retry_s`` whenever the server is away. Token counts are estimates, on the high side.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from appliance.config import RemoteEmbeddingConfig
from appliance.engine.base import Priority, ServerStatus
from appliance.engine.embedding import unit_length
from appliance.engine.remote import estimated_tokens
from appliance.engine.server import Exchange, Server, ServerAwayError, read_key
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
)
from appliance.units import Tokens

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
_MOST_PAUSE_S = 5.0
_LEAST_CHARS_PER_TOKEN = 8


class RemoteEmbedder:
    """The part of an ``Engine`` that embeds, done by a server; any thread may call it.

    Raises:
        ConfigError: the key file cannot be used.
    """

    def __init__(self, config: RemoteEmbeddingConfig) -> None:
        self.config = config
        self.server = Server(
            config.url or "",
            read_key(config.api_key_file),
            config.connect_timeout_s,
            config.silence_timeout_s,
        )
        self._lock = threading.Condition()
        self._open: set[Exchange] = set()
        self._is_closing = False
        self._n_embd: int | None = None
        self._problem: ApplianceError | None = None
        self._n_lost = 0
        self.n_embedded = 0
        self.n_steps = 0

    @property
    def model(self) -> str:
        """Name of the model, as it is asked for."""
        return self.config.model or ""

    @property
    def embedder_id(self) -> str:
        """Identity of the vectors: the model's name and what is put before a text."""
        dressing = repr((self.config.query_prefix, self.config.passage_prefix)).encode()
        return f"remote:{self.model}:{hashlib.sha256(dressing).hexdigest()[:8]}"

    @property
    def n_embd(self) -> int:
        """Length of a vector; the server is asked once.

        Raises:
            EngineError: it cannot be asked.
        """
        if self._n_embd is None:
            self._embed_batch(["a"])
        if self._n_embd is None:
            raise EngineStoppedError(state="stopped")
        return self._n_embd

    def embed(
        self, texts: Sequence[str], kind: Literal["query", "passage"], priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text; see ``appliance.engine.base.Embedder.embed``."""
        del priority  # the server has its own order
        config = self.config
        prefix = (config.query_prefix if kind == "query" else config.passage_prefix) or ""
        for text in texts:
            n_least = len(text) // _LEAST_CHARS_PER_TOKEN
            if n_least > config.max_tokens:
                raise ContextOverflowError(
                    "embed_overflow", n_prompt_tokens=n_least, n_ctx=config.max_tokens
                )
        if not texts:
            return np.zeros((0, self.n_embd), dtype=np.float32)
        dressed = [prefix + text for text in texts]
        batches = [
            self._embed_batch(dressed[start : start + config.batch])
            for start in range(0, len(dressed), config.batch)
        ]
        return np.concatenate(batches)

    def count_embed_tokens(self, text: str) -> Tokens:
        """Estimate the tokens of a passage with its prefix and two specials."""
        return Tokens(estimated_tokens((self.config.passage_prefix or "") + text) + 2)

    def server_status(self) -> ServerStatus:
        """What ``status`` shows of the server."""
        with self._lock:
            problem = self._problem
            return ServerStatus(
                "embedding",
                self.server.url,
                is_up=problem is None,
                n_lost=self._n_lost,
                problem=(problem.code, dict(problem.facts)) if problem else None,
            )

    def close(self) -> None:
        """Hang up on everything; idempotent."""
        with self._lock:
            self._is_closing = True
            open_exchanges = list(self._open)
            self._lock.notify_all()
        for exchange in open_exchanges:
            exchange.hang_up()

    def _embed_batch(self, texts: list[str]) -> npt.NDArray[np.float32]:
        deadline = time.monotonic() + self.config.retry_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._vectors(self._asked(texts), len(texts))
            except ServerAwayError as away:  # noqa: PERF203 (a request, not a hot loop)
                with self._lock:
                    if self._is_closing:
                        raise EngineStoppedError(state="stopped") from away
                    if self._problem is None:
                        _log.warning("%s: %s", self.server.url, away.error)
                    self._problem = away.error
                    self._n_lost += 1
                    pause_s = away.retry_after_s or pause_s
                    if time.monotonic() + pause_s > deadline:
                        raise away.error from away
                    self._lock.wait_for(lambda: self._is_closing, pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            except EngineError as error:
                with self._lock:
                    self._problem = None if isinstance(error, ContextOverflowError) else error
                raise

    def _asked(self, texts: list[str]) -> Any:  # noqa: ANN401 - JSON
        exchange = Exchange(self.server)
        with self._lock:
            if self._is_closing:
                raise EngineStoppedError(state="stopped")
            self._open.add(exchange)
        try:
            body = {"model": self.model, "input": texts, "encoding_format": "float"}
            return exchange.reply("POST", "/embeddings", body)
        finally:
            with self._lock:
                self._open.discard(exchange)

    def _vectors(self, reply: Any, n_texts: int) -> npt.NDArray[np.float32]:  # noqa: ANN401 - JSON
        """Return unit vectors in the order of the texts, and note their length."""
        try:
            rows = sorted(reply["data"], key=lambda row: int(row["index"]))
            raw = np.array([row["embedding"] for row in rows], dtype=np.float32)
        except (ValueError, TypeError, LookupError) as error:
            raise self._nonsense(f"{type(error).__name__}: {error}") from error
        if raw.ndim != 2 or raw.shape[0] != n_texts or raw.shape[1] == 0:
            raise self._nonsense(f"vectors of shape {raw.shape} for {n_texts} texts")
        if self._n_embd not in (None, raw.shape[1]):
            raise self._nonsense(f"vectors of {raw.shape[1]} numbers after {self._n_embd}")
        for row, vector in enumerate(raw):
            unit = unit_length(vector)
            if unit is None:
                raise self._nonsense("a vector without a direction")
            raw[row] = unit
        with self._lock:
            self._problem = None
            self._n_embd = raw.shape[1]
            self.n_embedded += n_texts
            self.n_steps += 1
        return raw

    def _nonsense(self, cause: str) -> EngineError:
        return EngineError("remote_nonsense", url=self.server.url, cause=cause)
