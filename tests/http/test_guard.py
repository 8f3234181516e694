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
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine

OPEN = Guard("127.0.0.1", None)
KEYED = Guard("0.0.0.0", "geheim-und-lang")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080"]
)
def test_host_that_names_this_machine_is_answered(host: str) -> None:
    assert OPEN.refusal("/api/status", {"host": host}) is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "", "[bad"])
def test_host_of_another_name_is_refused(host: str) -> None:
    refusal = OPEN.refusal("/api/status", {"host": host})

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
    refusal = OPEN.refusal("/api/ask", {"host": "127.0.0.1:8080", **headers})

    assert refusal is not None
    assert refusal.code == "origin_refused"


def test_own_page_is_answered() -> None:
    headers = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}

    assert OPEN.refusal("/api/ask", {**headers, "sec-fetch-site": "same-origin"}) is None


def test_key_opens_for_any_host_and_nothing_else_does() -> None:
    host = {"host": "192.168.1.5:8080"}

    assert KEYED.refusal("/v1/models", {**host, "authorization": "Bearer geheim-und-lang"}) is None
    for given in ("", "Bearer", "Bearer wrong-key", "Basic geheim-und-lang", "Bearer ü"):
        refusal = KEYED.refusal("/v1/models", {**host, "authorization": given})
        assert refusal is not None
        assert refusal.code == "key_needed"
    assert KEYED.refusal("/healthz", host) is None


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
