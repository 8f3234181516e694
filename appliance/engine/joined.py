"""One engine out of two: who answers and who embeds may be different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from appliance.engine.base import (
    Embedder,
    Engine,
    EngineStatus,
    Feature,
    Generation,
    GenerationRequest,
    Message,
    Priority,
)
from appliance.engine.remote_embedder import RemoteEmbedder
from appliance.units import Tokens


class Answers(Protocol):
    """The half of ``Engine`` that answers."""

    @property
    def n_ctx(self) -> int: ...  # noqa: D102 - as in Engine

    @property
    def features(self) -> frozenset[Feature]: ...  # noqa: D102

    def generate(self, request: GenerationRequest) -> Generation: ...  # noqa: D102

    def count_tokens(self, messages: Sequence[Message]) -> Tokens: ...  # noqa: D102

    def count_text_tokens(self, text: str) -> Tokens: ...  # noqa: D102

    def use(self, model_path: Path) -> None: ...  # noqa: D102

    def status(self) -> EngineStatus: ...  # noqa: D102

    def steps(self) -> int: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class JoinedEngine:
    """``answers`` and ``vectors`` as one ``appliance.engine.base.Engine``."""

    def __init__(self, answers: Answers, vectors: Engine | RemoteEmbedder) -> None:
        self._answers = answers
        self._vectors = vectors
        self._embedder: Embedder = vectors
        self._seen = (0, 0)
        self._n_steps = 0

    @property
    def n_ctx(self) -> int:
        """Context of one answer, in tokens."""
        return self._answers.n_ctx

    @property
    def features(self) -> frozenset[Feature]:
        """What the answering half can do."""
        return self._answers.features

    @property
    def n_embd(self) -> int:
        """Length of a vector."""
        return self._embedder.n_embd

    @property
    def embedder_id(self) -> str:
        """Identity of the vectors."""
        return self._embedder.embedder_id

    def generate(self, request: GenerationRequest) -> Generation:
        """Queue a request with the answering half."""
        return self._answers.generate(request)

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Tokens of the rendered chat prompt."""
        return self._answers.count_tokens(messages)

    def count_text_tokens(self, text: str) -> Tokens:
        """Tokens of a bare text."""
        return self._answers.count_text_tokens(text)

    def embed(
        self, texts: Sequence[str], kind: Literal["query", "passage"], priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text."""
        return self._embedder.embed(texts, kind, priority)

    def count_embed_tokens(self, text: str) -> Tokens:
        """Tokens of ``text`` as the embedder counts them."""
        return self._embedder.count_embed_tokens(text)

    def use(self, model_path: Path) -> None:
        """Answer with another model, if the answering half is on this machine."""
        self._answers.use(model_path)

    def status(self) -> EngineStatus:
        """The answering half's, with what belongs to the embedder from the other."""
        found = self._answers.status()
        vectors = self._vectors
        if isinstance(vectors, RemoteEmbedder):
            return replace(
                found,
                embedder=vectors.model,
                texts_embedded=vectors.n_embedded,
                servers=(*found.servers, vectors.server_status()),
            )
        other = vectors.status()
        return replace(
            found,
            embedder=other.embedder,
            texts_embedded=other.texts_embedded,
            memory=other.memory,
            device_failure=other.device_failure,
            npu=other.npu,
            n_npu_failures=other.n_npu_failures,
            last_npu_failure=other.last_npu_failure,
        )

    def steps(self) -> int:
        """Moves when the halves that have a thread both moved."""
        if isinstance(self._vectors, RemoteEmbedder):
            return self._answers.steps()
        found = (self._answers.steps(), self._vectors.steps())
        if found[0] != self._seen[0] and found[1] != self._seen[1]:
            self._seen = found
            self._n_steps += 1
        return self._n_steps

    def close(self) -> None:
        """Close both halves."""
        self._answers.close()
        self._vectors.close()
