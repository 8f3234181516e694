"""Thirty visitors at once: everyone gets the answer to the own question, nobody another's."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from appliance.engine.base import GenerationRequest
from tests.conftest import MakeInside
from tests.doubles import ScriptedEngine, ScriptedGeneration
from tests.kiosk.conftest import SIZES, Visit

N_VISITORS = 30
TOKEN = re.compile(r"QX\d{4}")


class Echo(ScriptedEngine):
    """Answers with the token that the question asks for, and the first source."""

    def generate(self, request: GenerationRequest) -> ScriptedGeneration:
        token = TOKEN.findall(request.messages[-1].content)[-1]
        with self.lock:
            self.answers = [f"{token} [1]"]
            return super().generate(request)


@pytest.mark.slow
def test_thirty_at_once(make_inside: MakeInside, browser: Browser) -> None:
    engine = Echo()
    inside = make_inside(engine)
    tokens = [f"QX{7000 + 37 * n}" for n in range(N_VISITORS)]
    for token in tokens:
        path = inside.box.config.inbox_dir / f"{token}.txt"
        path.write_text(f"柜子 {token} 在第 {token[2:]} 排。\n", encoding="utf-8")
    inside.wait()
    visits = [Visit(browser, inside.client.url, SIZES["phone"], "zh-CN") for _ in tokens]
    engine.gate.clear()
    try:
        for visitor, token in zip(visits, tokens, strict=True):
            page = visitor.open()
            page.fill("#box", f"柜子 {token} 在哪里？")
            page.click("#send")
        for visitor in visits:
            expect(visitor.page.locator("#state")).to_contain_text("位", timeout=20_000)
        assert engine.n_running == N_VISITORS
    finally:
        engine.gate.set()
    for visitor, token in zip(visits, tokens, strict=True):
        expect(visitor.page.locator("#state")).to_have_text("回答完毕", timeout=20_000)
        expect(visitor.page.locator("#answer")).to_contain_text(token)
        expect(visitor.page.locator(".cited .file")).to_have_text(f"{token}.txt")
        others = set(TOKEN.findall(visitor.page.inner_text("#answer"))) - {token}
        assert not others
        assert visitor.errors == []
        visitor.context.close()
