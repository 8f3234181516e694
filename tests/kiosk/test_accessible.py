"""axe-core finds nothing serious on any screen of the page, in any colours."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import Inside
from tests.kiosk.axe import axe_script
from tests.kiosk.conftest import LIBRARY, MakeVisit

RUN = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
    .map((found) => [found.impact, found.id, found.nodes[0].html.slice(0, 90),
                     found.nodes[0].failureSummary])"""


def findings(page: Page) -> list[list[str]]:
    return [each for each in page.evaluate(RUN) if each[0] in ("serious", "critical")]


@pytest.mark.parametrize("size", ["touch", "phone"])
def test_every_screen(inside: Inside, visit: MakeVisit, size: str) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.default = "周末下午五点关门 [1]。"
    visitor = visit(size)
    page = visitor.open()
    page.evaluate(axe_script())
    for _theme in range(4):
        assert findings(page) == []
        visitor.ask("图书馆周末几点关门？")
        assert findings(page) == []
        page.locator("#answer .mark").click()
        expect(page.locator("#panel-text mark")).to_be_visible()
        assert findings(page) == []
        page.click("#panel-close")
        if size == "touch":
            page.click("#keyboard-toggle")
            assert findings(page) == []
        page.click("#home")
        page.click("#theme")


def test_a_violation_is_found(inside: Inside, visit: MakeVisit) -> None:
    page = visit().open()
    page.evaluate(axe_script())
    page.evaluate("document.getElementById('send').replaceChildren()")
    page.evaluate("document.getElementById('send').removeAttribute('aria-label')")
    assert [each[1] for each in findings(page)] == ["button-name"]
