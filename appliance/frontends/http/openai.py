"""OpenAI's request and reply shapes, as its official clients send and read them; pure.

Reference: the API reference of Chat Completions, Completions, Embeddings and Models. What this box
does not do (images, sound, several prompts) is refused by name rather than ignored, because a
client would act on the difference. Unknown fields are ignored, as OpenAI's clients add some now and
then. Beside OpenAI's own fields those of llama.cpp's server are taken (``top_k``, ``min_p``,
``grammar``, ...) and vLLM's ``chat_template_kwargs``; ``collection``, ``mode`` and ``lang`` belong
to the knowledge model.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from appliance.core import (
    ANY_TOOL,
    MOST_ANSWERS,
    MOST_TOP_LOGPROBS,
    Answer,
    FinishReason,
    GenerationRequest,
    Message,
    Sampling,
    TokenLogprob,
    ToolCall,
    TopLogprob,
    Usage,
)
from appliance.errors import BadRequestError
from appliance.frontends.http import fields

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MAX_TOKENS = 1_000_000
_MAX_INPUTS = 2048

_MOST_TOOLS = 128
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Field, and the values of it that ask for nothing.
_NOT_OFFERED: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("functions", (None, [])),
    ("function_call", (None, "none", "auto")),
    ("best_of", (None, 1)),
    ("modalities", (None, ["text"])),
    ("audio", (None,)),
    ("suffix", (None, "")),
    ("echo", (None, False)),
    ("web_search_options", (None,)),
)
_CHAT_ALONE = ("tools", "tool_choice", "response_format", "reasoning_effort")


@dataclass(frozen=True)
class Call:
    """A completion request, taken apart; ``tool_names`` are those the model may call."""

    model: str
    request: GenerationRequest
    is_stream: bool
    wants_usage: bool
    tool_names: tuple[str, ...]
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
    for field in _CHAT_ALONE:
        if body.get(field):
            raise BadRequestError("not_offered", field=field)
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


def demand_plain(call: Call) -> None:
    """Refuse what the model that answers from documents does not do.

    Raises:
        BadRequestError: the request holds it to a form, or offers tools.
    """
    request, default = call.request, GenerationRequest()
    asked = {
        "n": request.n != default.n,
        "tools": request.tools is not None,
        "response_format": request.json_schema is not None,
        "grammar": request.grammar is not None,
        "logprobs": request.top_logprobs is not None,
        "logit_bias": request.sampling.logit_bias != default.sampling.logit_bias,
    }
    for field, is_asked in asked.items():
        if is_asked:
            raise BadRequestError("not_offered", field=field)


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
    options = _object(body, "stream_options")
    tools = _tools(body)
    choice = _tool_choice(body, tools)
    schema = _schema(body)
    grammar = fields.optional_text(body, "grammar")
    if grammar is not None and schema is not None:
        raise fields.wrong("grammar", "left out beside response_format")
    if choice:
        if schema is not None or grammar is not None:
            raise fields.wrong("tool_choice", "'auto' or 'none' beside response_format or grammar")
        schema = _call_schema(tools, choice)
    return Call(
        model=fields.text(body, "model"),
        request=GenerationRequest(
            messages=messages,
            prompt=prompt,
            max_tokens=_max_tokens(body),
            stop=_stop(body),
            sampling=_sampling(body),
            client=fields.optional_text(body, "user") or client,
            n=fields.whole(body, "n", 1, MOST_ANSWERS) or 1,
            top_logprobs=_top_logprobs(body, is_chat=prompt is None),
            grammar=grammar,
            json_schema=json.dumps(schema) if schema is not None else None,
            tools=json.dumps(list(tools.values()), ensure_ascii=False) if tools else None,
            tool_choice=choice,
            thinking=_thinking(body),
            thinking_budget=fields.whole(body, "thinking_budget", 0, _MAX_TOKENS),
            ignore_eos=fields.flag(body, "ignore_eos", default=False),
        ),
        is_stream=is_stream,
        wants_usage=fields.flag(options, "include_usage", default=False),
        tool_names=tuple(tools),
        collection=fields.optional_text(body, "collection"),
        mode=fields.one_of(body, "mode", ("strict", "open")),
        lang=fields.one_of(body, "lang", ("zh", "en")),
    )


def _object(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return an object, an empty one if it is left out."""
    value = body.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise fields.wrong(field, "an object")
    return value


def _message(item: object, n: int) -> Message:
    where = f"messages[{n}]"
    if not isinstance(item, dict):
        raise fields.wrong(where, "an object")
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise fields.wrong(f"{where}.role", ", ".join(_ROLES))
    if item.get("function_call"):
        raise BadRequestError("not_offered", field=f"{where}.function_call")
    calls: tuple[ToolCall, ...] = ()
    if item.get("tool_calls"):
        if role != "assistant":
            raise fields.wrong(f"{where}.tool_calls", "left out, unless the role is assistant")
        calls = _tool_calls(item["tool_calls"], f"{where}.tool_calls")
    answers = ""
    if role == "tool":
        answers = _text_of(item, "tool_call_id", where)
    content = item.get("content")
    if content is None and calls:
        content = ""
    return Message(
        cast("Literal['system', 'user', 'assistant', 'tool']", role),
        _content(content, f"{where}.content"),
        calls,
        answers,
        fields.optional_text(item, "name") or "",
    )


def _text_of(item: Mapping[str, Any], field: str, where: str) -> str:
    value = item.get(field)
    if not isinstance(value, str):
        raise fields.wrong(f"{where}.{field}", "a string")
    return value


def _tool_calls(given: object, where: str) -> tuple[ToolCall, ...]:
    """Return the calls an assistant made earlier; their arguments must be JSON of an object."""
    if not isinstance(given, list):
        raise fields.wrong(where, "a list of calls")
    calls: list[ToolCall] = []
    for n, item in enumerate(given):
        at = f"{where}[{n}]"
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(function, dict):
            raise fields.wrong(f"{at}.function", "an object")
        arguments = _text_of(function, "arguments", f"{at}.function")
        try:
            is_object = isinstance(json.loads(arguments or "{}"), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise fields.wrong(f"{at}.function.arguments", "JSON of an object")
        name = _text_of(function, "name", f"{at}.function")
        calls.append(ToolCall(name, arguments or "{}", str(item.get("id") or "")))
    return tuple(calls)


def _tools(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tools by name, those of ``tool_choice: none`` left out."""
    given = body.get("tools") or []
    if not isinstance(given, list) or len(given) > _MOST_TOOLS:
        raise fields.wrong("tools", f"a list of at most {_MOST_TOOLS} tools")
    tools: dict[str, dict[str, Any]] = {}
    for n, item in enumerate(given):
        if not isinstance(item, dict) or item.get("type") != "function":
            raise fields.wrong(f"tools[{n}].type", "function")
        function = item.get("function")
        if not isinstance(function, dict):
            raise fields.wrong(f"tools[{n}].function", "an object")
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name) or name in tools:
            allowed = "a name of its own: 1 to 64 of A-Z a-z 0-9 _ -"
            raise fields.wrong(f"tools[{n}].function.name", allowed)
        if not isinstance(function.get("parameters", {}), dict):
            raise fields.wrong(f"tools[{n}].function.parameters", "a JSON schema")
        tools[name] = {"type": "function", "function": function}
    return {} if body.get("tool_choice") == "none" else tools


def _tool_choice(body: Mapping[str, Any], tools: Mapping[str, Any]) -> str:
    """Return the tool that must be called, ``ANY_TOOL``, or nothing."""
    given = body.get("tool_choice")
    if given in (None, "auto", "none"):
        return ""
    if given == "required" and tools:
        return ANY_TOOL
    function = given.get("function") if isinstance(given, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if isinstance(name, str) and name in tools:
        return name
    raise fields.wrong("tool_choice", "auto, none, required, or one of the tools by its name")


def _call_schema(tools: Mapping[str, dict[str, Any]], choice: str) -> dict[str, Any]:
    """Return the schema of a call, for a model that must make one."""
    names = list(tools) if choice == ANY_TOOL else [choice]
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": name},
                "arguments": tools[name]["function"].get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name in names
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema the answer must follow, None for free text."""
    wanted = _object(body, "response_format")
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        # llama.cpp's server takes a schema here as well.
        schema = wanted.get("schema", {"type": "object"})
    elif kind == "json_schema":
        named = wanted.get("json_schema")
        schema = named.get("schema") if isinstance(named, dict) else None
    else:
        raise fields.wrong("response_format.type", "text, json_object, json_schema")
    if not isinstance(schema, dict):
        raise fields.wrong("response_format.json_schema.schema", "a JSON schema")
    return schema


def _top_logprobs(body: Mapping[str, Any], *, is_chat: bool) -> int | None:
    """Return alternatives wanted per token; chat and completions ask in different ways."""
    if not is_chat:
        return fields.whole(body, "logprobs", 0, MOST_TOP_LOGPROBS)
    wants = fields.flag(body, "logprobs", default=False)
    n_top = fields.whole(body, "top_logprobs", 0, MOST_TOP_LOGPROBS)
    if n_top and not wants:
        raise fields.wrong("top_logprobs", "left out without 'logprobs: true'")
    return (n_top or 0) if wants else None


def _thinking(body: Mapping[str, Any]) -> bool:
    """Return whether a thinking model may think: off unless asked for."""
    effort = fields.one_of(
        body, "reasoning_effort", ("none", "minimal", "low", "medium", "high", "xhigh")
    )
    switch = _object(body, "chat_template_kwargs")
    default = effort not in (None, "none", "minimal")
    return fields.flag(switch, "enable_thinking", default=default)


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
        "typical_p": fields.number(body, "typical_p", 0, 1),
        "repeat_penalty": fields.number(body, "repeat_penalty", 0.01, 2),
        "penalty_last_n": fields.whole(body, "repeat_last_n", -1, 1 << 20),
        "presence_penalty": fields.number(body, "presence_penalty", -2, 2),
        "frequency_penalty": fields.number(body, "frequency_penalty", -2, 2),
        "dry_multiplier": fields.number(body, "dry_multiplier", 0, 100),
        "dry_base": fields.number(body, "dry_base", 1, 100),
        "dry_allowed_length": fields.whole(body, "dry_allowed_length", 0, 1 << 20),
        "dry_penalty_last_n": fields.whole(body, "dry_penalty_last_n", -1, 1 << 20),
        "seed": fields.whole(body, "seed", -(2**63), 2**63 - 1),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if "seed" in chosen:
        chosen["seed"] = int(chosen["seed"]) % 2**32
    return replace(defaults, **chosen, logit_bias=_logit_bias(body))  # type: ignore[arg-type]


def _logit_bias(body: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return biases by token id; OpenAI writes the ids as strings, as JSON has no other keys."""
    pairs: list[tuple[int, float]] = []
    for token, bias in _object(body, "logit_bias").items():
        is_number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
        if not (token.isascii() and token.isdigit()) or not is_number or not -100 <= bias <= 100:
            raise fields.wrong("logit_bias", "token ids with a number from -100 to 100 each")
        pairs.append((int(token), float(bias)))
    return tuple(pairs)


# --------------------------------------------------------------------------------------------------
# replies


def finish_word(reason: FinishReason | str) -> str:
    """Return OpenAI's word; a cancelled answer has no reader, a refusal is a complete answer."""
    word = reason.value if isinstance(reason, FinishReason) else reason
    return "length" if word == "length" else "stop"


def usage_of(usages: Sequence[Usage]) -> dict[str, Any]:
    """Return token counts of the answers to one prompt, which is counted once."""
    if not usages:
        return _usage(0, 0, 0, 0)
    return _usage(
        usages[0].prompt_tokens,
        sum(usage.completion_tokens for usage in usages),
        usages[0].cached_tokens,
        sum(usage.reasoning_tokens for usage in usages),
    )


def usage_of_answer(answer: Answer) -> dict[str, Any]:
    """Return the token counts of a whole turn, for an answer from the documents."""
    usage = answer.usage
    return _usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, 0)


def _usage(n_in: int, n_out: int, n_cached: int, n_thought: int) -> dict[str, Any]:
    return {
        "prompt_tokens": n_in,
        "completion_tokens": n_out,
        "total_tokens": n_in + n_out,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": n_thought},
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
class Said:
    """One whole answer, or what a chunk adds to it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Shape:
    """Replies of one request: chat or plain completion, with its id and time."""

    reply_id: str
    created: int
    model: str
    is_chat: bool
    wants_usage: bool
    wants_logprobs: bool = False

    def whole(
        self,
        choices: Sequence[tuple[Said, str]],
        usage: dict[str, Any],
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the reply of a request that is not streamed; ``choices`` with finish reasons."""
        rows = [
            self._choice(index, self._message(said), said, finish, 0)
            for index, (said, finish) in enumerate(choices)
        ]
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head(kind), "choices": rows, "usage": usage, **(extra or {})}

    def first(self, index: int = 0, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the chunk that opens an answer."""
        return self._chunk(index, {"role": "assistant", "content": ""}, Said(), None, extra)

    def piece(self, said: Said, index: int = 0, offset: int = 0) -> dict[str, Any]:
        """Return a chunk; ``offset`` is where its text begins in the answer."""
        delta: dict[str, Any] = {}
        if said.text or said.logprobs:
            delta["content"] = said.text
        if said.reasoning:
            delta["reasoning_content"] = said.reasoning
        if said.calls:
            delta["tool_calls"] = list(said.calls)
        return self._chunk(index, delta, said, None, offset=offset)

    def last(
        self, finish: str, index: int = 0, extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the chunk that says why an answer ended."""
        return self._chunk(index, {}, Said(), finish, extra)

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the chunk without choices that ``include_usage`` asks for."""
        return {**self._head(self._chunk_kind()), "choices": [], "usage": usage}

    def _message(self, said: Said) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if said.calls and not said.text else said.text,
            "refusal": None,
        }
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = list(said.calls)
        return {"message": message}

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        said: Said,
        finish: str | None,
        extra: Mapping[str, Any] | None = None,
        offset: int = 0,
    ) -> dict[str, Any]:
        choice = self._choice(index, {"delta": delta}, said, finish, offset)
        usage = {"usage": None} if self.wants_usage else {}
        return {**self._head(self._chunk_kind()), "choices": [choice], **usage, **(extra or {})}

    def _choice(
        self, index: int, in_chat: Mapping[str, Any], said: Said, finish: str | None, offset: int
    ) -> dict[str, Any]:
        shown: Mapping[str, Any] = in_chat if self.is_chat else {"text": said.text}
        return {
            "index": index,
            **shown,
            "finish_reason": finish,
            "logprobs": self._logprobs(said, offset),
        }

    def _logprobs(self, said: Said, offset: int) -> dict[str, Any] | None:
        if not self.wants_logprobs:
            return None
        if self.is_chat:
            rows = [
                {**_candidate(one), "top_logprobs": [_candidate(top) for top in one.top]}
                for one in said.logprobs
            ]
            return {"content": rows, "refusal": None}
        texts = [_shown(one.bytes) for one in said.logprobs]
        ends = itertools.accumulate((len(text) for text in texts), initial=offset)
        return {
            "tokens": texts,
            "token_logprobs": [one.logprob for one in said.logprobs],
            "top_logprobs": [
                {_shown(top.bytes): top.logprob for top in one.top} for one in said.logprobs
            ],
            "text_offset": list(ends)[: len(texts)],
        }

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


def call_start(index: int, call_id: str, name: str) -> dict[str, Any]:
    """Return the delta that opens a tool call."""
    function = {"name": name, "arguments": ""}
    return {"index": index, "id": call_id, "type": "function", "function": function}


def call_arguments(index: int, text: str) -> dict[str, Any]:
    """Return the delta with a piece of a tool call's arguments."""
    return {"index": index, "function": {"arguments": text}}


def whole_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call of a reply that is not streamed."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _candidate(one: TopLogprob) -> dict[str, Any]:
    return {"token": _shown(one.bytes), "logprob": one.logprob, "bytes": list(one.bytes)}


def _shown(data: bytes) -> str:
    """Return a token's text; what is no whole character is shown as OpenAI's clients expect."""
    return data.decode("utf-8", "replace")


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
