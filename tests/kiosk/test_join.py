"""A phone that scans the code on the kiosk's screen, over the machine's real address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from appliance.client import Client
from appliance.config import HttpConfig
from appliance.system.net import lan_address
from tests.conftest import MakeInside
from tests.doubles import ScriptedEngine
from tests.kiosk.conftest import LIBRARY, SIZES, MakeVisit, Visit

KEY = "geheim-und-lang"


def test_screen_shows_the_code_and_the_phone_asks(
    browser: Browser, make_inside: MakeInside, engine: ScriptedEngine, tmp_path: Path
) -> None:
    address = lan_address()
    if address is None:
        pytest.skip("this machine is on no network")
    key = tmp_path / "key"
    key.write_text(KEY)
    http = HttpConfig(host="0.0.0.0", port=0, api_key_file=str(key))
    inside = make_inside(engine, http=http)
    inside.client = Client(inside.box.http.url, KEY)
    (inside.box.config.inbox_dir / "图书馆.txt").write_text(LIBRARY, encoding="utf-8")
    inside.client.post("/api/kb/rescan", {})
    engine.answers = ["周末下午五点关门 [1]。"]

    screen = Visit(browser, inside.box.http.url, SIZES["touch"], "zh-CN")
    page = screen.open()
    expect(page.locator("#join")).to_be_visible()
    assert page.evaluate("document.getElementById('join-code').naturalWidth") > 0
    screen.picture("touch-join")
    url = inside.client.get("/api/join")["url"]
    assert urlsplit(url).hostname == address

    phone = Visit(browser, f"http://{address}:{inside.box.http.port}", SIZES["phone"], "zh-CN")
    phone.page.goto(url)
    phone.page.wait_for_selector("#suggestions li")
    assert urlsplit(phone.page.url).path == "/"
    expect(phone.page.locator("#join")).to_be_hidden()
    phone.ask("图书馆周末几点关门？")
    expect(phone.page.locator("#answer")).to_contain_text("下午五点关门")
    phone.page.locator("#answer .mark").click()
    expect(phone.page.locator("#panel-text mark")).to_contain_text("周末")
    # Without TLS a browser ignores that header and says so.
    errors = [error for error in phone.errors if "Cross-Origin-Opener-Policy" not in error]
    assert errors == screen.errors == []
    assert phone.foreign == screen.foreign == []

    stranger = Visit(browser, phone.url, SIZES["phone"], "zh-CN")
    answer = stranger.page.goto(stranger.url + "/")
    assert answer is not None
    assert answer.status == 401
    for each in (screen, phone, stranger):
        each.context.close()


def test_box_on_loopback_shows_no_code(visit: MakeVisit) -> None:
    page = visit().open()
    expect(page.locator("#join")).to_be_hidden()
