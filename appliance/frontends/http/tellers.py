"""What each API says about the events of an answer; see ``streams.Teller``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from appliance.core import (
    Answer,
    Delta,
    Evidence,
    Finished,
    GenerationEvent,
    Prefilled,
    Queued,
    QueueUpdate,
    Reading,
    Reasoning,
    TokenLogprob,
    TurnEvent,
)
from appliance.errors import EngineStoppedError
from appliance.frontends.http import openai, sse
from appliance.frontends.http.toolcalls import CallSplitter, CallStart, Piece


def place_of(position: int, wait_s: float | None) -> str:
    """Return a place in the queue as a comment of the stream, which OpenAI's clients skip."""
    wait = "" if wait_s is None else f" wait_s={wait_s:.1f}"
    return f"queue position={position}{wait}"


class _Choice:
    """One of the ``n`` answers: what was sent of it, text told apart from tool calls."""

    def __init__(self, index: int, call: openai.Call) -> None:
        self.index = index
        self.splitter = CallSplitter(call.tool_names) if call.tool_names else None
        self.is_begun = False
        self.text = ""
        self.calls: list[tuple[str, str, str]] = []
        self.finished: Finished | None = None

    def split(self, text: str, *, is_end: bool = False) -> list[Piece]:
        """Return text and parts of calls that are certain now."""
        if self.splitter is None:
            return [text] if text else []
        pieces = list(self.splitter.feed(text))
        return pieces + list(self.splitter.finish()) if is_end else pieces

    def said(self, piece: Piece, logprobs: tuple[TokenLogprob, ...] = ()) -> openai.Said:
        """Note a piece and return it for a chunk."""
        if isinstance(piece, str):
            self.text += piece
            return openai.Said(piece, logprobs=logprobs)
        if isinstance(piece, CallStart):
            self.calls.append((piece.id, piece.name, ""))
            start = openai.call_start(piece.index, piece.id, piece.name)
            return openai.Said(calls=(start,), logprobs=logprobs)
        call_id, name, arguments = self.calls[piece.index]
        self.calls[piece.index] = (call_id, name, arguments + piece.text)
        part = openai.call_arguments(piece.index, piece.text)
        return openai.Said(calls=(part,), logprobs=logprobs)

    def finish(self) -> str:
        """Return OpenAI's word for why it ended."""
        if self.finished is None:
            raise EngineStoppedError(state="stopped")
        word = openai.finish_word(self.finished.reason)
        return "tool_calls" if self.calls and word == "stop" else word


class ModelTeller:
    """OpenAI's words for a bare generation."""

    def __init__(self, shape: openai.Shape, call: openai.Call) -> None:
        self._shape = shape
        self._choices = [_Choice(index, call) for index in range(call.request.n)]

    def frames(self, event: GenerationEvent) -> Sequence[bytes]:
        """Return the frames for one event."""
        if isinstance(event, QueueUpdate):
            return (sse.comment(place_of(event.position, event.wait_s)),)
        if isinstance(event, Prefilled):
            return (sse.comment(f"prompt {event.done}/{event.total}"),)
        choice = self._choices[event.index]
        if isinstance(event, Finished):
            choice.finished = event
            frames = self._pieces(choice, choice.split("", is_end=True))
            last = self._shape.last(choice.finish(), choice.index)
            return [*self._begun(choice), *frames, sse.data(last)]
        if isinstance(event, Reasoning):
            said = openai.Said(reasoning=event.text)
            return [*self._begun(choice), sse.data(self._shape.piece(said, choice.index))]
        return self._pieces(choice, choice.split(event.text), event.logprobs)

    def _pieces(
        self, choice: _Choice, pieces: Sequence[Piece], logprobs: tuple[TokenLogprob, ...] = ()
    ) -> list[bytes]:
        """Return chunks; log-probabilities go with the first, or alone if no text is certain."""
        frames: list[bytes] = []
        for piece in pieces or ([""] if logprobs else []):
            offset = len(choice.text)
            said = choice.said(piece, logprobs)
            frames += self._begun(choice)
            frames.append(sse.data(self._shape.piece(said, choice.index, offset)))
            logprobs = ()
        return frames

    def _begun(self, choice: _Choice) -> list[bytes]:
        is_first, choice.is_begun = not choice.is_begun, True
        if not is_first or not self._shape.is_chat:
            return []
        return [sse.data(self._shape.first(choice.index))]

    def end(self) -> Sequence[bytes]:
        """Return what closes the stream."""
        usage = self._usage()
        if not self._shape.wants_usage:
            return [sse.DONE]
        return [sse.data(self._shape.usage(usage)), sse.DONE]

    def body(self) -> dict[str, Any]:
        """Return the reply that is not streamed."""
        usage = self._usage()
        choices = [
            (
                openai.Said(
                    choice.text,
                    choice.finished.reasoning,
                    tuple(openai.whole_call(*call) for call in choice.calls),
                    choice.finished.logprobs,
                ),
                choice.finish(),
            )
            for choice in self._choices
            if choice.finished is not None
        ]
        return self._shape.whole(choices, usage)

    def failure(self, body: dict[str, Any]) -> Sequence[bytes]:
        """Return an error chunk, which OpenAI's clients raise."""
        return [sse.data(body)]

    def _usage(self) -> dict[str, Any]:
        finished = [choice.finished for choice in self._choices]
        usages = [last.usage for last in finished if last is not None]
        if len(usages) < len(finished):
            raise EngineStoppedError(state="stopped")
        return openai.usage_of(usages)


class KnowledgeTeller:
    """OpenAI's words for an answer from the documents, with citations in fields of our own."""

    def __init__(self, shape: openai.Shape) -> None:
        self._shape = shape
        self._is_begun = False
        self._n_said = 0
        self._answer: Answer | None = None

    def frames(self, event: TurnEvent) -> Sequence[bytes]:
        """Return the frames for one event."""
        frames: list[bytes] = []
        if isinstance(event, Queued):
            return (sse.comment(place_of(event.position, event.wait_s)),)
        if isinstance(event, Reading):
            return (sse.comment(f"prompt {event.done}/{event.total}"),)
        if isinstance(event, Evidence):
            evidence = [asdict(citation) for citation in event.citations]
            frames.append(sse.data(self._shape.first(extra={"evidence": evidence})))
            self._is_begun = True
        elif isinstance(event, Delta):
            self._n_said += 1
            frames.append(sse.data(self._shape.piece(openai.Said(event.text))))
        elif isinstance(event, Answer):
            self._answer = event
            if not self._n_said and event.answer:
                frames.append(sse.data(self._shape.piece(openai.Said(event.answer))))
        if frames and not self._is_begun:
            frames.insert(0, sse.data(self._shape.first()))
            self._is_begun = True
        return frames

    def end(self) -> Sequence[bytes]:
        """Return the closing chunks; the citations come with the finish reason."""
        answer = self._done()
        finish = openai.finish_word(answer.finish_reason)
        frames = [sse.data(self._shape.last(finish, extra=openai.knowledge_fields(answer)))]
        if self._shape.wants_usage:
            frames.append(sse.data(self._shape.usage(openai.usage_of_answer(answer))))
        return [*frames, sse.DONE]

    def body(self) -> dict[str, Any]:
        """Return the reply that is not streamed."""
        answer = self._done()
        finish = openai.finish_word(answer.finish_reason)
        usage, extra = openai.usage_of_answer(answer), openai.knowledge_fields(answer)
        return self._shape.whole([(openai.Said(answer.answer), finish)], usage, extra)

    def failure(self, body: dict[str, Any]) -> Sequence[bytes]:
        """Return an error chunk, which OpenAI's clients raise."""
        return [sse.data(body)]

    def _done(self) -> Answer:
        if self._answer is None:
            raise EngineStoppedError(state="stopped")
        return self._answer


class TurnTeller:
    """Our own words: every event of the turn as it is."""

    def __init__(self) -> None:
        self._answer: Answer | None = None

    def frames(self, event: TurnEvent) -> Sequence[bytes]:
        """Return the event under its name."""
        name = type(event).__name__.lower()
        if isinstance(event, Answer):
            self._answer = event
        return [sse.event(name, {"type": name, **asdict(event)})]

    def end(self) -> Sequence[bytes]:
        """Return nothing: ``answer`` was the last."""
        return ()

    def body(self) -> dict[str, Any]:
        """Return the answer alone."""
        if self._answer is None:
            raise EngineStoppedError(state="stopped")
        return self._answer.as_json()

    def failure(self, body: dict[str, Any]) -> Sequence[bytes]:
        """Return the error as an event."""
        return [sse.event("error", body)]
