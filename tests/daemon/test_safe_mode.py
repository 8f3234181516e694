"""A box that was killed again and again starts without models, says so, and still finds text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from appliance.errors import ApplianceError
from tests.box import Box
from tests.tiny_gguf import write_tiny_llama


def test_third_killed_start_leads_to_safe_mode_and_a_restart_leaves_it(tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    write_tiny_llama(model)
    box = Box(
        tmp_path / "box",
        config=f"models: {{generation: {model}, embedding: {model}}}\ninbox: {{settle_s: 0.0}}\n",
        arguments=("--safe-after", "3"),
    )
    for _ in range(3):
        box.start()
        assert "safe_mode" not in codes(box)
        box.kill()
    with box:
        assert "safe_mode" in codes(box)
        # Only now: a file whose reading was killed as often would have been given up.
        (box.inbox / "faq.txt").write_text("The library closes at five.\n", encoding="utf-8")
        wait_for_text(box, "library closes")
        with pytest.raises(ApplianceError) as refused, box.client.ask("When?", mode="open") as got:
            list(got)
        assert refused.value.code == "safe_mode"
    # It ended on request, so the next start tries the model again.
    with box:
        assert "safe_mode" not in codes(box)


def test_box_that_ended_on_request_is_not_counted(tmp_path: Path) -> None:
    marker = tmp_path / "box" / "run" / "start.json"
    with Box(tmp_path / "box", arguments=("--safe-after", "1")) as box:
        assert json.loads(marker.read_bytes())["n"] == 1
    assert not marker.exists()
    box.start()
    box.kill()
    with box:
        assert "safe_mode" in codes(box)


def test_safe_mode_on_request(tmp_path: Path) -> None:
    with Box(tmp_path / "box", arguments=("--safe",)) as box:
        assert "safe_mode" in codes(box)
        status = box.client.get("/api/status")
        assert status["models"]["generation"]["state"] == "failed"


def codes(box: Box) -> list[str]:
    return [problem["code"] for problem in box.client.get("/api/status")["problems"]]


def wait_for_text(box: Box, words: str) -> None:
    deadline = time.monotonic() + 90
    while not box.client.get("/api/search", {"q": words})["hits"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
