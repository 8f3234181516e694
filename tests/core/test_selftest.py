"""The box questioned about itself: honest questions, honest counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.cli import run_command
from appliance.config import SearchConfig
from appliance.core.retrieve import DEFAULT_BAR, Retriever
from appliance.core.selftest import calibrated_bar, probes
from appliance.errors import ApplianceError
from appliance.store import Store
from tests.conftest import Inside
from tests.core.test_retrieve import fill
from tests.ingest.test_inbox import until

DOCUMENTS = {
    "a.txt": "笔记本电脑的保修期为 24 个月，自购买之日起算。",
    "b.txt": "The reading room holds 120 seats for the pupils of all classes.",
    "c.txt": "没有数字的一句话，所以不会被提问。",
    "d.txt": "编号 INV-2024-001 的合同在 2024-01-02 签订，价格 30 元或 40 元。",
}


@pytest.fixture
def store(tmp_path: Path):  # noqa: ANN201 - a generator of Store
    opened = Store.open(tmp_path / "appliance.db")
    yield opened
    opened.close()


def test_questions_ask_for_the_one_figure_of_a_sentence(store: Store) -> None:
    fill(store, DOCUMENTS)

    asked = {probe.question: probe.expected for probe in probes(store, 10)}

    assert asked == {
        "笔记本电脑的保修期为 多少 个月，自购买之日起算？": "24",
        "The reading room holds how much seats for the pupils of all classes?": "120",
    }


def test_same_documents_give_the_same_questions(store: Store) -> None:
    text = "{}教室在教学楼的三层，里面一共有 {} 张课桌。"
    fill(store, {f"{n}.txt": text.format(chr(0x7532 + n), n + 20) for n in range(30)})

    assert probes(store, 8) == probes(store, 8)
    assert len(probes(store, 8)) == 8


def test_few_questions_leave_the_bar_where_it_is(store: Store) -> None:
    engine = fill(store, DOCUMENTS)

    bar = calibrated_bar(Retriever(store, engine, SearchConfig()), probes(store, 10))

    assert bar == DEFAULT_BAR


def test_bar_outlives_the_process(store: Store) -> None:
    engine = fill(store, DOCUMENTS)
    Retriever(store, engine, SearchConfig()).set_bar(0.33)

    assert Retriever(store, engine, SearchConfig()).bar == pytest.approx(0.33)


def test_selftest_counts_found_wrong_and_refused(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    inside.put("a.txt", DOCUMENTS["a.txt"])
    inside.put("b.txt", DOCUMENTS["b.txt"])
    inside.engine.answers = ["保修期为 24 个月[1]。", "It holds 99 seats [1]."]

    assert run_command(["selftest", "--data", str(inside.data), "--questions", "2"]) == 0

    report = inside.client.get("/api/selftest")["report"]
    assert (report["by_lang"]["zh"]["found"], report["by_lang"]["zh"]["refused_rightly"]) == (1, 1)
    assert (report["by_lang"]["en"]["wrong"], report["by_lang"]["en"]["refused_rightly"]) == (1, 1)
    assert "zh: 1 of 1 found" in capsys.readouterr().out
    assert inside.box.core.conversations.kept() == []


def test_selftest_of_another_embedder_is_outdated(inside: Inside) -> None:
    inside.put("a.txt", DOCUMENTS["a.txt"])
    inside.engine.answers = ["24 个月[1]。"]
    inside.client.post("/api/selftest", {"questions": 1})
    until(lambda: inside.client.get("/api/selftest")["report"] is not None)
    assert not inside.client.get("/api/status")["selftest_outdated"]

    inside.box.core._store.reset_vectors("another")

    assert inside.client.get("/api/status")["selftest_outdated"]


def test_selftest_without_figures_says_so(inside: Inside) -> None:
    inside.put("c.txt", DOCUMENTS["c.txt"])

    with pytest.raises(ApplianceError) as caught:
        inside.client.post("/api/selftest", {"questions": 5})

    assert caught.value.code == "selftest_no_questions"
