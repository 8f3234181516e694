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

from appliance.engine.base import Message
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
        self._bos = bos
        self._eos = eos
        self._control = spellings_pattern(control_tokens)

    def render(self, messages: Sequence[Message], *, enable_thinking: bool = False) -> str:
        """Return the prompt text, with the header that makes the model answer.

        Raises:
            EngineError: the template refuses these messages (code ``chat_template_invalid``).
        """
        turns = [
            {"role": message.role, "content": self.defused(message.content)} for message in messages
        ]
        try:
            return self._template.render(
                messages=turns,
                add_generation_prompt=True,
                enable_thinking=enable_thinking,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=None,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise EngineError("chat_template_invalid", cause=str(error)) from error

    def defused(self, text: str) -> str:
        """Return ``text`` with every spelling of a control token broken up."""
        if self._control is None:
            return text
        return self._control.sub(lambda found: found[0][0] + _ZERO_WIDTH_SPACE + found[0][1:], text)


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
