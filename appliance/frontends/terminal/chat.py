"""A chat with the running daemon: what is asked, what each command does, what is shown."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.client import Answering, Client
from appliance.errors import ApplianceError, FrontendError
from appliance.frontends.terminal import commands, screens
from appliance.frontends.terminal.flow import Flow
from appliance.frontends.terminal.layout import clean, table
from appliance.frontends.terminal.turn import run_turn
from appliance.messages import explain
from appliance.messages.screen import say

_log = logging.getLogger(__name__)

_SHOWN_HITS = 5


class Screen:
    """Where a chat writes: finished lines, streamed pieces, and a line that is redrawn.

    Args:
        write: shows text.
        progress: shows how far something is.
        clear_progress: takes that away.
        flow: makes the way of one message's text to the terminal as it is now.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        progress: Callable[[str], None],
        clear_progress: Callable[[], None],
        flow: Callable[[], Flow],
    ) -> None:
        self._write = write
        self.progress = progress
        self._clear_progress = clear_progress
        self._new_flow = flow
        self._flow = flow()

    def begin(self) -> None:
        """Note that a message begins; the terminal may have another size than before."""
        self._flow = self._new_flow()

    def line(self, text: str = "") -> None:
        """Write a line."""
        self._clear_progress()
        self._write(self._flow.line(text))

    def piece(self, text: str) -> None:
        """Write a piece of an answer."""
        self._clear_progress()
        self._write(self._flow.answer(text))

    def end(self) -> None:
        """Take the redrawn line away and write what was held back."""
        self._clear_progress()
        self._write(self._flow.flush())


class Chat:
    """The state of one chat.

    Args:
        client: of the daemon.
        screen: where everything is shown.
        lang: language of the screen.
        inbox: folder to name when there is no document.
        remember: whether the daemon may keep the conversation.
    """

    def __init__(
        self, client: Client, screen: Screen, *, lang: str, inbox: str, remember: bool
    ) -> None:
        self._client = client
        self._screen = screen
        self._lang = lang
        self._inbox = inbox
        self._remember = remember
        self._name = f"chat-{secrets.token_hex(4)}"
        self._conversation: str | None = None
        self._collection: str | None = None
        self._mode: str | None = None
        self._answer_lang: str | None = None
        self._is_verbose = False
        self._question: str | None = None
        self._citations: Sequence[Mapping[str, Any]] = ()
        self._running: Answering | None = None
        self._is_stopped = False
        self._actions: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "docs": self._docs,
            "use": self._use,
            "sources": self._sources,
            "open": self._open,
            "why": self._why,
            "strict": self._strict,
            "lang": self._language,
            "retry": self._retry,
            "status": self._status,
            "verbose": self._verbose,
            "privacy": self._privacy,
        }

    def handle(self, text: str) -> bool:
        """Do what a line asks for; returns False when it says goodbye.

        Errors are shown, not raised. Ctrl-C (``KeyboardInterrupt``) stops an answer.
        """
        line = commands.parse(text)
        if line is None:
            return True
        if line == commands.Command("bye", ""):
            return False
        self._is_stopped = False
        self._screen.begin()
        try:
            if isinstance(line, commands.Ask):
                self._ask(line.text)
            elif isinstance(line, commands.Unknown):
                typed, near = clean(line.typed), line.suggestion
                self._say("chat_unknown", name=typed, suggestion=near)
            elif line.name == "bye":
                return False
            else:
                self._actions[line.name](line.argument)
        except KeyboardInterrupt:
            self._screen.line()
            self._say("stopped")
        except ApplianceError as error:
            if self._is_stopped:
                self._screen.line()
                self._say("stopped")
                return True
            self._screen.line(clean(str(explain(error, "zh" if self._lang == "zh" else "en"))))
        finally:
            self._screen.end()
        return True

    def stop(self) -> None:
        """Stop the answer that another thread is waiting for in ``handle``."""
        self._is_stopped = True
        if self._running is not None:
            self._running.stop()

    def forget(self) -> None:
        """Forget this conversation, here and in the daemon."""
        conversation, self._conversation = self._conversation, None
        self._question, self._citations = None, ()
        if conversation is not None:
            self._client.delete(f"/api/conversations/{conversation}")

    def completions(self, text: str) -> list[str]:
        """Return the lines that ``text`` may become: commands, and collections after ``/use``."""
        try:
            return commands.completions(text, self._collections)
        except ApplianceError as error:
            # A Tab key has no place for an error; what is entered next says it.
            _log.info("no collections to complete: %s", error)
            return []

    # ---------------------------------------------------------------------------------------------

    def _ask(self, question: str) -> None:
        self._question = question
        options: dict[str, str | bool | None] = {
            "conversation": self._conversation,
            "collection": self._collection,
            "mode": self._mode,
            "lang": self._answer_lang,
            "client": self._name,
            "remember": self._remember,
        }
        try:
            answer = run_turn(
                self._client,
                question,
                options,
                lang=self._lang,
                show=self._screen.progress,
                piece=self._screen.piece,
                evidence=self._evidence,
                started=self._started,
            )
        finally:
            self._running = None
        self._conversation = answer["conversation"]
        self._citations = answer["citations"]
        self._screen.line()
        for notice in answer["notices"]:
            self._screen.line(clean(notice["text"]))
        if answer["finish_reason"] == "length":
            self._say("cut")
        if self._citations:
            self._screen.line()
            self._screen.line(screens.citations_screen(self._citations, self._lang))
        if self._is_verbose:
            self._screen.line(screens.stats_line(answer, self._lang))

    def _started(self, answer: Answering) -> None:
        self._running = answer
        if self._is_stopped:
            # The stop came before there was an answer to stop.
            answer.stop()

    def _evidence(self, citations: Sequence[Mapping[str, Any]]) -> None:
        self._citations = citations
        if citations:
            self._screen.line(screens.evidence_screen(citations, self._lang))
            self._screen.line()

    def _collections(self) -> list[str]:
        names: list[str] = self._client.get("/api/documents")["collections"]
        return names

    def _help(self, _argument: str) -> None:
        rows = [
            [commands.shown(name, self._lang), say(f"help_{name}", self._lang)]
            for name in commands.COMMANDS
        ]
        for row in table(rows):
            self._screen.line(row)
        self._say("help_multi_line")

    def _docs(self, _argument: str) -> None:
        files = self._client.get("/api/files")["files"]
        self._screen.line(screens.documents_screen(files, self._lang, self._inbox))
        names = self._collections()
        if names:
            self._say("chat_collections", names=", ".join(map(clean, names)))

    def _use(self, argument: str) -> None:
        if argument and argument not in self._collections():
            raise FrontendError("collection_not_found", name=argument)
        self._collection = argument or None
        if argument:
            self._say("chat_using", name=clean(argument))
        else:
            self._say("chat_using_all")

    def _sources(self, _argument: str) -> None:
        if self._citations:
            self._screen.line(screens.citations_screen(self._citations, self._lang))
        else:
            self._say("chat_no_sources")

    def _open(self, argument: str) -> None:
        wanted = argument.strip("[]") or "1"
        chosen = [item for item in self._citations if str(item["n"]) == wanted]
        if not chosen:
            raise FrontendError("passage_not_shown", n=clean(wanted))
        citation = chosen[0]
        found = self._client.get(f"/api/documents/{citation['document']}/passages")
        self._screen.line(f"--- {screens.place(citation, self._lang)}")
        for passage in found["passages"]:
            if _is_at(passage, citation):
                self._screen.line(clean(passage["text"]))
        self._screen.line("---")

    def _why(self, _argument: str) -> None:
        if self._question is None:
            self._say("chat_nothing_to_retry")
            return
        query: dict[str, str | int | bool | None] = {
            "q": self._question,
            "k": _SHOWN_HITS,
            "collection": self._collection,
        }
        found = self._client.get("/api/search", query)
        self._screen.line(screens.hits_screen(found, self._lang))
        self._screen.line(screens.explain_screen(found, self._lang))

    def _strict(self, argument: str) -> None:
        wanted = {"on": "strict", "开": "strict", "": "strict", "off": "open", "关": "open"}
        mode = wanted.get(argument.lower())
        if mode is None:
            raise FrontendError("bad_request", field="/strict", allowed="on, off")
        self._mode = mode
        self._say("chat_strict_on" if mode == "strict" else "chat_strict_off")

    def _language(self, argument: str) -> None:
        names = {"zh": "zh", "中文": "zh", "en": "en", "英文": "en", "auto": None, "": None}
        if argument.lower() not in names:
            raise FrontendError("bad_request", field="/lang", allowed="zh, en, auto")
        self._answer_lang = names[argument.lower()]
        self._say("chat_lang", name=self._answer_lang or "auto")

    def _retry(self, _argument: str) -> None:
        if self._question is None:
            self._say("chat_nothing_to_retry")
        else:
            self._ask(self._question)

    def _status(self, _argument: str) -> None:
        status = self._client.get("/api/status")
        self._screen.line(screens.status_screen(status, self._lang, self._client.url))

    def _verbose(self, _argument: str) -> None:
        self._is_verbose = not self._is_verbose
        self._say("chat_verbose_on" if self._is_verbose else "chat_verbose_off")

    def _privacy(self, _argument: str) -> None:
        self.forget()
        self._say("chat_forgotten")

    def _say(self, code: str, **facts: object) -> None:
        self._screen.line(say(code, self._lang, **facts))


def _is_at(passage: Mapping[str, Any], citation: Mapping[str, Any]) -> bool:
    """Whether a passage is part of the place that a citation names."""
    if any(passage[key] != citation[key] for key in ("page", "heading", "place")):
        return False
    if citation["line_from"] is None or passage["line_from"] is None:
        return True
    return bool(
        passage["line_from"] <= citation["line_to"] and citation["line_from"] <= passage["line_to"]
    )
