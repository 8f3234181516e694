"""Render a model's own chat template, which is a program from a file nobody here wrote.

Templates are Jinja with the few extras that Hugging Face's renderer offers. They run in Jinja's
immutable sandbox. Message texts are data: a text that spells one of the model's control tokens
(``<|im_end|>`` in a document) would otherwise end the turn it stands in, so such spellings are
broken up with a zero-width space before rendering.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox

from appliance.engine.base import Feature, Message
from appliance.errors import EngineError

_ZERO_WIDTH_SPACE = "\u200b"


class ChatTemplate:
    """A compiled template.

    Args:
        source: the template's text, from the GGUF's ``tokenizer.chat_template``.
        bos, eos: the texts of these tokens, which templates refer to.
        control_tokens: every spelling that the tokenizer would read as a control token.

    Raises:
        EngineError: the template is not valid Jinja (code ``chat_template_invalid``).
    """

    def __init__(self, source: str, bos: str, eos: str, control_tokens: Iterable[str]) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise EngineError("chat_template_invalid", cause=str(error)) from error
        self.features = _features_of(source)
        self._bos = bos
        self._eos = eos
        self._control = spellings_pattern(control_tokens)

    def render(
        self, messages: Sequence[Message], *, tools: str | None = None, thinking: bool = False
    ) -> str:
        """Return the prompt text, with the header that makes the model answer.

        Args:
            messages: the conversation.
            tools: JSON text of an array of tools in OpenAI's form.
            thinking: the template's own switch, where it has one.

        Raises:
            EngineError: the template refuses these messages or tools (code
                ``chat_template_invalid``).
        """
        try:
            return self._template.render(
                messages=[self._turn(message) for message in messages],
                add_generation_prompt=True,
                enable_thinking=thinking,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=json.loads(self.defused(tools)) if tools is not None else None,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise EngineError("chat_template_invalid", cause=str(error)) from error

    def _turn(self, message: Message) -> dict[str, Any]:
        """Return a message as templates expect it; a call's arguments are an object to them."""
        turn: dict[str, Any] = {"role": message.role, "content": self.defused(message.content)}
        if message.tool_calls:
            turn["tool_calls"] = [
                {
                    "type": "function",
                    "id": self.defused(call.id),
                    "function": {
                        "name": self.defused(call.name),
                        "arguments": json.loads(self.defused(call.arguments)),
                    },
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            turn["tool_call_id"] = self.defused(message.tool_call_id)
        if message.name:
            turn["name"] = self.defused(message.name)
        return turn

    def defused(self, text: str) -> str:
        """Return ``text`` with every spelling of a control token broken up."""
        if self._control is None:
            return text
        return self._control.sub(lambda found: found[0][0] + _ZERO_WIDTH_SPACE + found[0][1:], text)


def _features_of(source: str) -> frozenset[Feature]:
    """Return what a template can do, by the variables it reads and the tags it writes."""
    found: set[Feature] = {"chat"}
    if re.search(r"\btools\b", source):
        found.add("tools")
    if "enable_thinking" in source or "<think>" in source:
        found.add("thinking")
    return frozenset(found)


def spellings_pattern(spellings: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of ``spellings``, longest first; None when there are none.

    One-character spellings are left alone: breaking them up would change nothing.
    """
    ordered = sorted({text for text in spellings if len(text) > 1}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _tojson(value: Any, indent: int | None = None) -> str:  # noqa: ANN401 (Jinja passes anything)
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.datetime.now(tz=datetime.timezone.utc).astimezone().strftime(layout)
