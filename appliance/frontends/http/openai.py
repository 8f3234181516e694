"""OpenAI's request and reply shapes, as its official clients send and read them; pure.

Reference: the API reference of Chat Completions, Completions, Embeddings and Models. What this box
does not do (tools, images, several choices, log probabilities, JSON mode) is refused by name rather
than ignored, because a client would act on the difference. Unknown fields are ignored, as OpenAI's
clients add some now and then. ``top_k``, ``min_p`` and ``repeat_penalty`` are llama.cpp's and
accepted beside OpenAI's own; ``collection``, ``mode`` and ``lang`` belong to the knowledge model.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from appliance.core import Answer, FinishReason, GenerationRequest, Message, Sampling, Usage
from appliance.errors import BadRequestError
from appliance.frontends.http import fields

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_MAX_TOKENS = 1_000_000
_MAX_INPUTS = 2048

# Field, and the values of it that ask for nothing.
_NOT_OFFERED: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("tools", (None, [])),
    ("functions", (None, [])),
    ("tool_choice", (None, "none", "auto")),
    ("n", (None, 1)),
    ("best_of", (None, 1)),
    ("logprobs", (None, False, 0)),
    ("top_logprobs", (None, 0)),
    ("logit_bias", (None, {})),
    ("response_format", (None, {"type": "text"})),
    ("modalities", (None, ["text"])),
    ("audio", (None,)),
    ("suffix", (None, "")),
    ("echo", (None, False)),
)


@dataclass(frozen=True)
class Call:
    """A completion request, taken apart."""

    model: str
    request: GenerationRequest
    is_stream: bool
    wants_usage: bool
    collection: str | None
    mode: Literal["strict", "open"] | None
    lang: Literal["zh", "en"] | None


def parse_chat(body: Mapping[str, Any], client: str) -> Call:
    """Return the request for ``/v1/chat/completions``.

    Raises:
        BadRequestError: a field is missing, wrong, or asks for what is not offered.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "a list of messages")
    parsed = tuple(_message(item, n) for n, item in enumerate(messages))
    return _call(body, client, messages=parsed)


def parse_completion(body: Mapping[str, Any], client: str) -> Call:
    """Return the request for ``/v1/completions``; see ``parse_chat``."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise fields.wrong("prompt", "one string")
    return _call(body, client, prompt=prompt)


def turns_of(messages: Sequence[Message]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the question and the turns before it, for the model that answers from documents.

    Raises:
        BadRequestError: the last message is not the user's.
    """
    if messages[-1].role != "user":
        raise fields.wrong("messages", "a last message with role 'user'")
    turns: list[tuple[str, str]] = []
    asked: list[str] = []
    for message in messages[:-1]:
        if message.role == "user":
            asked.append(message.content)
        elif message.role == "assistant" and asked:
            turns.append(("\n".join(asked), message.content))
            asked = []
    return messages[-1].content, tuple(turns)


def _call(
    body: Mapping[str, Any],
    client: str,
    *,
    messages: tuple[Message, ...] = (),
    prompt: str | None = None,
) -> Call:
    for field, harmless in _NOT_OFFERED:
        if body.get(field) not in harmless:
            raise BadRequestError("not_offered", field=field)
    is_stream = fields.flag(body, "stream", default=False)
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise fields.wrong("stream_options", "an object")
    return Call(
        model=fields.text(body, "model"),
        request=GenerationRequest(
            messages=messages,
            prompt=prompt,
            max_tokens=_max_tokens(body),
            stop=_stop(body),
            sampling=_sampling(body),
            client=fields.optional_text(body, "user") or client,
        ),
        is_stream=is_stream,
        wants_usage=fields.flag(options or {}, "include_usage", default=False),
        collection=fields.optional_text(body, "collection"),
        mode=fields.one_of(body, "mode", ("strict", "open")),
        lang=fields.one_of(body, "lang", ("zh", "en")),
    )


def _message(item: object, n: int) -> Message:
    if not isinstance(item, dict):
        raise fields.wrong(f"messages[{n}]", "an object")
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise fields.wrong(f"messages[{n}].role", ", ".join(_ROLES))
    if item.get("tool_calls"):
        raise BadRequestError("not_offered", field=f"messages[{n}].tool_calls")
    return Message(
        cast("Literal['system', 'user', 'assistant']", role),
        _content(item.get("content"), f"messages[{n}].content"),
    )


def _content(content: object, field: str) -> str:
    """Return a message's text; a list of text parts is joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.wrong(field, "a string or a list of text parts")
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise BadRequestError("not_offered", field=f"{field}: images, sound and files")
        texts.append(fields.text(part, "text"))
    return "\n".join(texts)


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    newer = fields.whole(body, "max_completion_tokens", 1, _MAX_TOKENS)
    return newer if newer is not None else fields.whole(body, "max_tokens", 1, _MAX_TOKENS)


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    words = [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(words, list)
        or len(words) > 16
        or not all(isinstance(word, str) and word for word in words)
    ):
        raise fields.wrong("stop", "a string, or a list of at most 16 strings")
    return tuple(words)


def _sampling(body: Mapping[str, Any]) -> Sampling:
    defaults = Sampling()
    given = {
        "temperature": fields.number(body, "temperature", 0, 2),
        "top_p": fields.number(body, "top_p", 0, 1),
        "top_k": fields.whole(body, "top_k", 0, 1000),
        "min_p": fields.number(body, "min_p", 0, 1),
        "repeat_penalty": fields.number(body, "repeat_penalty", 0, 2),
        "presence_penalty": fields.number(body, "presence_penalty", -2, 2),
        "frequency_penalty": fields.number(body, "frequency_penalty", -2, 2),
        "seed": fields.whole(body, "seed", -(2**63), 2**63 - 1),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if "seed" in chosen:
        chosen["seed"] = int(chosen["seed"]) % 2**32
    return Sampling(**{**asdict(defaults), **chosen})


# --------------------------------------------------------------------------------------------------
# replies


def finish_word(reason: FinishReason | str) -> str:
    """Return OpenAI's word; a cancelled answer has no reader, a refusal is a complete answer."""
    word = reason.value if isinstance(reason, FinishReason) else reason
    return "length" if word == "length" else "stop"


def usage_of(usage: Usage | None, answer: Answer | None = None) -> dict[str, Any]:
    """Return token counts; those of the whole turn when the documents answered."""
    if answer is not None:
        n_in, n_out = answer.usage.prompt_tokens, answer.usage.completion_tokens
        n_cached = answer.usage.cached_tokens
    elif usage is not None:
        n_in, n_out = usage.prompt_tokens, usage.completion_tokens
        n_cached = usage.cached_tokens
    else:
        n_in = n_out = n_cached = 0
    return {
        "prompt_tokens": n_in,
        "completion_tokens": n_out,
        "total_tokens": n_in + n_out,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }


def knowledge_fields(answer: Answer) -> dict[str, Any]:
    """Return what the model ``documents`` adds to OpenAI's reply."""
    return {
        "citations": [asdict(citation) for citation in answer.citations],
        "refused": answer.refused,
        "reason": answer.reason,
        "notices": [asdict(notice) for notice in answer.notices],
    }


@dataclass(frozen=True)
class Shape:
    """Replies of one request: chat or plain completion, with its id and time."""

    reply_id: str
    created: int
    model: str
    is_chat: bool
    wants_usage: bool

    def whole(
        self, text: str, finish: str, usage: dict[str, Any], extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the reply of a request that is not streamed."""
        said: dict[str, Any]
        if self.is_chat:
            said = {"message": {"role": "assistant", "content": text, "refusal": None}}
        else:
            said = {"text": text}
        choice = {"index": 0, **said, "finish_reason": finish, "logprobs": None}
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head(kind), "choices": [choice], "usage": usage, **(extra or {})}

    def first(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the chunk that opens a stream."""
        return self._chunk({"role": "assistant", "content": ""}, "", None, extra)

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk with text."""
        return self._chunk({"content": text}, text, None)

    def last(self, finish: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the chunk that says why the answer ended."""
        return self._chunk({}, "", finish, extra)

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the chunk without choices that ``include_usage`` asks for."""
        return {**self._head(self._chunk_kind()), "choices": [], "usage": usage}

    def _chunk(
        self,
        delta: Mapping[str, Any],
        text: str,
        finish: str | None,
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": delta} if self.is_chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if self.wants_usage else {}
        return {**self._head(self._chunk_kind()), "choices": [choice], **usage, **(extra or {})}

    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.reply_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


# --------------------------------------------------------------------------------------------------
# embeddings and models


@dataclass(frozen=True)
class EmbeddingCall:
    """A request for vectors."""

    model: str
    texts: tuple[str, ...]
    kind: Literal["query", "passage"]
    is_base64: bool
    dimensions: int | None


def parse_embedding(body: Mapping[str, Any]) -> EmbeddingCall:
    """Return the request for ``/v1/embeddings``.

    ``input_type`` (``query`` or ``passage``) is an extension: the embedder treats them differently.

    Raises:
        BadRequestError: a field is missing or wrong.
    """
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if (
        not isinstance(texts, list)
        or not 1 <= len(texts) <= _MAX_INPUTS
        or not all(isinstance(text, str) and text for text in texts)
    ):
        raise fields.wrong("input", f"a string, or 1 to {_MAX_INPUTS} strings, none empty")
    encoding = fields.one_of(body, "encoding_format", ("float", "base64"))
    return EmbeddingCall(
        model=fields.text(body, "model"),
        texts=tuple(texts),
        kind=fields.one_of(body, "input_type", ("query", "passage")) or "passage",
        is_base64=encoding == "base64",
        dimensions=fields.whole(body, "dimensions", 1, 65536),
    )


def embeddings(
    vectors: npt.NDArray[np.float32], model: str, n_tokens: int, *, as_base64: bool
) -> dict[str, Any]:
    """Return the reply with vectors: float lists, or base64 of little-endian float32."""

    def encoded(row: npt.NDArray[np.float32]) -> str | list[float]:
        if as_base64:
            return base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")
        return [float(value) for value in row]

    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": n, "embedding": encoded(row)}
            for n, row in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def model_list(names: Sequence[str], created: int) -> dict[str, Any]:
    """Return ``/v1/models``."""
    return {"object": "list", "data": [model_object(name, created) for name in names]}


def model_object(name: str, created: int) -> dict[str, Any]:
    """Return one model as OpenAI lists it."""
    return {"id": name, "object": "model", "created": created, "owned_by": "appliance"}
