"""Who may talk to the box."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from appliance.client import Client, RemoteError
from appliance.config import HttpConfig
from appliance.errors import ConfigError
from appliance.frontends.http.guard import Guard, host_name, is_loopback, read_api_key
from appliance.frontends.http.visitors import SESSION_S, TOKEN_S, Visitors
from appliance.system.clock import Clock
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine

VISITORS = Visitors(Clock())
OPEN = Guard("127.0.0.1", None, VISITORS)
KEYED = Guard("0.0.0.0", "geheim-und-lang", VISITORS)
HERE, THERE = "127.0.0.1", "192.168.1.77"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080"]
)
def test_host_that_names_this_machine_is_answered(host: str) -> None:
    assert OPEN.refusal("GET", "/api/status", {"host": host}, HERE) is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "", "[bad"])
def test_host_of_another_name_is_refused(host: str) -> None:
    refusal = OPEN.refusal("GET", "/api/status", {"host": host}, HERE)

    assert refusal is not None
    assert refusal.code == "host_refused"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=["other site", "sandboxed page", "other port", "labelled by the browser"],
)
def test_page_of_another_site_is_refused(headers: dict[str, str]) -> None:
    refusal = OPEN.refusal("POST", "/api/ask", {"host": "127.0.0.1:8080", **headers}, HERE)

    assert refusal is not None
    assert refusal.code == "origin_refused"


def test_own_page_is_answered() -> None:
    headers = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}

    assert (
        OPEN.refusal("POST", "/api/ask", {**headers, "sec-fetch-site": "same-origin"}, HERE) is None
    )


def test_key_opens_for_any_host_and_nothing_else_does() -> None:
    host = {"host": "192.168.1.5:8080"}

    assert (
        KEYED.refusal(
            "GET", "/v1/models", {**host, "authorization": "Bearer geheim-und-lang"}, THERE
        )
        is None
    )
    for given in ("", "Bearer", "Bearer wrong-key", "Basic geheim-und-lang", "Bearer ü"):
        refusal = KEYED.refusal("GET", "/v1/models", {**host, "authorization": given}, THERE)
        assert refusal is not None
        assert refusal.code == "key_needed"
    assert KEYED.refusal("GET", "/healthz", host, THERE) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("box.local", False),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_host_name_ignores_port_and_case() -> None:
    assert host_name("Box.Local:8080") == "box.local"


def test_other_address_without_key_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError) as refused:
        read_api_key(HttpConfig(host="0.0.0.0"))

    assert refused.value.code == "http_needs_key"
    assert refused.value.exit_status == 78


@pytest.mark.parametrize(
    "content", [None, b"", b"short", "密钥密钥密钥密钥".encode(), b"\xff" * 20]
)
def test_key_file_that_holds_no_key_is_a_configuration_error(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        read_api_key(HttpConfig(host="0.0.0.0", api_key_file=str(path)))

    assert refused.value.code == "key_file_unusable"


def test_keyed_box_answers_only_with_the_key(
    make_inside: MakeInside, engine: ScriptedEngine, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("geheim-und-lang\n")
    inside = make_inside(engine, http=HttpConfig(port=0, api_key_file=str(key)))

    with pytest.raises(RemoteError) as refused:
        inside.client.get("/api/status")

    assert refused.value.code == "key_needed"
    assert Client(inside.box.http.url, "geheim-und-lang").get("/api/status")["state"] == "ready"


def test_rebound_name_is_refused_over_the_wire(inside: Inside) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", inside.box.http.port, timeout=10)
    connection.request("GET", "/v1/models", headers={"Host": "evil.example"})
    response = connection.getresponse()

    assert response.status == 403
    assert json.loads(response.read())["error"]["code"] == "host_refused"
    connection.close()


# --------------------------------------------------------------------------------------------------
# visitors

VISITORS_MAY = [
    ("GET", "/"),
    ("GET", "/kiosk/kiosk.js"),
    ("GET", "/api/kiosk"),
    ("GET", "/api/pinyin"),
    ("GET", "/api/suggestions"),
    ("POST", "/api/ask"),
    ("GET", "/api/documents/3/passages"),
    ("GET", "/api/documents/3/page/1"),
]
VISITORS_MAY_NOT = [
    ("GET", "/api/status"),
    ("GET", "/api/documents"),
    ("POST", "/api/documents"),
    ("DELETE", "/api/documents/3"),
    ("GET", "/api/conversations"),
    ("GET", "/api/files"),
    ("POST", "/api/models/use"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/metrics"),
    ("GET", "/kiosk/a/../../api/files"),
    ("POST", "/"),
]


class _Later(Clock):
    """A clock that a test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def code(method: str, path: str, headers: dict[str, str], peer: str) -> str | None:
    refusal = KEYED.refusal(method, path, headers, peer)
    return None if refusal is None else refusal.code


@pytest.mark.parametrize(("method", "path"), VISITORS_MAY)
def test_visitor_and_kiosk_may_ask_and_read_what_is_cited(method: str, path: str) -> None:
    host = {"host": "192.168.1.5:8080"}
    cookie = {"cookie": f"visitor={VISITORS.admit(VISITORS.token())}"}

    assert code(method, path, host, THERE) == "key_needed"
    assert code(method, path, {**host, "cookie": "visitor=guess"}, THERE) == "key_needed"
    assert code(method, path, {**host, **cookie}, THERE) is None
    assert code(method, path, {"host": "localhost:8080"}, HERE) is None
    # A proxy or a rebound name on the box itself is no kiosk, and other sites' pages are strangers.
    assert code(method, path, {"host": "box.example"}, HERE) == "key_needed"
    foreign = {**host, **cookie, "origin": "http://evil.example"}
    assert code(method, path, foreign, THERE) == "origin_refused"
    foreign = {"host": "localhost:8080", "sec-fetch-site": "cross-site"}
    assert code(method, path, foreign, HERE) == "origin_refused"


@pytest.mark.parametrize(("method", "path"), VISITORS_MAY_NOT)
def test_visitor_and_kiosk_may_do_nothing_else(method: str, path: str) -> None:
    cookie = {"cookie": f"visitor={VISITORS.admit(VISITORS.token())}"}

    assert code(method, path, {"host": "192.168.1.5:8080", **cookie}, THERE) == "key_needed"
    assert code(method, path, {"host": "localhost:8080"}, HERE) == "key_needed"


@pytest.mark.parametrize("path", ["/api/join", "/api/join.svg"])
def test_how_to_join_is_shown_on_the_screen_only(path: str) -> None:
    cookie = {"cookie": f"visitor={VISITORS.admit(VISITORS.token())}"}

    assert code("GET", path, {"host": "localhost:8080"}, HERE) is None
    assert code("GET", path, {"host": "192.168.1.5", **cookie}, THERE) == "key_needed"


def test_token_is_good_for_twice_its_time_and_a_session_for_a_day() -> None:
    clock = _Later()
    visitors = Visitors(clock)
    first = visitors.token()
    clock.now += TOKEN_S
    second = visitors.token()
    assert second != first
    session = visitors.admit(first)
    assert session is not None
    clock.now += TOKEN_S
    assert visitors.admit(first) is None
    assert visitors.admit(second) is not None
    assert visitors.admit("") is None
    assert visitors.admit("\udcff") is None
    assert visitors.knows(session)
    clock.now += SESSION_S
    assert not visitors.knows(session)


def test_sessions_are_bounded_and_the_oldest_goes() -> None:
    visitors = Visitors(Clock())
    given = [visitors.admit(visitors.token()) or "" for _ in range(501)]
    assert [visitors.knows(session) for session in given] == [False] + [True] * 500


def test_phone_joins_by_the_code_on_the_screen_and_asks(
    make_inside: MakeInside, engine: ScriptedEngine, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("geheim-und-lang\n")
    config = HttpConfig(host="0.0.0.0", port=0, api_key_file=str(key))
    inside = make_inside(engine, http=config)
    port = inside.box.http.port

    def fetch(method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        body = json.dumps({"question": "几点？", "stream": False}) if method == "POST" else None
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        connection.close()
        return response

    url = json.loads(fetch("GET", "/api/join", Host="localhost").body)["url"]  # type: ignore[attr-defined]
    picture = fetch("GET", "/api/join.svg", Host="localhost")
    assert picture.getheader("content-type") == "image/svg+xml"
    assert b"<svg" in picture.body  # type: ignore[attr-defined]
    assert fetch("GET", "/join?t=guess", Host="box.lan").status == 403
    joined = fetch("GET", url[url.index("/join") :], Host="box.lan")
    assert (joined.status, joined.getheader("location")) == (303, "/")
    cookie = joined.getheader("set-cookie") or ""
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    visitor = {"Host": "box.lan", "Cookie": cookie.partition(";")[0]}
    assert fetch("GET", "/", **visitor).status == 200
    assert fetch("POST", "/api/ask", **visitor, Origin="http://box.lan").status == 200
    assert fetch("POST", "/api/ask", **visitor, Origin="http://evil.example").status == 403
    assert fetch("GET", "/api/files", **visitor).status == 401


def test_box_that_is_not_on_the_network_shows_no_code(inside: Inside) -> None:
    assert inside.client.get("/api/join") == {"url": None}
