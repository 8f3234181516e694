"""The human side of a line: asleep until Enter, then a chat, forgotten when nobody is there."""

from __future__ import annotations

import hmac
import logging
import re
import threading
from collections.abc import Callable
from typing import Literal, Protocol

from appliance.client import Client
from appliance.config import SerialConfig
from appliance.errors import ApplianceError
from appliance.frontends.serial.encoding import TextCodec
from appliance.frontends.terminal.chat import Chat, Screen
from appliance.frontends.terminal.flow import PLAIN, Flow
from appliance.frontends.terminal.lineedit import CursorAt, Entered, Interrupted, Left, LineEditor
from appliance.messages.screen import say
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

State = Literal["asleep", "probing", "pin", "ready", "busy"]

PROBE_S = 0.6
"""How long a terminal may take to say where its cursor is; after that it is a dumb one."""

# Save the cursor, go to the farthest corner, ask where that is, come back.
_PROBE = "\x1b7\x1b[999;999H\x1b[6n\x1b8"
# Pasted text comes in brackets, so that its line breaks enter nothing.
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PIECES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]{1,8}|\x1b")
"""What is dropped whole or not at all: few characters, never half an escape sequence."""

_MOST_AHEAD = 1000
"""Characters typed during an answer that are kept for after it."""

_PROGRESS_EVERY_S = 5.0
_LONGEST_BACK_OFF_S = 60.0
_BRACE_AT_START = re.compile(r"(^|\n)\{")


class Put(Protocol):
    """Queues bytes for the line; those that ``may_drop`` are taken back by a drop."""

    def __call__(self, data: bytes, *, may_drop: bool = False) -> None:
        """Queue ``data``."""
        ...


class Console:
    """One person at a time on one line.

    Args:
        client: of the daemon.
        config: of serial lines.
        put: queues bytes for the line.
        drop: forgets queued bytes that may be dropped.
        name: of the line.
        inbox: folder to name when there is no document.
        clock: time.
    """

    def __init__(
        self,
        client: Client,
        config: SerialConfig,
        put: Put,
        drop: Callable[[], object],
        name: str,
        inbox: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._config = config
        self._lang = config.language
        self._put = put
        self._drop = drop
        self._name = name
        self._inbox = inbox
        self._clock = clock
        self._lock = threading.RLock()
        self._codec = TextCodec(config.encoding)
        self._state: State = "asleep"
        self._editor = LineEditor()
        self._chat: Chat | None = None
        self._worker: threading.Thread | None = None
        self._at_line_start = True
        self._progress = ""
        self._next_progress = 0.0
        self._probe_ends = 0.0
        self._last_key = 0.0
        self._wrong_pins = 0
        self._pin_refused_until = 0.0
        self._shown_pin = ""
        self._ahead = ""

    @property
    def is_line_empty(self) -> bool:
        """Whether nothing of a line has been typed, so that a frame may begin."""
        return self._state in ("asleep", "busy", "probing") or not self._editor.text

    # What the port's thread calls

    def feed(self, data: bytes) -> None:
        """Take what a person typed."""
        with self._lock:
            text = self._codec.decode(data)
            self._last_key = self._clock.monotonic()
            self._take(text)

    def _take(self, text: str) -> None:
        while text:
            if self._state == "busy":
                if "\x03" in text:
                    self._interrupt()
                else:
                    self._ahead = (self._ahead + text)[:_MOST_AHEAD]
                return
            # One line at a time: what follows an Enter waits for the answer.
            ends = [at for at in (text.find("\r"), text.find("\n")) if at >= 0]
            end = min(ends) + 1 if ends else len(text)
            self._take_part(text[:end])
            text = text[end:]

    def _take_part(self, text: str) -> None:
        if self._state == "asleep":
            if text.endswith(("\r", "\n")):
                self._wake()
            return
        if self._state == "pin":
            self._feed_pin(text)
            return
        for event in self._editor.feed(text):
            if isinstance(event, CursorAt):
                self._answered_probe(event)
            elif self._state == "probing":
                continue
            elif isinstance(event, Entered):
                self._entered(event.text)
            elif isinstance(event, Interrupted):
                self._editor.show()
            elif isinstance(event, Left):
                self._sleep("chat_bye")
        self._flush_editor()

    def tick(self) -> None:
        """Note that time has passed; called several times a second."""
        with self._lock:
            now = self._clock.monotonic()
            if self._state == "probing" and now >= self._probe_ends:
                self._editor.is_dumb = True
                self._begin()
            is_idle = now - self._last_key > self._config.idle_s
            if is_idle and self._state in ("ready", "pin"):
                self._sleep("serial_idle")

    def frame(self, data: bytes) -> None:
        """Put a machine's frame on the line, never into the middle of a person's line."""
        with self._lock:
            is_editing = self._state == "ready"
            if is_editing:
                self._editor.hide()
                self._flush_editor()
            elif not self._at_line_start:
                self._write("\n")
            if self._state != "asleep":
                # What erased the person's line must not stand in the machine's.
                self._put(b"\r")
            self._put(data)
            if is_editing:
                self._editor.show()
                self._flush_editor()

    def close(self) -> None:
        """Stop a running answer and forget the chat; the line may be gone already."""
        with self._lock:
            worker, chat = self._worker, self._chat
            if chat is not None:
                chat.stop()
        if worker is not None:
            worker.join()
        with self._lock:
            self._forget()
            self._state = "asleep"
            self._codec.reset()

    # Waking and sleeping

    def _wake(self) -> None:
        self._state = "probing"
        self._probe_ends = self._clock.monotonic() + PROBE_S
        self._editor = LineEditor(cols=80, rows=24, complete=self._completions)
        self._write(_PROBE)

    def _answered_probe(self, event: CursorAt) -> None:
        self._editor.resize(event.col, event.row)
        if self._state == "probing":
            self._begin()

    def _begin(self) -> None:
        """Greet, now that it is known what the terminal can do."""
        if not self._editor.is_dumb:
            self._write(_PASTE_ON)
        self._write("\n" + say("serial_banner", self._lang, name=self._name) + "\n")
        if self._config.pin is not None:
            self._state = "pin"
            self._shown_pin = ""
            self._write(say("serial_pin", self._lang) + " ")
            return
        self._greet()

    def _greet(self) -> None:
        self._chat = Chat(
            self._client,
            Screen(self._piece, self._show_progress, self._clear_progress, self._flow),
            lang=self._lang,
            inbox=self._inbox,
            remember=False,
        )
        self._write(say("chat_hello", self._lang) + "\n")
        self._ready()

    def _ready(self) -> None:
        self._state = "ready"
        self._editor.show()
        self._flush_editor()

    def _sleep(self, reason: str) -> None:
        """End the chat; the next Enter begins another."""
        if self._editor.is_dumb:
            self._write("\n")
        else:
            # What stood on the screen is nobody else's business.
            self._write(_PASTE_OFF + "\x1b[H\x1b[2J")
        self._write(say(reason, self._lang) + "\n")
        self._forget()
        self._state = "asleep"
        self._codec.reset()

    def _forget(self) -> None:
        chat, self._chat = self._chat, None
        self._ahead = ""
        self._editor.clear()
        self._editor.take_output()
        if chat is not None:
            try:
                chat.forget()
            except ApplianceError as error:
                # "remember" is off, so the daemon keeps nothing even if it cannot be asked now.
                _log.info("%s: %s", self._name, error)

    def _feed_pin(self, text: str) -> None:
        for char in text:
            if char in "\r\n":
                self._try_pin()
                if self._state != "pin":
                    return
            elif char in "\x7f\x08":
                if self._shown_pin:
                    self._shown_pin = self._shown_pin[:-1]
                    self._write("\b \b")
            elif char.isprintable() and len(self._shown_pin) < 64:
                self._shown_pin += char
                self._write("*")

    def _try_pin(self) -> None:
        typed, self._shown_pin = self._shown_pin, ""
        if not typed:
            return
        now = self._clock.monotonic()
        wanted = self._config.pin or ""
        if now < self._pin_refused_until:
            wait_s = round(self._pin_refused_until - now) + 1
            self._write("\n" + say("serial_pin_wait", self._lang, wait_s=wait_s) + "\n")
        elif hmac.compare_digest(typed.encode(), wanted.encode()):
            self._wrong_pins = 0
            self._write("\n")
            self._greet()
            return
        else:
            self._wrong_pins += 1
            back_off_s = min(2.0 ** (self._wrong_pins - 1), _LONGEST_BACK_OFF_S)
            self._pin_refused_until = now + back_off_s
            self._write("\n" + say("serial_pin_wrong", self._lang) + "\n")
        self._write(say("serial_pin", self._lang) + " ")

    # One message

    def _entered(self, text: str) -> None:
        self._flush_editor()
        self._at_line_start = True
        message = text.strip()
        chat = self._chat
        if not message or chat is None:
            self._editor.show()
            return
        self._state = "busy"
        self._worker = threading.Thread(
            target=self._work, args=(chat, message), name=f"serial-answer-{self._name}"
        )
        self._worker.start()

    def _work(self, chat: Chat, message: str) -> None:
        goes_on = chat.handle(message)
        with self._lock:
            self._worker = None
            if self._state != "busy" or self._chat is not chat:
                return
            if not self._at_line_start:
                self._write("\n")
            if goes_on:
                self._ready()
                ahead, self._ahead = self._ahead, ""
                self._take(ahead)
            else:
                self._sleep("chat_bye")

    def _interrupt(self) -> None:
        self._ahead = ""
        self._drop()
        # The end of bold text may be among what was dropped.
        self._write("^C\n" if self._editor.is_dumb else PLAIN + "^C\n")
        if self._chat is not None:
            self._chat.stop()

    def _completions(self, text: str) -> list[str]:
        return self._chat.completions(text) if self._chat is not None else []

    def _flow(self) -> Flow:
        return Flow(self._editor.cols, is_plain=self._editor.is_dumb)

    # Writing

    def _piece(self, text: str) -> None:
        """Take a piece of an answer, or a line of a command's result."""
        with self._lock:
            if self._state == "busy":
                self._write(text, may_drop=True)

    def _show_progress(self, text: str) -> None:
        with self._lock:
            now = self._clock.monotonic()
            if self._state != "busy" or text == self._progress or now < self._next_progress:
                return
            if self._editor.is_dumb:
                self._write(text + "\n")
                self._next_progress = now + _PROGRESS_EVERY_S
            else:
                self._write("\r" + text + "\x1b[K")
            self._progress = text

    def _clear_progress(self) -> None:
        with self._lock:
            if self._progress and not self._editor.is_dumb:
                self._write("\r\x1b[K")
                self._at_line_start = True
            self._progress = ""

    def _write(self, text: str, *, may_drop: bool = False) -> None:
        """Queue text for the terminal; a line of it never looks like a frame."""
        if not text:
            return
        if self._at_line_start and text.startswith("{"):
            text = " " + text
        text = _BRACE_AT_START.sub(lambda found: found[1] + " {" if found[1] else found[0], text)
        self._at_line_start = text.endswith("\n")
        text = text.replace("\n", "\r\n")
        for piece in _PIECES.findall(text):
            self._put(self._codec.encode(piece), may_drop=may_drop)

    def _flush_editor(self) -> None:
        output = self._editor.take_output()
        if output:
            self._put(self._codec.encode(output))
            self._at_line_start = output.endswith("\n")
