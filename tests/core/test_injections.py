"""Orders inside documents never reach the model as such, whatever they hide in."""

from __future__ import annotations

import pytest

from appliance.config import HttpConfig, InboxConfig
from tests import injections
from tests.conftest import MakeInside
from tests.doubles import ScriptedEngine

DOCUMENTS = injections.build()


def test_there_are_thirty() -> None:
    assert len(DOCUMENTS) >= 30


@pytest.mark.slow
def test_no_order_of_any_document_reaches_the_model(make_inside: MakeInside) -> None:
    engine = ScriptedEngine(default="五点[1]。")
    inside = make_inside(engine, http=HttpConfig(port=0), inbox=InboxConfig(settle_s=0.0))
    for name, content in DOCUMENTS.items():
        (inside.box.config.inbox_dir / name.replace(".", "-")).mkdir(parents=True)
        (inside.box.config.inbox_dir / name.replace(".", "-") / name).write_bytes(content)
    inside.wait()

    for name in DOCUMENTS:
        question = injections.QUESTION_EN if "-en." in name else injections.QUESTION
        inside.client.post(
            "/api/ask",
            {
                "question": question,
                "collection": name.replace(".", "-"),
                "mode": "open",
                "stream": False,
                "remember": False,
            },
        )

    assert len(engine.prompts) == len(DOCUMENTS)
    leaked = [
        name
        for name, prompt in zip(DOCUMENTS, engine.prompts, strict=True)
        if injections.MARK in prompt
    ]
    assert leaked == []
