"""The routes: OpenAI's API under ``/v1``, the box's own under ``/api``, ``/healthz``.

docs/http-api.md describes every route. Nothing here decides policy: requests are taken apart, the
core is asked, what it says is put into the shape the route speaks.
"""

from __future__ import annotations

import asyncio
import datetime
import io
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.core import (
    DOCUMENTS_MODEL,
    Core,
    DocumentRow,
    FileRow,
    GenerationEvent,
    PassageRow,
    Question,
    TurnEvent,
)
from appliance.core import Scope as SearchScope
from appliance.errors import (
    ApplianceError,
    BadRequestError,
    EngineStoppedError,
    FrontendError,
    LimitExceededError,
    NotFoundError,
)
from appliance.frontends.http import fields, kiosk, openai
from appliance.frontends.http.crossing import Crossing
from appliance.frontends.http.guard import Guard, is_loopback
from appliance.frontends.http.replies import error_reply, reply
from appliance.frontends.http.status import status_of
from appliance.frontends.http.streams import AnswerReply
from appliance.frontends.http.tellers import KnowledgeTeller, ModelTeller, TurnTeller
from appliance.frontends.http.visitors import COOKIE, SESSION_S, Visitors
from appliance.messages import Lang, sentence
from appliance.system.clock import Clock
from appliance.system.net import lan_address
from appliance.text import ime

_log = logging.getLogger(__name__)


class _RowConvertor(IntegerConvertor):
    """A number in a path that the store can hold: SQLite's integers end at 2^63 (19 digits)."""

    regex = "[0-9]{1,18}"


register_url_convertor("row", _RowConvertor())

_MAX_BODY = 32 * 1024 * 1024
"""Largest JSON body; 2048 long passages to embed are about 8 MB."""

BODY_PATIENCE_S = 20.0
"""Seconds a body may take beside what its bytes need at ``_LEAST_BYTES_PER_S``."""

_LEAST_BYTES_PER_S = 2048

_MOST_QUOTE = 1000

_PINYIN = re.compile(f"[a-z']{{0,{ime.MOST_LETTERS}}}")

_MULTIPART_OVERHEAD = 64 * 1024

Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(
    core: Core,
    crossing: Crossing,
    guard: Guard,
    visitors: Visitors,
    clock: Clock,
    *,
    default_lang: Lang,
    rescan: Callable[[], None],
) -> ASGIApp:
    """Return the application.

    Args:
        core: what the routes ask.
        crossing: worker threads.
        guard: checks every request first.
        visitors: lets people with a phone in.
        clock: for timestamps.
        default_lang: language of sentences when the request names none.
        rescan: compares inbox and store now, so that "nothing left to do" is true when said.
    """
    routes = Routes(core, crossing, visitors, clock, default_lang, rescan)
    app = Starlette(
        routes=routes.table(),
        exception_handlers={
            ApplianceError: routes.on_error,
            HTTPException: routes.on_http_error,
            Exception: routes.on_surprise,
        },
    )
    app.router.redirect_slashes = False
    return _Guarded(app, guard, default_lang, core.config.http.max_upload_bytes)


class _Guarded:
    """Checks key, host and origin before anything is read, then size and pace of what comes in."""

    def __init__(self, app: ASGIApp, guard: Guard, default_lang: Lang, max_upload: int) -> None:
        self._app = app
        self._guard = guard
        self._default_lang = default_lang
        self._max_upload = max_upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        path, lang = scope["path"], language_of(headers, self._default_lang)
        is_upload = headers.get("content-type", "").startswith("multipart/")
        limit = self._max_upload + _MULTIPART_OVERHEAD if is_upload else _MAX_BODY
        error = self._guard.refusal(scope["method"], path, headers, scope["client"][0])
        length = headers.get("content-length", "0")
        if error is None and length.isdigit() and int(length) > limit:
            error = LimitExceededError("body_too_large", limit=limit)
        if error is not None:
            await error_reply(error, path, lang)(scope, receive, send)
            return
        n_read = 0
        is_whole = False
        started: float | None = None

        async def counted() -> Message:
            nonlocal n_read, is_whole, started
            if is_whole:
                # Only that the client went away can come now.
                return await receive()
            now = asyncio.get_running_loop().time()
            started = now if started is None else started
            patience_s = BODY_PATIENCE_S + n_read / _LEAST_BYTES_PER_S - (now - started)
            try:
                message = await asyncio.wait_for(receive(), max(patience_s, 0))
            except asyncio.TimeoutError as error:
                raise LimitExceededError("body_too_slow", n_read=n_read) from error
            n_read += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if n_read > limit:
                raise LimitExceededError("body_too_large", limit=limit)
            return message

        await self._app(scope, counted, send)


class Routes:
    """One method a route."""

    def __init__(
        self,
        core: Core,
        crossing: Crossing,
        visitors: Visitors,
        clock: Clock,
        default_lang: Lang,
        rescan: Callable[[], None],
    ) -> None:
        self._core = core
        self._crossing = crossing
        self._visitors = visitors
        self._clock = clock
        self._default_lang = default_lang
        self._rescan = rescan
        self._created = int(clock.time())
        self._started = clock.monotonic()

    def table(self) -> list[Route]:
        """Return every route with its one method."""
        rows: list[tuple[str, str, Endpoint]] = [
            *(("GET", path, self.show) for path in kiosk.PAGES),
            ("GET", "/kiosk/{name}", self.page_file),
            ("GET", "/join", self.join),
            ("GET", "/api/join", self.joining),
            ("GET", "/api/join.svg", self.joining_code),
            ("GET", "/api/kiosk", self.kiosk),
            ("GET", "/api/pinyin", self.pinyin),
            ("GET", "/api/suggestions", self.suggestions),
            ("GET", "/healthz", self.health),
            ("GET", "/v1/models", self.models),
            ("GET", "/v1/models/{name:path}", self.model),
            ("POST", "/v1/chat/completions", self.chat_completions),
            ("POST", "/v1/completions", self.completions),
            ("POST", "/v1/embeddings", self.embeddings),
            ("GET", "/metrics", self.metrics),
            ("GET", "/api/status", self.status),
            ("POST", "/api/ask", self.ask),
            ("GET", "/api/search", self.search),
            ("GET", "/api/documents", self.documents),
            ("POST", "/api/documents", self.upload),
            ("GET", "/api/documents/{id:row}", self.document),
            ("GET", "/api/documents/{id:row}/passages", self.passages),
            ("GET", "/api/documents/{id:row}/page/{n:row}", self.page),
            ("DELETE", "/api/documents/{id:row}", self.remove_document),
            ("POST", "/api/documents/{id:row}/reindex", self.reindex_document),
            ("GET", "/api/files", self.files),
            ("POST", "/api/files/remove", self.remove_file),
            ("POST", "/api/files/reindex", self.reindex_files),
            ("GET", "/api/kb/stats", self.stats),
            ("GET", "/api/kb/progress", self.progress),
            ("POST", "/api/kb/rescan", self.rescan),
            ("POST", "/api/kb/check", self.check),
            ("POST", "/api/kb/vacuum", self.vacuum),
            ("GET", "/api/models", self.model_files),
            ("POST", "/api/models/use", self.use_model),
            ("GET", "/api/selftest", self.selftest),
            ("POST", "/api/selftest", self.start_selftest),
            ("DELETE", "/api/selftest", self.cancel_selftest),
            ("GET", "/api/conversations", self.conversations),
            ("DELETE", "/api/conversations", self.forget_conversations),
            ("GET", "/api/conversations/{id}", self.conversation),
            ("DELETE", "/api/conversations/{id}", self.forget_conversation),
        ]
        by_path: dict[str, dict[str, Endpoint]] = {}
        for method, path, endpoint in rows:
            by_path.setdefault(path, {})[method] = endpoint
        return [
            Route(path, _by_method(endpoints), methods=list(endpoints))
            for path, endpoints in by_path.items()
        ]

    # ---------------------------------------------------------------------------------------------
    # the page

    async def show(self, request: Request) -> Response:
        """Show the page of this address."""
        return await self._crossing.call(kiosk.page_file, kiosk.PAGES[request.url.path])

    async def page_file(self, request: Request) -> Response:
        """Return one file that the page is made of."""
        return await self._crossing.call(kiosk.page_file, request.path_params["name"])

    async def join(self, request: Request) -> Response:
        """Let in who scanned the code on the screen, and show the page."""
        session = self._visitors.admit(request.query_params.get("t", ""))
        if session is None:
            raise FrontendError("join_refused")
        answer = Response(status_code=HTTPStatus.SEE_OTHER, headers={"location": "/"})
        answer.set_cookie(COOKIE, session, max_age=int(SESSION_S), httponly=True, samesite="lax")
        return answer

    async def joining(self, request: Request) -> Response:
        """Return the address that lets a phone in, null while the box is not on the network."""
        return reply({"url": self._join_url(request)})

    async def joining_code(self, request: Request) -> Response:
        """Return that address as a QR code."""
        url = self._join_url(request)
        if url is None:
            raise NotFoundError("route_not_found", path=request.url.path)
        import segno

        picture = io.BytesIO()
        segno.make(url, error="m").save(picture, kind="svg", scale=4, border=4, light="#fff")
        return Response(
            picture.getvalue(), media_type="image/svg+xml", headers={"cache-control": "no-store"}
        )

    def _join_url(self, request: Request) -> str | None:
        host = self._core.config.http.host
        if is_loopback(host):
            return None
        address = lan_address() if host in ("0.0.0.0", "::") else host  # noqa: S104
        if address is None:
            return None
        port = request.scope["server"][1]
        return f"http://{address}:{port}/join?t={self._visitors.token()}"

    async def kiosk(self, _request: Request) -> Response:
        """Return what the page is told to do."""
        return reply(asdict(self._core.config.kiosk))

    async def pinyin(self, request: Request) -> Response:
        """Return what may be meant by letters of pinyin; the first call reads the word list."""
        query = dict(request.query_params)
        letters = query.get("q", "").lower()
        if not _PINYIN.fullmatch(letters):
            raise fields.wrong("q", f"at most {ime.MOST_LETTERS} letters of pinyin and '")
        n_wanted = _query_whole(query, "n", 9, low=1, high=50)
        is_fuzzy = _query_whole(query, "fuzzy", 0, low=0, high=1) == 1
        found = await self._crossing.call(ime.candidates, letters, n_wanted, is_fuzzy=is_fuzzy)
        return reply({"candidates": [asdict(candidate) for candidate in found]})

    async def suggestions(self, request: Request) -> Response:
        """Return questions that the loaded documents can answer."""
        n_wanted = _query_whole(dict(request.query_params), "n", 3, low=1, high=20)
        found = await self._crossing.call(
            kiosk.suggestions, self._core, self._lang(request), n_wanted
        )
        return reply({"suggestions": found})

    # ---------------------------------------------------------------------------------------------
    # OpenAI

    async def models(self, _request: Request) -> Response:
        """List the model that answers, ``documents``, and the embedder."""
        return reply(openai.model_list(self._model_names(), self._created))

    async def model(self, request: Request) -> Response:
        """Show one model."""
        name = request.path_params["name"]
        if name not in self._model_names():
            raise self._unknown_model(name)
        return reply(openai.model_object(name, self._created))

    async def chat_completions(self, request: Request) -> Response:
        """Answer with the bare model, or from the documents."""
        call = openai.parse_chat(await self._body(request), _client_of(request))
        return self._completion(call, request, is_chat=True)

    async def completions(self, request: Request) -> Response:
        """Continue a text with the bare model."""
        call = openai.parse_completion(await self._body(request), _client_of(request))
        return self._completion(call, request, is_chat=False)

    def _completion(self, call: openai.Call, request: Request, *, is_chat: bool) -> Response:
        shape = openai.Shape(
            reply_id=f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            created=int(self._clock.time()),
            model=call.model,
            is_chat=is_chat,
            wants_usage=call.wants_usage,
            wants_logprobs=call.request.top_logprobs is not None,
        )
        lang = self._lang(request)
        if is_chat and call.model == DOCUMENTS_MODEL:
            openai.demand_plain(call)
            question, history = openai.turns_of(call.request.messages)
            asked = Question(
                text=question,
                history=history,
                collection=self._collection(call.collection),
                mode=call.mode,
                lang=call.lang,
                client=call.request.client,
                # The client keeps the conversation and sends it along; the box keeps nothing.
                remember=False,
            )
            return AnswerReply[TurnEvent](
                self._crossing,
                lambda: self._core.ask(asked),
                KnowledgeTeller(shape),
                is_stream=call.is_stream,
                lang=lang,
            )
        self._demand_generation_model(call.model)
        return AnswerReply[GenerationEvent](
            self._crossing,
            lambda: self._core.generate(call.request),
            ModelTeller(shape, call),
            is_stream=call.is_stream,
            lang=lang,
        )

    async def embeddings(self, request: Request) -> Response:
        """Return one unit vector per text."""
        call = openai.parse_embedding(await self._body(request))
        names = self._embedder_names()
        if call.model not in names:
            raise NotFoundError("api_model_unknown", name=call.model, known=", ".join(names))

        def embed() -> tuple[npt.NDArray[np.float32], int]:
            n_tokens = sum(self._core.count_embed_tokens(text) for text in call.texts)
            return self._core.embed(call.texts, call.kind, call.dimensions), n_tokens

        vectors, n_tokens = await self._crossing.call_slowly(embed)
        body = openai.embeddings(vectors, call.model, n_tokens, as_base64=call.is_base64)
        return reply(body)

    def _generation_names(self) -> list[str]:
        """Return the names the answering model goes by: its file's, and the configured one."""
        return _names(self._core.engine_status().model, self._core.switch.name)

    def _embedder_names(self) -> list[str]:
        return _names(self._core.engine_status().embedder, self._core.config.models.embedding)

    def _model_names(self) -> list[str]:
        return list(
            dict.fromkeys([*self._generation_names(), DOCUMENTS_MODEL, *self._embedder_names()])
        )

    def _demand_generation_model(self, name: str) -> None:
        if name in self._generation_names():
            return
        status = self._core.engine_status()
        if status.state == "loading":
            # Its file's name is known only once it is loaded.
            raise EngineStoppedError(state=status.state)
        raise self._unknown_model(name)

    def _unknown_model(self, name: str) -> NotFoundError:
        known = ", ".join(self._model_names())
        return NotFoundError("api_model_unknown", name=name, known=known)

    # ---------------------------------------------------------------------------------------------
    # questions and search

    async def ask(self, request: Request) -> Response:
        """Answer from the documents: a stream of events, or one object with ``stream: false``."""
        body = await self._body(request)
        question = Question(
            text=fields.text(body, "question"),
            conversation=fields.optional_text(body, "conversation"),
            collection=self._collection(fields.optional_text(body, "collection")),
            mode=fields.one_of(body, "mode", ("strict", "open")),
            lang=fields.one_of(body, "lang", ("zh", "en")),
            client=fields.optional_text(body, "client") or _client_of(request),
            remember=fields.flag(body, "remember", default=True),
        )
        return AnswerReply[TurnEvent](
            self._crossing,
            lambda: self._core.ask(question),
            TurnTeller(),
            is_stream=fields.flag(body, "stream", default=True),
            lang=self._lang(request),
        )

    async def search(self, request: Request) -> Response:
        """Return passages for ``q``; works while the models load."""
        query = dict(request.query_params)
        if not query.get("q", "").strip():
            raise fields.wrong("q", "a text to search for")
        k = _query_whole(query, "k", 8, low=1, high=100)
        collection = self._collection(query.get("collection"))
        scope = SearchScope(
            collection=collection,
            formats=tuple(part for part in query.get("type", "").lower().split(",") if part),
            path=query.get("path") or None,
            since=_query_day(query, "since"),
            until=_query_day(query, "until", is_end=True),
        )
        found = await self._crossing.call_slowly(self._core.search, query["q"], k=k, scope=scope)
        return reply(found.as_json())

    # ---------------------------------------------------------------------------------------------
    # documents and files

    async def documents(self, request: Request) -> Response:
        """List the documents that can be asked about."""
        lang = self._lang(request)
        rows = await self._crossing.call(self._core.documents)
        collections = await self._crossing.call(self._core.collections)
        return reply(
            {"documents": [_document(row, lang) for row in rows], "collections": collections}
        )

    async def document(self, request: Request) -> Response:
        """Show one document."""
        row = await self._crossing.call(self._core.document, request.path_params["id"])
        return reply(_document(row, self._lang(request)))

    async def passages(self, request: Request) -> Response:
        """Return a document's text, passage by passage."""
        document = request.path_params["id"]
        await self._crossing.call(self._core.document, document)
        rows = await self._crossing.call(self._core.passages, document)
        return reply({"document": document, "passages": [_passage(row) for row in rows]})

    async def page(self, request: Request) -> Response:
        """Show a page: a picture for PDF, else its text; ``q`` is marked where it stands."""
        query = request.query_params
        found = await self._crossing.call_slowly(
            self._core.page,
            request.path_params["id"],
            request.path_params["n"],
            query.get("q", "")[:_MOST_QUOTE],
            as_text=query.get("as") == "text",
        )
        headers = {
            "x-quote-located": "true" if found.is_located else "false",
            # Text of documents is never run.
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        }
        return Response(found.content, media_type=found.kind, headers=headers)

    async def upload(self, request: Request) -> Response:
        """Put a file into the inbox; it is read like any other that is dropped there."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise fields.wrong("content-type", "multipart/form-data")
        async with request.form(max_files=1, max_fields=4) as form:
            file, collection = form.get("file"), form.get("collection") or ""
            if not isinstance(file, UploadFile) or not file.filename:
                raise fields.wrong("file", "a file with a name")
            if not isinstance(collection, str):
                raise fields.wrong("collection", "a string")
            path = await self._crossing.call_slowly(
                self._core.upload, file.filename, file.file, collection
            )
        return reply({"path": path}, HTTPStatus.CREATED)

    async def remove_document(self, request: Request) -> Response:
        """Forget a document under all its names; the files stay in the folder."""
        return await self._for_each_path(request, self._core.remove)

    async def reindex_document(self, request: Request) -> Response:
        """Read a document again under all its names."""
        return await self._for_each_path(request, self._core.reindex)

    async def _for_each_path(self, request: Request, act: Callable[[str], FileRow]) -> Response:
        row = await self._crossing.call(self._core.document, request.path_params["id"])
        for path in row.paths:
            await self._crossing.call(act, path)
        return reply({"paths": list(row.paths)})

    async def files(self, request: Request) -> Response:
        """List every file in the inbox with its state, and why it failed."""
        lang = self._lang(request)
        rows = await self._crossing.call(self._core.files)
        documents = {row.id: row for row in await self._crossing.call(self._core.documents)}
        return reply(
            {"files": [_file(row, documents.get(row.document_id or 0), lang) for row in rows]}
        )

    async def remove_file(self, request: Request) -> Response:
        """Forget one file's text; the file stays in the folder."""
        path = fields.text(await self._body(request), "path")
        row = await self._crossing.call(self._core.remove, path)
        return reply({"paths": [row.display]})

    async def reindex_files(self, request: Request) -> Response:
        """Read one file again, or all."""
        body = await self._body(request)
        if fields.flag(body, "vectors", default=False):
            n_passages = await self._crossing.call_slowly(self._core.reembed)
            return reply({"n_files": 0, "n_passages": n_passages})
        if fields.flag(body, "all", default=False):
            n_files = await self._crossing.call(self._core.reindex_all)
            return reply({"n_files": n_files})
        row = await self._crossing.call(self._core.reindex, fields.text(body, "path"))
        return reply({"paths": [row.display], "n_files": 1})

    # ---------------------------------------------------------------------------------------------
    # knowledge base, conversations, state

    async def stats(self, request: Request) -> Response:
        """Count documents, passages, vectors, and say what failed."""
        lang = self._lang(request)
        stats = await self._crossing.call(self._core.stats)
        failed = [
            {
                "path": row["path"],
                "code": row["code"],
                "reason": str(sentence(row["code"], lang, row["facts"])),
            }
            for row in stats["failed"]
        ]
        return reply({**stats, "failed": failed})

    async def progress(self, _request: Request) -> Response:
        """Say how far reading and embedding are."""
        return reply(asdict(await self._crossing.call(self._core.progress)))

    async def rescan(self, _request: Request) -> Response:
        """Compare the inbox with the store now."""
        await self._crossing.call_slowly(self._rescan)
        return reply(asdict(await self._crossing.call(self._core.progress)))

    async def check(self, _request: Request) -> Response:
        """Look for inconsistencies in the store."""
        return reply({"problems": await self._crossing.call_slowly(self._core.check)})

    async def vacuum(self, _request: Request) -> Response:
        """Give freed space back to the disk."""
        before, after = await self._crossing.call_slowly(self._core.vacuum)
        return reply({"bytes_before": before, "bytes_after": after})

    async def model_files(self, request: Request) -> Response:
        """List the models, which one answers, and how far a change is."""
        return reply(await self._crossing.call(self._models, self._lang(request)))

    async def use_model(self, request: Request) -> Response:
        """Begin to answer with another model."""
        name = fields.text(await self._body(request), "name")
        await self._crossing.call_slowly(self._core.switch.start, name)
        found = await self._crossing.call(self._models, self._lang(request))
        return reply(found, HTTPStatus.ACCEPTED)

    def _models(self, lang: Lang) -> dict[str, Any]:
        change = self._core.switch.state()
        if change["error"] is not None:
            code, facts = change["error"]
            change["error"] = sentence(code, lang, facts).as_json()
        rows = [
            {
                "name": info.name,
                "use": info.use,
                "is_here": info.path is not None,
                "bytes": info.n_bytes,
                "licence": info.licence,
                "about": info.about_zh if lang == "zh" else info.about_en,
            }
            for info in self._core.switch.models()
        ]
        return {"current": self._core.switch.name, "change": change, "models": rows}

    async def selftest(self, _request: Request) -> Response:
        """Say how far the self-test is, and what the last two found."""
        return reply(await self._crossing.call(self._core.selftest.state))

    async def start_selftest(self, request: Request) -> Response:
        """Begin to question the box about its own documents."""
        n = fields.whole(await self._body(request), "questions", 1, 500) or 20
        await self._crossing.call_slowly(self._core.selftest.start, n)
        return reply(await self._crossing.call(self._core.selftest.state), HTTPStatus.ACCEPTED)

    async def cancel_selftest(self, _request: Request) -> Response:
        """End a running self-test."""
        await self._crossing.call_slowly(self._core.selftest.cancel)
        return reply(await self._crossing.call(self._core.selftest.state))

    async def conversations(self, _request: Request) -> Response:
        """List the conversations that are kept."""
        rows = await self._crossing.call(self._core.conversations.kept)
        return reply({"conversations": [asdict(row) for row in rows]})

    async def conversation(self, request: Request) -> Response:
        """Show the turns of one conversation."""
        turns = await self._crossing.call(
            self._core.conversations.history, request.path_params["id"]
        )
        return reply({"turns": [{"question": asked, "answer": said} for asked, said in turns]})

    async def forget_conversation(self, request: Request) -> Response:
        """Delete one conversation everywhere."""
        conversation = request.path_params["id"]
        await self._crossing.call(self._core.conversations.forget, conversation)
        return reply({"forgotten": 1})

    async def forget_conversations(self, _request: Request) -> Response:
        """Delete every conversation."""
        n_forgotten = await self._crossing.call(self._core.conversations.forget_all)
        return reply({"forgotten": n_forgotten})

    async def status(self, request: Request) -> Response:
        """Say how the box is."""
        uptime_s = self._clock.monotonic() - self._started
        return reply(
            await self._crossing.call(status_of, self._core, self._lang(request), uptime_s)
        )

    async def metrics(self, _request: Request) -> Response:
        """Say how the box is, for Prometheus."""
        # Nine megabytes that only those who watch the box need.
        from appliance.frontends.http.metrics import CONTENT_TYPE_LATEST, metrics_text

        uptime_s = self._clock.monotonic() - self._started
        status = await self._crossing.call(status_of, self._core, "en", uptime_s)
        return Response(metrics_text(status), media_type=CONTENT_TYPE_LATEST)

    async def health(self, _request: Request) -> Response:
        """Say that the daemon lives."""
        return reply({"status": "ok"})

    # ---------------------------------------------------------------------------------------------
    # errors and shared reading

    async def on_error(self, request: Request, error: Exception) -> Response:
        """Answer with an error of ours."""
        if not isinstance(error, ApplianceError):
            raise error
        return error_reply(error, request.url.path, self._lang(request))

    async def on_http_error(self, request: Request, error: Exception) -> Response:
        """Answer with what the framework refused (no such route, a bad form)."""
        if not isinstance(error, HTTPException):
            raise error
        if error.status_code == HTTPStatus.NOT_FOUND:
            found: ApplianceError = NotFoundError("route_not_found", path=request.url.path)
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            found = FrontendError(
                "method_not_allowed", path=request.url.path, method=request.method
            )
        else:
            found = BadRequestError("request_refused", cause=str(error.detail))
        answer = error_reply(found, request.url.path, self._lang(request))
        if error.headers:
            answer.headers.update(error.headers)
        return answer

    async def on_surprise(self, request: Request, error: Exception) -> Response:
        """Answer when something nobody expected was raised; the server logs it."""
        found = ApplianceError("internal", what=type(error).__name__)
        return error_reply(found, request.url.path, self._lang(request))

    async def _body(self, request: Request) -> dict[str, Any]:
        return fields.parse_object(await request.body())

    def _collection(self, name: str | None) -> str | None:
        if not name:
            return None
        if name not in self._core.collections():
            raise NotFoundError("collection_not_found", name=name)
        return name

    def _lang(self, request: Request) -> Lang:
        return language_of(request.headers, self._default_lang)


def language_of(headers: Headers, default: Lang) -> Lang:
    """Return the language that a request's ``Accept-Language`` wants first."""
    wanted = headers.get("accept-language", "").strip().lower()
    if wanted.startswith("zh"):
        return "zh"
    return "en" if wanted.startswith("en") else default


def _by_method(endpoints: dict[str, Endpoint]) -> Endpoint:
    async def choose(request: Request) -> Response:
        return await endpoints.get(request.method, endpoints.get("GET"))(request)  # type: ignore[misc]

    return choose


def _client_of(request: Request) -> str:
    """Return who asks, for fairness: the address, as people behind one share a queue place."""
    return request.client.host if request.client is not None else ""


def _names(loaded: str | None, configured: str) -> list[str]:
    is_path = "/" in configured or configured.endswith(".gguf")
    name = Path(configured).stem if is_path else configured
    return list(dict.fromkeys([loaded, name] if loaded else [name]))


def _query_whole(query: dict[str, str], field: str, default: int, *, low: int, high: int) -> int:
    value = query.get(field)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()) or not low <= int(value) <= high:
        raise fields.wrong(field, f"a whole number from {low} to {high}")
    return int(value)


def _query_day(query: dict[str, str], field: str, *, is_end: bool = False) -> float | None:
    """Return a day in local time as seconds since 1970: its begin, or its end."""
    value = query.get(field)
    if not value:
        return None
    try:
        day = datetime.date.fromisoformat(value)
    except ValueError as error:
        raise fields.wrong(field, "a day, e.g. 2026-09-01") from error
    if is_end:
        day += datetime.timedelta(days=1)
    return datetime.datetime.combine(day, datetime.time()).astimezone().timestamp()


def _document(row: DocumentRow, lang: Lang) -> dict[str, Any]:
    return {
        "id": row.id,
        "paths": list(row.paths),
        "title": row.title,
        "format": row.format,
        "encoding": row.encoding,
        "state": row.state,
        "pages": row.n_pages,
        "passages": row.n_passages,
        "size_bytes": row.size_bytes,
        "sha256": row.sha256.hex(),
        "problems": [
            {
                **problem,
                "reason": str(
                    sentence(
                        problem["code"],
                        lang,
                        {**problem.get("facts", {}), "page": problem["page"]},
                    )
                ),
            }
            for problem in row.problems
        ],
        "added_at": row.added_at,
    }


def _passage(row: PassageRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "ordinal": row.ordinal,
        "page": row.page,
        "heading": row.heading,
        "line_from": row.line_from,
        "line_to": row.line_to,
        "place": row.place,
        "text": row.text,
    }


def _file(row: FileRow, document: DocumentRow | None, lang: Lang) -> dict[str, Any]:
    """Return a file with one state a person can follow: the document's once it is linked."""
    reason = None
    if row.error_code is not None:
        reason = str(sentence(row.error_code, lang, row.error_facts))
    return {
        "path": row.display,
        "collection": row.collection,
        "size_bytes": row.size_bytes,
        "state": document.state if row.state == "linked" and document else row.state,
        "document": row.document_id,
        "title": document.title if document else None,
        "pages": document.n_pages if document else None,
        "passages": document.n_passages if document else None,
        "code": row.error_code,
        "reason": reason,
    }
