"""Nothing of a visitor stays, nothing leads out of the page, nothing in a document runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from appliance.config import KioskConfig
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine
from tests.kiosk.conftest import LIBRARY, SIZES, MakeVisit, Visit

TOKEN = "QX7731"


def test_idle_wipes_everything(make_inside: MakeInside, browser: Browser) -> None:
    engine = ScriptedEngine(default=f"{TOKEN} [1]")
    inside = make_inside(engine, kiosk=KioskConfig(idle_s=1.0, notice_s=2.0))
    inside.put("图书馆.txt", LIBRARY)
    visitor = Visit(browser, inside.client.url, SIZES["touch"], "zh-CN")
    page = visitor.open()
    page.click("#theme")
    page.click("#larger")
    page.click("#lang")
    visitor.ask(f"图书馆周末几点关门？{TOKEN}")
    expect(page.locator("#answer")).to_contain_text(TOKEN)
    page.evaluate("window.kept = 1")
    n_entries = page.evaluate("history.length")

    expect(page.locator("#idle")).to_be_visible()
    expect(page.locator("#idle-stay")).to_be_focused()
    page.click("#idle-stay")
    expect(page.locator("#idle")).to_be_hidden()
    expect(page.locator("#answer")).to_contain_text(TOKEN)

    with page.expect_event("domcontentloaded", timeout=10_000):
        pass
    assert page.evaluate("window.kept") is None
    page.wait_for_selector(".suggestion")
    assert TOKEN not in page.content()
    assert page.input_value("#box") == ""
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
    assert page.evaluate("document.documentElement.dataset.size") is None
    assert page.evaluate("document.documentElement.lang") == "zh"
    assert page.evaluate("history.length") <= n_entries + 1
    stored = """async () => [localStorage.length, sessionStorage.length, document.cookie,
        (await caches.keys()).length, (await indexedDB.databases()).length,
        (await navigator.serviceWorker.getRegistrations()).length]"""
    assert page.evaluate(stored) == [0, 0, "", 0, 0, 0]
    page.go_back(wait_until="commit")
    assert TOKEN not in page.content()
    visitor.context.close()

    assert inside.client.get("/api/conversations") == {"conversations": []}
    for path in inside.data.glob("appliance.db*"):
        assert TOKEN.encode() not in path.read_bytes(), path.name


def test_nothing_leads_out(inside: Inside, visit: MakeVisit) -> None:
    inside.put("图书馆.txt", LIBRARY)
    visitor = visit()
    page = visitor.open()
    visitor.ask("图书馆周末几点关门？")
    is_stopped = """(name) => {
        const event = new Event(name, { bubbles: true, cancelable: true });
        document.getElementById('answer').dispatchEvent(event);
        return event.defaultPrevented;
    }"""
    for name in ("contextmenu", "dragstart", "dragover", "drop", "gesturestart", "auxclick"):
        assert page.evaluate(is_stopped, name), name
    scale = page.evaluate("visualViewport.scale * devicePixelRatio")
    page.keyboard.press("Control++")
    page.mouse.move(300, 300)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    assert page.evaluate("visualViewport.scale * devicePixelRatio") == scale
    assert page.locator("a, iframe, embed, object").count() == 0
    page.go_back(wait_until="commit")
    expect(page.locator("#attract")).to_be_visible()
    assert page.url == visitor.url + "/"
    assert len(visitor.context.pages) == 1


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"


@pytest.mark.parametrize("size", ["touch", "phone"])
def test_no_text_runs(inside: Inside, visit: MakeVisit, size: str) -> None:
    inside.put("<img src=x onerror=alert(4)> javascript:alert(5).md", (
        f"# {HOSTILE}\n\n## {HOSTILE}\n\n图书馆周末几点关门<b onclick=alert(6)>？\n\n"
        f"周末下午五点关门 {HOSTILE} [x](javascript:alert(7))\n"
    ))  # fmt: skip
    inside.engine.answers = [f"{HOSTILE} 五点 [1] [x](javascript:alert(8)) \u202e&lt;b&gt;"]
    visitor = visit(size)
    page = visitor.open()
    visitor.ask(f"图书馆周末几点关门？{HOSTILE}")
    expect(page.locator("#answer")).to_contain_text("<script>alert(2)</script>")
    expect(page.locator("#question")).to_contain_text("<svg onload=alert(3)>")
    page.locator(".card").first.click()
    expect(page.locator("#panel-text")).to_contain_text("onerror=alert(1)")
    expect(page.locator("#panel-title")).to_contain_text("<img src=x")
    page.click("#home")
    page.wait_for_selector(".suggestion")
    assert page.locator("img:not(#join-code), svg, b, a, script:not([src])").count() == 0
    assert page.locator("#join-code").count() == 1  # the page's own, for the code to join by
    assert visitor.errors == []
    assert visitor.foreign == []
