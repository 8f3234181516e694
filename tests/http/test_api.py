"""Our own routes, on a whole box in this process; every request goes over a real socket."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from appliance.client import Client, RemoteError
from appliance.config import AssistantConfig, HttpConfig
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine

LIBRARY = "图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。\n"


def ask(
    client: Client, question: str, **options: str | bool | None
) -> list[tuple[str, dict[str, Any]]]:
    with client.ask(question, **options) as events:
        return list(events)


def raw(
    inside: Inside, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def wait_until(claim: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "still not true"
        time.sleep(0.01)


def test_ask_streams_evidence_before_the_model_and_ends_with_the_answer(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]

    events = ask(inside.client, "图书馆周末几点关门？")

    kinds = [kind for kind, _ in events]
    assert kinds[0] == "evidence"
    assert kinds.index("evidence") < kinds.index("delta")
    assert kinds[-1] == "answer"
    answer = events[-1][1]
    assert answer["answer"] == "下午五点关门[1]。"
    assert answer["citations"][0]["path"] == "图书馆.txt"
    assert "".join(event["text"] for kind, event in events if kind == "delta") == answer["answer"]


def test_ask_without_documents_refuses_and_the_model_is_not_called(inside: Inside) -> None:
    events = ask(inside.client, "What is the warranty?")

    assert [kind for kind, _ in events] == ["answer"]
    assert events[0][1]["refused"] is True
    assert events[0][1]["reason"] == "no_documents"
    assert inside.engine.requests == []
    assert inside.engine.tokens_decoded == 0


def test_ask_not_streamed_returns_one_object(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)

    answer = inside.client.post("/api/ask", {"question": "图书馆周末几点关门？", "stream": False})

    assert answer["answer"].startswith("好的。")
    assert answer["refused"] is False


@pytest.mark.parametrize("is_stream", [True, False], ids=["streamed", "whole"])
def test_client_that_leaves_frees_the_engine(inside: Inside, is_stream: bool) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.token_delay_s = 0.05
    inside.engine.answers = ["很" * 2000]
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=30)
    body = json.dumps({"question": "图书馆周末几点关门？", "stream": is_stream})
    connection.request("POST", "/api/ask", body, {"Content-Type": "application/json"})
    wait_until(lambda: inside.engine.tokens_decoded > 3)

    connection.sock.close()
    connection.close()

    wait_until(lambda: inside.engine.n_running == 0, timeout_s=2.0)
    assert inside.engine.tokens_decoded < 100


def test_client_that_leaves_while_waiting_never_starts(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.gate.clear()
    inside.engine.answers = ["很好。"]
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=30)
    body = json.dumps({"question": "图书馆周末几点关门？"})
    connection.request("POST", "/api/ask", body, {"Content-Type": "application/json"})
    wait_until(lambda: inside.engine.n_running == 1)

    connection.sock.close()
    connection.close()
    time.sleep(0.2)
    inside.engine.gate.set()

    wait_until(lambda: inside.engine.n_running == 0)
    assert inside.engine.tokens_decoded == 0


def test_history_is_kept_until_it_is_forgotten(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    answer = ask(inside.client, "图书馆周末几点关门？")[-1][1]
    conversation = answer["conversation"]

    kept = inside.client.get("/api/conversations")["conversations"]
    turns = inside.client.get(f"/api/conversations/{conversation}")["turns"]
    inside.client.delete(f"/api/conversations/{conversation}")

    assert [row["id"] for row in kept] == [conversation]
    assert turns == [{"question": "图书馆周末几点关门？", "answer": answer["answer"]}]
    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_question_not_to_be_remembered_leaves_no_row(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)

    answer = ask(inside.client, "图书馆周末几点关门？", remember=False)[-1][1]

    assert answer["conversation"] is None
    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_history_switched_off_keeps_none_but_follow_ups_work(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, assistant=AssistantConfig(keep_history=False))
    inside.put("图书馆.txt", LIBRARY)

    first = ask(inside.client, "图书馆周末几点关门？")[-1][1]
    ask(inside.client, "那周五呢？", conversation=first["conversation"])

    assert "图书馆周末几点关门" in engine.prompts[-1]
    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_forget_all_conversations_counts_them(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    for _ in range(3):
        ask(inside.client, "图书馆周末几点关门？")

    assert inside.client.delete("/api/conversations") == {"forgotten": 3}


def test_upload_appears_in_the_inbox_and_is_searchable(inside: Inside) -> None:
    path = inside.client.upload("规则.txt", io.BytesIO(LIBRARY.encode("gb18030")))["path"]
    inside.wait()

    found = inside.client.get("/api/search", {"q": "关门"})

    assert path == "规则.txt"
    assert found["hits"][0]["path"] == "规则.txt"
    assert (inside.box.config.inbox_dir / "规则.txt").read_bytes() == LIBRARY.encode("gb18030")


def test_upload_of_a_taken_name_replaces_nothing(inside: Inside) -> None:
    inside.put("a.txt", "The first file.\n")

    path = inside.client.upload("a.txt", io.BytesIO(b"The second file.\n"))["path"]

    assert path == "a (2).txt"
    assert (inside.box.config.inbox_dir / "a.txt").read_text() == "The first file.\n"


@pytest.mark.parametrize("name", ["../up.txt", ".hidden", "a/b.txt", "\x1b[2J.txt"])
def test_upload_name_that_is_no_plain_name_is_refused(inside: Inside, name: str) -> None:
    with pytest.raises(RemoteError) as refused:
        inside.client.upload(name, io.BytesIO(b"text"))

    assert refused.value.code == "upload_bad_name"
    assert sorted(path.name for path in inside.box.config.inbox_dir.iterdir()) == []


def test_upload_larger_than_the_limit_leaves_nothing(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, http=HttpConfig(port=0, max_upload_bytes=1000))

    with pytest.raises(RemoteError) as refused:
        inside.client.upload("big.txt", io.BytesIO(b"x" * 2000))

    assert refused.value.code == "file_too_large"
    assert list(inside.box.config.inbox_dir.iterdir()) == []


def test_endless_body_is_cut_off_at_the_limit(inside: Inside) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=30)
    headers = {"Content-Type": "application/json", "Content-Length": str(10**12)}

    connection.request("POST", "/api/ask", b"{", headers)
    response = connection.getresponse()

    assert response.status == 413
    assert json.loads(response.read())["error"]["code"] == "body_too_large"
    connection.close()


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 400])
@pytest.mark.parametrize("tail", ["", "/passages", "/page/1"])
def test_number_that_no_row_can_have_is_not_found(inside: Inside, number: str, tail: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=10)
    connection.request("GET", f"/api/documents/{number}{tail}")
    response = connection.getresponse()

    assert response.status == 404
    assert json.loads(response.read())["error"]["code"] == "route_not_found"
    connection.close()


def test_remove_forgets_the_text_and_keeps_the_file(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    document = inside.client.get("/api/documents")["documents"][0]["id"]

    removed = inside.client.delete(f"/api/documents/{document}")

    assert removed == {"paths": ["图书馆.txt"]}
    assert inside.client.get("/api/search", {"q": "关门"})["hits"] == []
    assert (inside.box.config.inbox_dir / "图书馆.txt").exists()
    assert inside.client.get("/api/files")["files"][0]["state"] == "ignored"


def test_reindex_brings_a_removed_file_back(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.client.post("/api/files/remove", {"path": "图书馆.txt"})

    inside.client.post("/api/files/reindex", {"path": "图书馆.txt"})
    inside.wait()

    assert inside.client.get("/api/search", {"q": "关门"})["hits"] != []


def test_rescan_sees_a_file_at_once(inside: Inside) -> None:
    (inside.box.config.inbox_dir / "new.txt").write_text("A new document.\n", encoding="utf-8")

    progress = inside.client.post("/api/kb/rescan")

    assert progress["n_files"] == 1


def test_failed_file_is_listed_with_its_reason_in_the_language_asked_for(inside: Inside) -> None:
    (inside.box.config.inbox_dir / "empty.pdf").write_bytes(b"")
    inside.wait()

    english = Client(inside.box.http.url, language="en").get("/api/files")["files"][0]
    chinese = Client(inside.box.http.url, language="zh").get("/api/files")["files"][0]

    assert english["state"] == "failed"
    assert english["reason"].isascii()
    assert not chinese["reason"].isascii()


def test_search_in_a_collection_that_is_not_there_says_so(inside: Inside) -> None:
    with pytest.raises(RemoteError) as refused:
        inside.client.get("/api/search", {"q": "x", "collection": "nope"})

    assert refused.value.code == "collection_not_found"


def test_status_names_models_memory_and_queue(inside: Inside) -> None:
    status = inside.client.get("/api/status")

    assert status["state"] == "ready"
    assert status["problems"] == []
    assert status["models"]["generation"]["name"] == "scripted"
    assert status["memory"]["own"] > 10_000_000
    assert status["memory"]["resident"] >= status["memory"]["own"]
    assert status["queue"] == {"running": 0, "waiting": 0, "slots": 2}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/nothing", b"", 404, "route_not_found"),
        ("DELETE", "/api/status", b"", 405, "method_not_allowed"),
        ("POST", "/api/ask", b"{", 400, "json_invalid"),
        ("POST", "/api/ask", b"[]", 400, "json_invalid"),
        ("POST", "/api/ask", b'{"question": "\\ud800"}', 400, "json_invalid"),
        ("POST", "/api/ask", b'{"question": 3}', 400, "bad_request"),
        ("POST", "/api/ask", b'{"question": "  "}', 400, "question_empty"),
        ("POST", "/api/ask", b'{"question": "x", "mode": "x"}', 400, "bad_request"),
        (
            "POST",
            "/api/ask",
            b'{"question": "x", "conversation": "x"}',
            404,
            "conversation_not_found",
        ),
        ("GET", "/api/search", b"", 400, "bad_request"),
        ("GET", "/api/search?q=x&k=1000", b"", 400, "bad_request"),
        ("GET", "/api/documents/99", b"", 404, "document_not_found"),
        ("POST", "/api/files/remove", b'{"path": "no.txt"}', 404, "document_not_found"),
        ("POST", "/api/documents", b"x", 400, "bad_request"),
    ],
)
def test_wrong_request_is_explained(
    inside: Inside, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    found, reply = raw(inside, method, path, body)

    assert (found, reply["error"]["code"]) == (status, code)
    assert reply["error"]["message"]
    assert "?" not in reply["error"]["message"].replace(path, "")


def test_engine_that_fails_in_the_stream_ends_it_with_an_error(inside: Inside) -> None:
    from appliance.errors import DeviceLostError

    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = [DeviceLostError(cause="test")]

    with pytest.raises(RemoteError) as failed:
        ask(inside.client, "图书馆周末几点关门？")

    assert failed.value.code == "device_lost"
    assert failed.value.facts == {"cause": "test"}


def test_answers_running_at_a_stop_are_ended(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine)
    inside.put("图书馆.txt", LIBRARY)
    engine.token_delay_s = 0.05
    engine.answers = ["很" * 2000]
    said: list[Any] = []
    asking = threading.Thread(
        target=lambda: said.extend(ask(inside.client, "图书馆周末几点关门？")), name="asking"
    )
    asking.start()
    wait_until(lambda: engine.tokens_decoded > 3)

    began = time.monotonic()
    inside.box.http.stop()
    asking.join(10)

    assert time.monotonic() - began < 5
    assert said[-1][1]["finish_reason"] == "cancelled"


def test_metrics_are_prometheus_text(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    ask(inside.client, "图书馆周末几点关门？")
    with urllib.request.urlopen(f"{inside.client.url}/metrics", timeout=30) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        text = response.read().decode()

    families = {family.name: family for family in text_string_to_metric_families(text)}

    assert families["appliance_up"].samples[0].value == 1
    assert families["appliance_documents"].samples[0].value == 1
    decoded = {s.labels["phase"]: s.value for s in families["appliance_tokens"].samples}
    assert decoded["decode"] > 0
    assert all(family.documentation for family in families.values())


def test_silent_connections_are_closed_and_keep_nobody_out(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.frontends.http.frontend.FIRST_REQUEST_S", 0.5)
    silent = [
        socket.create_connection(("127.0.0.1", inside.box.http.port), timeout=10)
        for _ in range(200)
    ]
    try:
        assert raw(inside, "GET", "/healthz")[0] == 200
        assert [connection.recv(1) for connection in silent] == [b""] * len(silent)
    finally:
        for connection in silent:
            connection.close()


def test_headers_that_trickle_in_do_not_keep_a_connection_open(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.frontends.http.frontend.FIRST_REQUEST_S", 0.5)
    with socket.create_connection(("127.0.0.1", inside.box.http.port), timeout=10) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 5:
                slow.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - started < 4
    assert raw(inside, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/api/documents", "/api/ask", "/v1/chat/completions"])
def test_body_that_trickles_in_is_answered_with_408(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("appliance.frontends.http.app.BODY_PATIENCE_S", 0.5)
    kind = b"multipart/form-data; boundary=b" if path == "/api/documents" else b"application/json"
    head = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: 5000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", inside.box.http.port), timeout=10) as slow:
        slow.sendall(head % (path.encode(), kind) + b"--b\r\n")
        slow.settimeout(0.05)
        said = b""
        started = time.monotonic()
        while b"\r\n\r\n" not in said and time.monotonic() - started < 5:
            slow.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                said += slow.recv(4096)
        slow.settimeout(5)
        while block := slow.recv(4096):
            said += block
    assert said.startswith(b"HTTP/1.1 408")
    assert b"body_too_slow" in said
    assert list(inside.box.config.inbox_dir.iterdir()) == []


def test_body_that_is_slow_but_moves_is_taken(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.frontends.http.app.BODY_PATIENCE_S", 0.4)
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    body = part + b"word " * 2000 + b"\r\n--b--\r\n"
    head = b"POST /api/documents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", inside.box.http.port), timeout=10) as slow:
        slow.sendall(head % len(body))
        for at in range(0, len(body), 1024):
            slow.sendall(body[at : at + 1024])
            time.sleep(0.1)
        assert slow.recv(100).startswith(b"HTTP/1.1 201")
