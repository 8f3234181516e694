"""Search as a person meets it: the right place first, or an honest reason why there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from appliance.config import SearchConfig
from appliance.core.retrieve import Retriever, SearchResult
from appliance.engine.base import Priority
from appliance.parsers.base import Block
from appliance.store import ParsedMeta, Scope, Store
from appliance.text.chunk import chunk
from tests.doubles import ScriptedEngine

LIBRARY = "图书馆周末上午九点开门，下午五点关门。借书需要读者证。"
CANTEEN = "食堂十一点半开饭，星期四只有素菜。"
BOARD = "The RiverBoard draws twelve volts through a barrel connector."


class PlacedEngine(ScriptedEngine):
    """Embeds every text that holds a key at that key's place, other texts far from all of them."""

    def __init__(self, places: dict[str, Sequence[float]]) -> None:
        super().__init__(n_embd=4)
        self.places = places

    def embed(self, texts: Sequence[str], kind: str, priority: Priority) -> npt.NDArray[np.float32]:
        rows = []
        for text in texts:
            found = [place for key, place in self.places.items() if key in text]
            rows.append(found[0] if found else (0.0, 0.0, 0.0, 1.0))
        matrix = np.asarray(rows, np.float32)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "a.db")
    yield opened
    opened.close()


def put(store: Store, path: str, *texts: str, max_tokens: int = 64, mtime_ns: int = 1) -> None:
    """Store a document with one block per text, each under its own heading but the first."""
    name, raw = path.encode(), "\n".join(texts).encode()
    store.note_file(name, len(raw), mtime_ns)
    digest = hashlib.sha256(raw).digest()
    if store.link_existing(name, digest) is None:
        blocks = [Block(text, line_from=n, line_to=n) for n, text in enumerate(texts, 1)]
        passages = chunk(blocks, max_tokens=max_tokens, overlap_tokens=max_tokens // 4)
        store.commit_document(
            name, digest, len(raw), ParsedMeta(path.rsplit(".", 1)[-1], path), passages
        )


def embed(store: Store, engine: ScriptedEngine) -> None:
    while pending := store.pending_embeddings(16):
        texts = [text for _, text in pending]
        matrix = engine.embed(texts, "passage", Priority.INGEST_EMBED)
        store.add_vectors(engine.embedder_id, [pid for pid, _ in pending], matrix)
    store.finish_documents()


def ask(
    store: Store, query: str, engine: ScriptedEngine | None = None, collection: str | None = None
) -> SearchResult:
    retriever = Retriever(store, engine or ScriptedEngine(), SearchConfig())
    return retriever.search(query, collection=collection)


DOCUMENTS = {"library.txt": LIBRARY, "canteen.txt": CANTEEN, "board.txt": BOARD}


def fill(store: Store, documents: dict[str, str] = DOCUMENTS) -> ScriptedEngine:
    engine = ScriptedEngine()
    for n, (path, text) in enumerate(documents.items(), 1):
        put(store, path, text, mtime_ns=n * 10**9)
    embed(store, engine)
    return engine


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("图书馆周末几点关门？", "library.txt"),
        ("圖書館週末幾點關門？", "library.txt"),
        ("食堂星期四有什么菜？", "canteen.txt"),
        ("饭", "canteen.txt"),
        ("How many volts does the RiverBoard draw?", "board.txt"),
        ("ＲＩＶＥＲＢＯＡＲＤ", "board.txt"),
        ("What connectors does the riverboard have?", "board.txt"),
    ],
)
def test_question_finds_its_document(store: Store, query: str, path: str) -> None:
    engine = fill(store)

    result = ask(store, query, engine)

    assert result.hits[0].path == path
    assert [hit.rank for hit in result.hits] == list(range(1, len(result.hits) + 1))


@pytest.mark.parametrize(
    "query", ["图书馆周末几点关门？", "How many volts does the RiverBoard draw?"]
)
def test_answerable_question_clears_the_bar_and_a_foreign_one_does_not(
    store: Store, query: str
) -> None:
    engine = fill(store)

    assert ask(store, query, engine).outcome is None
    for foreign in ("法国的首都是哪里？", "Who won the football championship?"):
        assert ask(store, foreign, engine).outcome == "nothing_relevant"


@pytest.mark.parametrize("state", ["loading", "failed"])
def test_keywords_answer_while_the_embedder_does_not(store: Store, state: str) -> None:
    fill(store)
    engine = ScriptedEngine(state=state)  # type: ignore[arg-type]

    result = ask(store, "图书馆周末几点关门？", engine)

    assert (result.hits[0].path, result.outcome) == ("library.txt", None)
    assert set(result.hits[0].arms) == {"keyword"}
    assert result.relevance.closeness is None


def test_text_is_found_before_it_has_vectors(store: Store) -> None:
    put(store, "library.txt", LIBRARY)

    result = ask(store, "图书馆周末几点关门？")

    assert (result.hits[0].path, result.outcome) == ("library.txt", None)


def test_reason_for_nothing_is_the_true_one(store: Store) -> None:
    query = "图书馆周末几点关门？"
    assert ask(store, query).outcome == "no_documents"

    store.note_file(b"new.txt", 1, 1)
    assert (ask(store, query).outcome, ask(store, query).facts) == ("indexing", {"n_pending": 1})

    store.forget_file(b"new.txt")
    put(store, "canteen.txt", CANTEEN)
    embed(store, ScriptedEngine())
    assert ask(store, query).outcome == "nothing_relevant"
    assert ask(store, query, collection="lessons").outcome == "no_documents"

    other = ScriptedEngine(embedder_id="another")
    result = ask(store, query, other)
    assert (result.outcome, result.facts) == (
        "embedder_changed",
        {"indexed_with": "scripted-ngrams-1"},
    )


def test_exact_code_goes_before_everything_else(store: Store) -> None:
    put(store, "near.txt", "发票 INV-2024-002 和发票 INV-2024-003，发票发票发票的总额。")
    put(store, "exact.txt", "附录里提到的单据还有 INV-2024-001，见下页。" + CANTEEN)
    put(store, "long.txt", "参考文献按照 GB/T 7714-2015 著录。")
    put(store, "other.txt", "GB/T 7713 与参考文献的著录无关；2015 年 7714 份。")
    engine = ScriptedEngine()
    embed(store, engine)

    assert ask(store, "发票 inv-2024-001 的总额", engine).hits[0].path == "exact.txt"
    assert ask(store, "GB/T 7714-2015", engine).hits[0].path == "long.txt"
    assert ask(store, "GB/T 7714 参考文献著录", engine).hits[0].path == "long.txt"
    assert ask(store, "GB/T 7714 参考文献著录", engine).outcome is None


def test_code_that_stands_nowhere_is_refused_however_close_the_rest(store: Store) -> None:
    put(store, "a.txt", "发票 INV-2024-001 的总额是三百元。")
    engine = ScriptedEngine()
    embed(store, engine)

    result = ask(store, "发票 INV-2024-009 的总额是多少？", engine)

    assert result.outcome == "nothing_relevant"
    assert result.relevance.missing_codes == ("inv2024009",)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What was built in 2024?", "The new gym was built during summer 2024."),
        ("GB 18030 是什么编码？", "GB18030 是一种汉字编码。"),
        ("GB18030 是什么编码？", "GB 18030 是一种汉字编码。"),
        ("Which card holds 2.5GB of maps?", "The card holds maps, 2.5 GB of them."),
    ],
)
def test_code_or_number_written_another_way_is_no_reason_to_refuse(
    store: Store, question: str, text: str
) -> None:
    put(store, "a.txt", text)
    put(store, "b.txt", LIBRARY)

    result = ask(store, question)

    assert (result.hits[0].path, result.outcome) == ("a.txt", None)


def test_neighbours_of_a_hit_join_it_and_shared_sentences_stand_once(store: Store) -> None:
    text = "".join(f"第{n}条规定说图书馆的读者证有效期为{n}年。" for n in range(1, 13))
    put(store, "rules.txt", text, max_tokens=60)
    n_passages = store.stats()["passages"]

    hits = ask(store, "图书馆读者证有效期").hits

    assert n_passages > 3
    assert len(hits) == 1
    assert hits[0].text == text


def test_neighbours_on_another_page_stay_apart(store: Store) -> None:
    store.note_file(b"a.pdf", 1, 1)
    blocks = [Block("图书馆读者证第一页。", page=1), Block("图书馆读者证第二页。", page=2)]
    store.commit_document(b"a.pdf", b"x" * 32, 1, ParsedMeta("pdf", "a"), chunk(blocks))

    hits = ask(store, "图书馆读者证").hits

    assert sorted((hit.page, hit.text) for hit in hits) == [
        (1, "图书馆读者证第一页。"),
        (2, "图书馆读者证第二页。"),
    ]


def test_same_text_in_two_documents_is_one_hit(store: Store) -> None:
    put(store, "a.txt", LIBRARY)
    store.note_file(b"b.txt", 1, 1)
    passages = chunk([Block(LIBRARY)])
    store.commit_document(b"b.txt", b"y" * 32, 1, ParsedMeta("md", "b"), passages)

    assert len(ask(store, "图书馆周末几点关门？").hits) == 1


def test_collection_holds_its_folders_and_names_its_own_file(store: Store) -> None:
    put(store, "one/library.txt", LIBRARY)
    put(store, "two/deep/library.txt", LIBRARY)
    put(store, "Two/canteen.txt", CANTEEN)
    put(store, "twofold/board.txt", BOARD)
    engine = ScriptedEngine()
    embed(store, engine)

    found = ask(store, "图书馆周末几点关门？", engine, collection="two")

    assert [hit.path for hit in found.hits] == ["two/deep/library.txt"]
    assert found.outcome is None
    assert ask(store, "图书馆周末几点关门？", engine, collection="Two").outcome is not None
    assert {hit.path for hit in ask(store, "RiverBoard", engine, collection="two").hits} <= {
        "two/deep/library.txt"
    }


def test_question_in_another_language_follows_the_vectors(store: Store) -> None:
    right, wrong = (1.0, 0.0, 0.0, 0.0), (0.6, 0.8, 0.0, 0.0)
    engine = PlacedEngine({"关门": right, "WiFi": wrong, "library": right})
    put(store, "library.txt", LIBRARY)
    put(store, "wifi.txt", "WiFi 密码请问 library 前台。")
    put(store, "canteen.txt", CANTEEN)
    embed(store, engine)

    hits = ask(store, "When does the library close on weekends?", engine).hits

    assert hits[0].path == "library.txt", "one shared word outweighed the meaning"
    assert "keyword" in hits[1].arms


def test_deleted_document_is_not_found_by_any_arm(store: Store) -> None:
    engine = fill(store)

    store.forget_file(b"library.txt")

    result = ask(store, "图书馆周末几点关门？", engine)
    assert "library.txt" not in {hit.path for hit in result.hits}
    assert result.outcome == "nothing_relevant"


@pytest.mark.parametrize("query", ["", "   ", "？！", '"', "a" * 5000, "的" * 3000, "\x00"])
def test_odd_query_finds_nothing_or_something_but_never_breaks(store: Store, query: str) -> None:
    engine = fill(store)
    engine.count_embed_tokens = lambda _text: 1  # type: ignore[method-assign,assignment,return-value]

    result = ask(store, query, engine)

    assert all(hit.text for hit in result.hits)


def test_json_has_the_contracts_keys(store: Store) -> None:
    engine = fill(store)

    found = ask(store, "图书馆周末几点关门？", engine).as_json()

    assert set(found["hits"][0]) == {
        "rank",
        "document",
        "path",
        "page",
        "heading",
        "line_from",
        "line_to",
        "place",
        "score",
        "text",
        "also",
        "passage",
        "arms",
    }
    assert found["hits"][0]["arms"]["keyword"]["rank"] == 1
    assert (found["hits"][0]["line_from"], found["hits"][0]["line_to"]) == (1, 1)


@pytest.mark.parametrize("typed", ["jiaoan", "jiao an", "JiaoAn", "ja"])
def test_pinyin_finds_the_chinese_word(store: Store, typed: str) -> None:
    engine = fill(store, {"a.txt": "教案下载在校园网首页。", "b.txt": "食堂六点开门。"})

    found = ask(store, typed, engine)

    assert found.query == typed
    assert found.outcome is None
    assert found.hits[0].path == "a.txt"


def test_english_question_is_never_read_as_pinyin(store: Store) -> None:
    engine = fill(store, {"a.txt": "嫦娥的故事。", "b.txt": "change of rooms is announced."})

    found = ask(store, "how to change", engine)

    assert found.explanation is not None
    assert found.explanation.read_as == "how to change"


def test_near_copies_are_one_hit_that_names_them(store: Store) -> None:
    text = "图书馆的开放时间由教务处决定，周末和假期另行通知，请各位老师和同学留意门口的公告栏。"
    engine = fill(store, {"a.txt": text, "b.txt": text.replace("请各位", "请"), "c.txt": "食堂。"})

    (first, *rest) = ask(store, "图书馆开放时间", engine).hits

    assert {first.path, *first.also} == {"a.txt", "b.txt"}
    assert "b.txt" not in {hit.path for hit in rest} - {first.path}


def test_copies_with_other_numbers_stay_apart(store: Store) -> None:
    text = "图书馆的开放时间由教务处决定，{}年起周末和假期另行通知，请各位老师和同学留意公告栏。"
    engine = fill(store, {"a.txt": text.format(2025), "b.txt": text.format(2026)})

    hits = ask(store, "图书馆开放时间", engine).hits

    assert [hit.path for hit in hits if not hit.also] == [hit.path for hit in hits]
    assert len(hits) == 2


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        (Scope(formats=("md",)), {"m.md"}),
        (Scope(path="学校/*"), {"学校/a.txt"}),
        (Scope(path="a.t"), {"学校/a.txt"}),
        (Scope(since=1.5), {"m.md"}),
        (Scope(until=1.5), {"学校/a.txt"}),
        (Scope(collection="学校", formats=("md",)), set()),
    ],
)
def test_scope_narrows_both_arms(store: Store, scope: Scope, wanted: set[str]) -> None:
    engine = fill(store, {"学校/a.txt": "图书馆五点关门。", "m.md": "图书馆六点关门。"})

    found = Retriever(store, engine, SearchConfig()).search("图书馆几点关门", scope=scope)

    assert {hit.path for hit in found.hits} == wanted
