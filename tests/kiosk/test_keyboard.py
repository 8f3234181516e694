"""The keyboard in the page: pinyin, Latin, signs, delete; beside a real keyboard."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.conftest import Inside
from tests.kiosk.conftest import LIBRARY, MakeVisit


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.locator(f'#keyboard [data-key="{key}"]').tap()


def test_a_question_typed_by_pinyin(inside: Inside, visit: MakeVisit) -> None:
    inside.put("图书馆.txt", LIBRARY)
    visitor = visit()
    page = visitor.open()
    page.locator("#box").tap()
    expect(page.locator("#keyboard")).to_be_visible()
    press(page, *"tushuguan", " ")
    # The first letters make the box read its word list.
    expect(page.locator("#box")).to_have_value("图书馆", timeout=30_000)
    press(page, *"xi", "shift", *"an")
    expect(page.locator("#composed")).to_have_text("xi'an")
    page.get_by_role("button", name="西安", exact=True).tap()
    expect(page.locator("#box")).to_have_value("图书馆西安")
    press(page, "delete", "delete", *"zhoumo", " ")
    press(page, *"jidian", " ", "？")
    expect(page.locator("#box")).to_have_value("图书馆周末几点？")
    expect(page.locator("#box")).to_be_focused()
    press(page, "fuzzy", *"zongguo")
    expect(page.locator(".candidate").first).to_have_text("中国")
    press(page, *["delete"] * 7)
    page.keyboard.type("a")
    expect(page.locator("#box")).to_have_value("图书馆周末几点？a")
    page.locator("#send").tap()
    expect(page.locator("#question")).to_have_text("图书馆周末几点？a")
    expect(page.locator("#keyboard")).to_be_hidden()
    assert visitor.errors == []


def test_latin_digits_and_signs(visit: MakeVisit) -> None:
    page = visit(lang="en-US").open()
    page.locator("#keyboard-toggle").tap()
    press(page, "shift", "R", *"iver", "signs", "3", "1", "other", "，", "other", "?", "delete")
    expect(page.locator("#box")).to_have_value("River31，")
    press(page, "signs", " ", "a", "hide")
    expect(page.locator("#box")).to_have_value("River31， a")
    expect(page.locator("#keyboard")).to_be_hidden()


def test_a_phone_keeps_its_own(visit: MakeVisit) -> None:
    page = visit("phone").open()
    page.locator("#box").tap()
    expect(page.locator("#keyboard")).to_be_hidden()
    expect(page.locator("#keyboard-toggle")).to_be_hidden()
