"""A browser for the page: the system's Chromium, one for the session, a context a test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import Inside

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PICTURES = Path(__file__).resolve().parents[1] / "artefacts" / "kiosk"
SIZES = {"touch": (1024, 600), "screen": (1920, 1080), "phone": (390, 844)}

LIBRARY = """清河图书馆常见问题

问：图书馆周末几点关门？
答：周末下午五点关门，早上十点开门。

问：一次可以借几本书？
答：每张借书证一次最多借五本书，借期三十天。
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; tests of the page are skipped on a machine without it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is missing: run 'sh assets/setup/packages.sh test'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page opened by a visitor, and what it asked for and complained about.

    ``requests`` are addresses, ``errors`` are messages of the console and uncaught exceptions.
    """

    def __init__(self, browser: Browser, url: str, size: tuple[int, int], lang: str) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, locale=lang, has_touch=True
        )
        self.context.set_default_timeout(10_000)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.url = url
        self.page: Page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )

    def open(self, path: str = "/") -> Page:
        """Open the page and wait until it suggests something."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("#suggestions li")
        return self.page

    def ask(self, question: str) -> None:
        """Ask and wait for the end of the answer."""
        self.page.fill("#box", question)
        self.page.click("#send")
        self.page.wait_for_selector('#answer[aria-busy="false"]', state="attached")

    def picture(self, name: str) -> None:
        """Keep what the screen shows for a person to look at."""
        self.page.screenshot(path=PICTURES / f"{name}.png")

    @property
    def foreign(self) -> list[str]:
        """Requests that went to another place than the box."""
        return [url for url in self.requests if not url.startswith(self.url + "/")]


MakeVisit = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, inside: Inside) -> Iterator[MakeVisit]:
    """Open visits to the box in this process."""
    visits: list[Visit] = []

    def make(size: str = "touch", lang: str = "zh-CN") -> Visit:
        visits.append(Visit(browser, inside.client.url, SIZES[size], lang))
        return visits[-1]

    yield make
    for each in visits:
        each.context.close()
