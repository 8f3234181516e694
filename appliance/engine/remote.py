"""Answers from an OpenAI-compatible server, behind the same events as an answer made here.

Life of a request: it waits its turn (``n_parallel`` run at a time, fair between clients), is sent,
and its stream is turned into our events. While the server is away or too busy the request goes on
trying for ``retry_s`` and says so as ``QueueUpdate``; once a word was shown it never tries again,
because the reader would get two beginnings: the answer ends with ``remote_broke_off``.

The server's tool calls become text in the Hermes form (``<tool_call>{...}</tool_call>``), which is
what a model here would have written. Token counts before the answer are estimates, on the high
side; the figures in ``Usage`` are the server's own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.config import RemoteConfig
from appliance.engine.base import (
    ANY_TOOL,
    EngineStatus,
    Feature,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Message,
    QueueUpdate,
    Reasoning,
    Sampling,
    ServerStatus,
    Timings,
    Token,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from appliance.engine.server import Exchange, Server, ServerAwayError, read_key
from appliance.engine.waiting import WaitingRoom
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
    QueueFullError,
)
from appliance.units import Tokens

_log = logging.getLogger(__name__)

_LOOK_EVERY = 5
_LOOK_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 0.25
_MOST_PAUSE_S = 5.0
_TOKENS_PER_MESSAGE = 8

_FEATURES: frozenset[Feature] = frozenset({"chat", "tools", "thinking"})

# Sampler settings by our name: OpenAI's first, then those that llama-server knows and vLLM too or
# ignores. Only what differs from our own default is sent, so that the server's defaults hold.
_OPENAI_SETTINGS = ("top_p", "presence_penalty", "frequency_penalty", "seed")
_FURTHER_SETTINGS = {
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repeat_penalty": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
    "dry_multiplier": "dry_multiplier",
    "dry_base": "dry_base",
    "dry_allowed_length": "dry_allowed_length",
    "dry_penalty_last_n": "dry_penalty_last_n",
}


def estimated_tokens(text: str) -> Tokens:
    """Return about how many tokens ``text`` has, rather too many: 1 per 3 ASCII, 1 per other."""
    n_ascii = sum(char < "\x80" for char in text)
    return Tokens(-(-n_ascii // 3) + len(text) - n_ascii)


class RemoteAnswers:
    """The part of an ``Engine`` that answers, done by a server.

    Args:
        config: which server and how patiently.
        n_ctx: context when neither the configuration nor the server says it.
        max_queue: requests that may wait for their turn.

    Raises:
        ConfigError: the key file cannot be used.
    """

    def __init__(self, config: RemoteConfig, *, n_ctx: int, max_queue: int) -> None:
        self.config = config
        self._max_queue = max_queue
        key = read_key(config.api_key_file)
        url = config.url or ""
        self.server = Server(url, key, config.connect_timeout_s, config.silence_timeout_s)
        self._watched = Server(url, key, config.connect_timeout_s, _LOOK_TIMEOUT_S)
        self.lock = threading.Condition()
        self._n_ctx = config.n_ctx or n_ctx
        self._model = config.model
        self._problem: ApplianceError | None = None
        self._was_reached = False
        self._is_closing = False
        self._n_lost = 0
        self._n_looks = 0
        self._waiting: WaitingRoom[RemoteGeneration] = WaitingRoom()
        self._running: set[RemoteGeneration] = set()
        self._look: Exchange | None = None
        self.n_prefilled = 0
        self.n_decoded = 0
        self._thread = threading.Thread(target=self._watch, name="remote-watch")
        self._thread.start()

    # ---------------------------------------------------------------------------------------------
    # what callers use

    @property
    def n_ctx(self) -> int:
        """Context of one answer, in tokens."""
        return self._n_ctx

    @property
    def features(self) -> frozenset[Feature]:
        """What a server is assumed to do; it refuses by itself what it cannot."""
        return _FEATURES

    def generate(self, request: GenerationRequest) -> RemoteGeneration:
        """Queue a request; see ``appliance.engine.base.Engine.generate``."""
        body = self._body(request)
        with self.lock:
            self._demand_open()
            n_waiting = len(self._waiting)
            if n_waiting >= self._max_queue and len(self._running) >= self.config.n_parallel:
                raise QueueFullError(n_waiting=n_waiting, retry_after_s=5)
            generation = RemoteGeneration(self, request, body)
            self._waiting.add(generation, int(request.priority), request.client)
            self._admit()
        return generation

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Estimate the tokens of a conversation."""
        return Tokens(
            sum(estimated_tokens(m.content) + _TOKENS_PER_MESSAGE for m in messages)
            + _TOKENS_PER_MESSAGE
        )

    def count_text_tokens(self, text: str) -> Tokens:
        """Estimate the tokens of a text."""
        return estimated_tokens(text)

    def use(self, model_path: Path) -> None:
        """Refuse: the server decides which model answers."""
        raise EngineError("done_by_server", path=str(model_path))

    def status(self) -> EngineStatus:
        """A snapshot; asks nobody."""
        with self.lock:
            problem = self._problem
            state = "loading" if not self._was_reached else "ready"
            if problem is not None:
                state = "failed"
            if self._is_closing:
                state = "stopped"
            server = ServerStatus(
                "generation",
                self.server.url,
                is_up=self._was_reached and problem is None,
                n_lost=self._n_lost,
                problem=(problem.code, dict(problem.facts)) if problem else None,
            )
            return EngineStatus(
                state=state,  # type: ignore[arg-type]
                model=self._model,
                embedder=None,
                device=self.server.url,
                device_reason="device_remote",
                n_ctx=self._n_ctx,
                n_slots=self.config.n_parallel,
                n_running=len(self._running),
                n_waiting=len(self._waiting),
                tokens_prefilled=self.n_prefilled,
                tokens_decoded=self.n_decoded,
                texts_embedded=0,
                prefill_tok_s=None,
                decode_tok_s=None,
                memory={},
                error=problem.code if problem else None,
                error_facts=dict(problem.facts) if problem else {},
                servers=(server,),
            )

    def steps(self) -> int:
        """Moves while the watching thread lives."""
        return self._n_looks

    def close(self) -> None:
        """Stop every answer and the watching thread; idempotent."""
        with self.lock:
            self._is_closing = True
            waiting = self._waiting.ordered()
            open_answers = [*waiting, *self._running]
            look = self._look
            self.lock.notify_all()
        for generation in open_answers:
            generation.cancel()
        if look is not None:
            look.hang_up()
        self._thread.join()

    # ---------------------------------------------------------------------------------------------
    # for the answers

    @property
    def model_name(self) -> str:
        """What to ask for: configured, else what the server listed."""
        return self._model or "default"

    def wait_turn(self, generation: RemoteGeneration) -> Iterator[QueueUpdate]:
        """Yield places until ``generation`` may run or is cancelled."""
        shown = 0
        while True:
            with self.lock:
                while True:
                    if generation in self._running or generation.is_cancelled():
                        return
                    position = self._waiting.ordered().index(generation) + 1
                    if position != shown:
                        break
                    self.lock.wait()
            shown = position
            yield QueueUpdate(position, None)

    def leave(self, generation: RemoteGeneration) -> None:
        """Give the place of an answer that has ended to the next; idempotent."""
        with self.lock:
            if generation in self._running:
                self._running.discard(generation)
                self._waiting.done(generation.client)
            else:
                self._waiting.remove(generation)
            self._admit()

    def note_lost(self, error: ApplianceError) -> None:
        """An exchange failed: say so in the status until the server is seen again."""
        with self.lock:
            if self._problem is None:
                _log.warning("%s: %s", self.server.url, error)
            self._problem = error
            self._n_lost += 1
            self.lock.notify_all()

    def note_answered(self, usage: Usage) -> None:
        """An answer is whole: count it."""
        with self.lock:
            self._problem, self._was_reached = None, True
            self.n_prefilled += usage.prompt_tokens - usage.cached_tokens
            self.n_decoded += usage.completion_tokens

    def _admit(self) -> None:
        """Let the next ones run; the lock is held."""
        while len(self._waiting) and len(self._running) < self.config.n_parallel:
            generation, client = self._waiting.pop()
            generation.client = client
            self._running.add(generation)
        self.lock.notify_all()

    def _demand_open(self) -> None:
        if self._is_closing:
            raise EngineStoppedError(state="stopped")

    # ---------------------------------------------------------------------------------------------
    # watching

    def _watch(self) -> None:
        """Ask now and then what the server serves, so that status is true without a question."""
        while not self._is_closing:
            self._look = Exchange(self._watched)
            try:
                self._note_models(self._look.reply("GET", "/models"))
            except ServerAwayError as away:
                self._note_problem(away.error)
            except ApplianceError as error:
                self._note_problem(error)
            with self.lock:
                for _ in range(_LOOK_EVERY):
                    self._n_looks += 1
                    if self.lock.wait_for(lambda: self._is_closing, 1.0):
                        return

    def _note_problem(self, error: ApplianceError) -> None:
        with self.lock:
            if self._is_closing:
                return
            if self._problem is None or self._problem.code != error.code:
                _log.warning("%s: %s", self.server.url, error)
            self._problem = error

    def _note_models(self, listed: object) -> None:
        rows: Any = listed.get("data") if isinstance(listed, dict) else None
        models = [row for row in rows or [] if isinstance(row, dict) and row.get("id")]
        wanted = self.config.model
        found = [row for row in models if wanted in (None, row["id"])]
        with self.lock:
            if not found and models:
                known = ", ".join(str(row["id"]) for row in models)
                self._problem = EngineError(
                    "remote_model_unknown", url=self.server.url, model=wanted, known=known
                )
                return
            if self._problem is not None:
                _log.info("%s: there again", self.server.url)
            self._problem, self._was_reached = None, True
            if found:
                self._model = str(found[0]["id"])
                n_ctx = _context_of(found[0])
                if self.config.n_ctx is None and n_ctx is not None:
                    self._n_ctx = n_ctx

    # ---------------------------------------------------------------------------------------------
    # requests

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the request in OpenAI's words.

        Raises:
            ContextOverflowError: even a low estimate of the prompt is beyond the context.
            EngineError: the server's interface has no word for something asked.
        """
        self._demand_fitting(request)
        sampling, default = request.sampling, Sampling()
        body: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": sampling.temperature,
        }
        for name in _OPENAI_SETTINGS:
            if getattr(sampling, name) != getattr(default, name):
                body[name] = getattr(sampling, name)
        further = {
            word: getattr(sampling, name)
            for name, word in _FURTHER_SETTINGS.items()
            if getattr(sampling, name) != getattr(default, name)
        }
        if "repeat_penalty" in further:
            further["repetition_penalty"] = sampling.repeat_penalty  # vLLM's name for it
        if sampling.dry_breakers != default.dry_breakers:
            further["dry_sequence_breakers"] = list(sampling.dry_breakers)
        if sampling.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.stop:
            body["stop"] = list(request.stop)
        if request.n != 1:
            body["n"] = request.n
        if request.grammar is not None:
            further["grammar"] = request.grammar
        if request.ignore_eos:
            further["ignore_eos"] = True
        if request.thinking_budget is not None:
            raise EngineError("remote_no_word", url=self.server.url, field="thinking_budget")
        if request.prompt is not None:
            body["prompt"] = request.prompt
            if request.top_logprobs is not None:
                body["logprobs"] = request.top_logprobs
            if request.json_schema is not None:
                further["json_schema"] = json.loads(request.json_schema)
        else:
            body.update(_chat_fields(request))
            further["chat_template_kwargs"] = {"enable_thinking": request.thinking}
        if self.config.extensions:
            return {**body, **further}
        for name in ("grammar", "json_schema", "ignore_eos"):
            if name in further:
                raise EngineError("remote_no_word", url=self.server.url, field=name)
        return body

    def _demand_fitting(self, request: GenerationRequest) -> None:
        """Refuse what cannot fit by any count: a token is rarely more than eight characters."""
        texts = [request.prompt or "", *(message.content for message in request.messages)]
        n_least = sum(map(len, texts)) // 8
        n_reserved = max(request.max_tokens or 1, 1)
        if n_least + n_reserved > self._n_ctx:
            raise ContextOverflowError(
                n_prompt_tokens=n_least, n_reserved=n_reserved, n_ctx=self._n_ctx
            )


def _context_of(row: Mapping[str, Any]) -> int | None:
    """Return a model's context as vLLM or llama-server list it."""
    meta = row.get("meta")
    found = row.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
    return found if isinstance(found, int) and found >= 512 else None


def _chat_fields(request: GenerationRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": [_message(message) for message in request.messages]}
    if request.top_logprobs is not None:
        fields["logprobs"] = True
        fields["top_logprobs"] = request.top_logprobs
    if request.tools is not None:
        fields["tools"] = json.loads(request.tools)
    if request.tool_choice == ANY_TOOL:
        fields["tool_choice"] = "required"
    elif request.tool_choice:
        chosen = {"name": request.tool_choice}
        fields["tool_choice"] = {"type": "function", "function": chosen}
    elif request.json_schema is not None:
        schema = {"name": "answer", "schema": json.loads(request.json_schema), "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return fields


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id or f"call_{n}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for n, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id:
        said["tool_call_id"] = message.tool_call_id
    if message.name:
        said["name"] = message.name
    return said


@dataclass
class _Choice:
    """One of the ``n`` answers as far as it was said."""

    index: int
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    call: int | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    n_sent: int = 0

    def said(self, text: str) -> Token:
        """Note and return a piece of the answer."""
        self.text += text
        new = tuple(self.logprobs[self.n_sent :])
        self.n_sent = len(self.logprobs)
        return Token(text, self.index, new)

    def end_call(self) -> str:
        """Return what closes an open tool call."""
        if self.call is None:
            return ""
        self.call = None
        return "}\n</tool_call>"


class RemoteGeneration:
    """One request; see ``appliance.engine.base.Generation``."""

    def __init__(
        self, owner: RemoteAnswers, request: GenerationRequest, body: dict[str, Any]
    ) -> None:
        self._owner = owner
        self._request = request
        self._body = body
        self._accepted = time.monotonic()
        self._started: float | None = None
        self._first: float | None = None
        self._exchange: Exchange | None = None
        self._choices = [_Choice(index) for index in range(request.n)]
        self._usage: Mapping[str, Any] = {}
        self._cancelled = threading.Event()
        self.client = ""

    def is_cancelled(self) -> bool:
        """Whether nobody wants the answer any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Hang up, or leave the queue; idempotent, from any thread."""
        with self._owner.lock:
            self._cancelled.set()
            exchange = self._exchange
            self._owner.lock.notify_all()
        if exchange is not None:
            exchange.hang_up()
        else:
            self._owner.leave(self)

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until the last ``Finished``.

        Raises:
            EngineStoppedError: the server is away (``remote_unreachable``), or broke off in the
                middle (``remote_broke_off``).
            EngineError: it refused.
        """
        is_over = False
        try:
            yield from self._owner.wait_turn(self)
            self._started = time.monotonic()
            if not self.is_cancelled():
                yield from self._answered()
            yield from self._finished()
            is_over = True
        finally:
            if not is_over:
                self._cancelled.set()
            self._owner.leave(self)

    def _answered(self) -> Iterator[GenerationEvent]:
        """Ask until the answer is whole, cancelled, or there is no point in asking again."""
        owner = self._owner
        deadline = time.monotonic() + owner.config.retry_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                yield from self._attempt()
            except ServerAwayError as away:
                if self.is_cancelled():
                    return
                owner.note_lost(away.error)
                if self._first is not None:
                    cause = str(away.error.facts.get("cause", away.error.code))
                    raise EngineStoppedError(
                        "remote_broke_off", url=owner.server.url, cause=cause
                    ) from away
                pause_s = away.retry_after_s or pause_s
                if time.monotonic() + pause_s > deadline:
                    raise away.error from away
            except EngineError:
                if self.is_cancelled():
                    return
                raise
            else:
                return
            yield QueueUpdate(1, pause_s)
            with owner.lock:
                owner.lock.wait_for(self.is_cancelled, pause_s)
            if self.is_cancelled():
                return
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _attempt(self) -> Iterator[GenerationEvent]:
        owner = self._owner
        exchange = Exchange(owner.server)
        with owner.lock:
            if self.is_cancelled():
                return
            self._exchange = exchange
        path = "/completions" if self._request.prompt is not None else "/chat/completions"
        stream = exchange.events(path, {**self._body, "model": owner.model_name})
        try:
            for event in stream:
                if self.is_cancelled():
                    return
                yield from self._events_of(event)
        finally:
            # A reader that leaves closes this generator, and with it the connection.
            stream.close()  # type: ignore[attr-defined]
            with owner.lock:
                self._exchange = None
        if not self.is_cancelled() and any(choice.finish is None for choice in self._choices):
            raise ServerAwayError(owner.server.away("the stream ended before the answer did"))

    def _events_of(self, chunk: Mapping[str, Any]) -> Iterator[GenerationEvent]:
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for row in chunk.get("choices") or ():
            index = row.get("index", 0)
            if not isinstance(index, int) or not 0 <= index < len(self._choices):
                raise EngineError(
                    "remote_nonsense",
                    url=self._owner.server.url,
                    cause=f"an answer number {index} that nobody asked for",
                )
            choice = self._choices[index]
            delta = row.get("delta") or {}
            choice.logprobs += _logprobs(row.get("logprobs"))
            for event in self._pieces(choice, row, delta):
                if self._first is None:
                    self._first = time.monotonic()
                yield event
            if row.get("finish_reason"):
                choice.finish = str(row["finish_reason"])
                if closing := choice.end_call():
                    yield choice.said(closing)

    def _pieces(
        self, choice: _Choice, row: Mapping[str, Any], delta: Mapping[str, Any]
    ) -> Iterator[GenerationEvent]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought:
            choice.reasoning += thought
            yield Reasoning(thought, choice.index)
        if text := delta.get("content") or row.get("text"):
            yield choice.said(choice.end_call() + text)
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            text = ""
            if call.get("index", 0) != choice.call and function.get("name"):
                text = choice.end_call()
                choice.call = call.get("index", 0)
                name = json.dumps(function["name"], ensure_ascii=False)
                text += f'\n<tool_call>\n{{"name": {name}, "arguments": '
            text += function.get("arguments") or ""
            if text:
                yield choice.said(text)

    def _finished(self) -> Iterator[Finished]:
        now = time.monotonic()
        usage = self._counted()
        started = self._started if self._started is not None else now
        first = self._first if self._first is not None else now
        timings = Timings(
            queue_s=started - self._accepted,
            prefill_s=first - started,
            ttft_s=first - self._accepted,
            total_s=now - self._accepted,
        )
        if not self.is_cancelled():
            self._owner.note_answered(usage)
        for choice in self._choices:
            reason = FinishReason.LENGTH if choice.finish == "length" else FinishReason.STOP
            if self.is_cancelled() and choice.finish is None:
                reason = FinishReason.CANCELLED
            is_last = choice is self._choices[-1]
            yield Finished(
                reason,
                choice.text,
                # The server counts all answers together: the sum travels with the last one.
                usage if is_last else Usage(usage.prompt_tokens, Tokens(0), usage.cached_tokens),
                timings,
                choice.index,
                choice.reasoning,
                tuple(choice.logprobs),
            )

    def _counted(self) -> Usage:
        """Return the server's count; an estimate when it was cut off before it counted."""
        given = self._usage
        if not given:
            said = "".join(choice.text + choice.reasoning for choice in self._choices)
            request = self._request
            asked = estimated_tokens(request.prompt or "")
            if request.prompt is None:
                asked = self._owner.count_tokens(request.messages)
            return Usage(asked, estimated_tokens(said), Tokens(0))
        read = given.get("prompt_tokens_details") or {}
        written = given.get("completion_tokens_details") or {}
        return Usage(
            Tokens(int(given.get("prompt_tokens") or 0)),
            Tokens(int(given.get("completion_tokens") or 0)),
            Tokens(int(read.get("cached_tokens") or 0)),
            Tokens(int(written.get("reasoning_tokens") or 0)),
        )


def _logprobs(given: Any) -> list[TokenLogprob]:  # noqa: ANN401 - JSON
    """Return log-probabilities from the chat form, or from the older one of completions."""
    if not isinstance(given, dict):
        return []
    if isinstance(given.get("content"), list):
        return [
            TokenLogprob(
                *_candidate(row), tuple(TopLogprob(*_candidate(top)) for top in row["top_logprobs"])
            )
            for row in given["content"]
        ]
    found: list[TokenLogprob] = []
    tops = given.get("top_logprobs") or [{}] * len(given.get("tokens") or ())
    for text, logprob, top in zip(
        given.get("tokens") or (), given.get("token_logprobs") or (), tops, strict=False
    ):
        candidates = tuple(
            TopLogprob(-1, str(name).encode(), float(value)) for name, value in (top or {}).items()
        )
        found.append(TokenLogprob(-1, str(text).encode(), float(logprob or 0.0), candidates))
    return found


def _candidate(row: Mapping[str, Any]) -> tuple[int, bytes, float]:
    raw = row.get("bytes")
    data = bytes(raw) if isinstance(raw, list) else str(row["token"]).encode()
    return int(row.get("id", -1)), data, float(row["logprob"])
