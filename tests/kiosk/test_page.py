"""The page in Chromium: what a visitor does, at the three sizes it is made for."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from appliance.errors import EngineStoppedError
from appliance.messages import explain
from tests.conftest import Inside
from tests.kiosk.conftest import LIBRARY, SIZES, MakeVisit

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples" / "documents"
ANSWER = "周末下午五点关门 [1]。<b>请</b>提前还书。"


@pytest.mark.parametrize("size", SIZES)
def test_ask_read_open_and_start_again(inside: Inside, visit: MakeVisit, size: str) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = [ANSWER]
    visitor = visit(size)
    page = visitor.open()
    visitor.picture(f"{size}-welcome")
    assert "图书馆周末几点关门？" in page.locator(".suggestion").all_inner_texts()

    page.get_by_role("button", name="图书馆周末几点关门？").click()
    expect(page.locator("#question")).to_have_text("图书馆周末几点关门？")
    expect(page.locator("#state")).to_have_text("回答完毕")
    expect(page.locator("#answer")).to_have_text("周末下午五点关门 1。<b>请</b>提前还书。")
    expect(page.locator(".card .file").first).to_have_text("图书馆.txt")
    expect(page.locator("#announce")).to_have_text(ANSWER)

    visitor.picture(f"{size}-answer")
    page.locator("#answer .mark").click()
    expect(page.locator("#panel-title")).to_be_focused()
    expect(page.locator("#panel-text mark")).to_contain_text("周末")
    assert page.locator("#panel-text mark").is_visible()
    visitor.picture(f"{size}-source")
    expect(page.locator("#send")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page.locator("#answer .mark")).to_be_focused()

    page.click("#home")
    expect(page.locator("#attract")).to_be_visible()
    assert "周末下午" not in page.content()
    assert visitor.errors == []
    assert visitor.foreign == []


def test_a_pdf_opens_at_the_page(inside: Inside, visit: MakeVisit) -> None:
    shutil.copy(SAMPLES / "riverboard-manual.pdf", inside.box.config.inbox_dir)
    inside.wait()
    inside.engine.answers = ["A 12 V supply [1]."]
    visitor = visit(lang="en-US")
    page = visitor.open()
    visitor.ask("What power supply does the RiverBoard 310 need?")
    page.locator("#answer .mark").click()
    image = page.locator("#panel-text img")
    expect(image).to_have_attribute("alt", re.compile(r"riverboard-manual\.pdf, page \d+"))
    expect(image).to_have_js_property("complete", value=True)
    assert image.evaluate("(image) => image.naturalWidth") > 400
    assert visitor.errors == []
    assert visitor.foreign == []


def test_stop_ends_the_answer_in_the_box(inside: Inside, visit: MakeVisit) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["很长的回答，" * 400]
    inside.engine.token_delay_s = 0.02
    page = visit().open()
    page.fill("#box", "图书馆周末几点关门？")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("很长的回答")
    page.click("#stop")
    expect(page.locator("#state")).to_have_text("已停止")
    expect(page.locator("#send")).to_be_visible()
    assert _until(lambda: inside.engine.n_running == 0)


def test_waiting_shows_the_place_in_the_queue(inside: Inside, visit: MakeVisit) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.gate.clear()
    page = visit().open()
    try:
        page.fill("#box", "图书馆周末几点关门？")
        page.click("#send")
        expect(page.locator("#state")).to_contain_text("第 1 位")
        expect(page.locator(".card").first).to_be_visible()
    finally:
        inside.engine.gate.set()
    expect(page.locator("#state")).to_have_text("回答完毕")


def test_an_error_is_told_with_what_to_do(inside: Inside, visit: MakeVisit) -> None:
    visitor = visit(lang="en-US")
    page = visitor.open()
    expect(page.locator("#suggestions")).to_contain_text("There are no documents yet")
    inside.put("library.txt", LIBRARY)
    inside.engine.answers = [EngineStoppedError(state="stopped")]
    visitor.ask("图书馆周末几点关门？")
    expect(page.locator("#state")).to_have_text("That did not work")
    told = explain(EngineStoppedError(state="stopped"), "en")
    expect(page.locator("#answer")).to_have_text(f"{told.message} {told.next_step}")

    page.route("**/api/ask", lambda route: route.abort())
    visitor.ask("图书馆周末几点关门？")
    expect(page.locator("#answer")).to_contain_text("connection to the box was lost")


def test_settings_change_what_is_seen(inside: Inside, visit: MakeVisit) -> None:
    page = visit().open()
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    before = page.evaluate(size)
    page.click("#larger")
    assert page.evaluate(size) > before >= 18
    page.click("#lang")
    expect(page.locator("#welcome")).to_have_text("What would you like to know?")
    assert page.evaluate("document.documentElement.lang") == "en"
    seen = set()
    for _ in range(4):
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.click("#theme")
    assert len(seen) == 3  # auto is light here
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


@pytest.mark.parametrize("size", SIZES)
def test_targets_and_text_are_large_enough(inside: Inside, visit: MakeVisit, size: str) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = [ANSWER]
    visitor = visit(size)
    page = visitor.open()
    small = """() => [...document.querySelectorAll('button, input, p, li, span, h1, h2')]
        .filter((node) => node.checkVisibility() && !node.closest('.unseen'))
        .filter((node) => {
          const box = node.getBoundingClientRect();
          const isTarget = node.matches('button, input');
          return (isTarget && (box.width < 48 || box.height < 48))
            || parseFloat(getComputedStyle(node).fontSize) < 18;
        }).map((node) => node.outerHTML.slice(0, 80))"""
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(small) == []
    assert page.evaluate(fits)
    visitor.ask("图书馆周末几点关门？")
    page.locator("#answer .mark").click()
    assert page.evaluate(small) == []
    page.click("#larger")
    page.click("#larger")
    assert page.evaluate(fits)


def test_nothing_shifts_while_the_answer_streams(inside: Inside, visit: MakeVisit) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["周末下午五点关门 [1]。" * 12]
    inside.engine.token_delay_s = 0.003
    for size in SIZES:
        visitor = visit(size)
        page = visitor.open()
        page.evaluate("""() => {
          window.shift = 0;
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.shift += entry.value;
          }).observe({ type: 'layout-shift' });
        }""")
        visitor.ask("图书馆周末几点关门？")
        page.wait_for_timeout(50)
        # The step from one screen to the other follows a tap; what streams in must not move.
        assert page.evaluate("window.shift") < 0.01, size
        inside.engine.answers = ["周末下午五点关门 [1]。" * 12]


def test_the_page_weighs_little(inside: Inside, visit: MakeVisit) -> None:
    visitor = visit()
    sizes: list[int] = []
    visitor.page.on("response", lambda response: sizes.append(len(response.body())))
    visitor.open()
    assert 5_000 < sum(sizes) < 150_000


def _until(is_so: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.02)
    return False
