from __future__ import annotations

import threading
import time
import unicodedata
from pathlib import Path

import gguf
import numpy as np
import pytest

from appliance.engine.base import Priority
from appliance.engine.embedding import (
    E5,
    PLAIN,
    QWEN3,
    EmbedJob,
    EmbedQueue,
    dressing_for,
    shortened,
    unit_length,
)
from appliance.engine.llama import LlamaEngine
from appliance.errors import ContextOverflowError, EngineError, EngineStoppedError
from tests.engine.conftest import MakeEngine, finished, raw
from tests.starters import E5 as E5_FILE
from tests.starters import starter
from tests.tiny_gguf import write_tiny_llama

PASSAGES = [
    "OrangePi AIPro 开发板板载 8GB LPDDR4X 内存。",
    "The school library opens at eight in the morning.",
    "请假须提前一天向班主任提交书面申请。",
    "Ascend 310B 的算力为 8 TOPS。",
    "短",
    "A longer passage about nothing in particular. " * 40,
]


def job(*lengths: int) -> EmbedJob:
    return EmbedJob([np.arange(length, dtype=np.int32) for length in lengths], 4)


def test_texts_of_a_call_are_taken_shortest_first_up_to_the_budget() -> None:
    queue = EmbedQueue()
    queue.add(job(50, 10, 30))

    assert [row for _job, row in queue.take(64, 8)] == [1, 2]
    assert [row for _job, row in queue.take(64, 8)] == [0]
    assert queue.take(64, 8) == []


def test_text_longer_than_the_budget_goes_alone() -> None:
    queue = EmbedQueue()
    queue.add(job(500))

    assert len(queue.take(32, 8)) == 1


def test_unfinished_texts_return_to_the_front_in_order() -> None:
    queue = EmbedQueue()
    first, second = job(1, 2), job(1)
    queue.add(first)
    queue.add(second)

    queue.put_back(queue.take(3, 8))

    assert [(j is first, row) for j, row in queue.take(100, 8)] == [
        (True, 0),
        (True, 1),
        (False, 0),
    ]


def test_texts_of_a_failed_call_are_dropped() -> None:
    queue = EmbedQueue()
    bad, good = job(1, 2), job(3)
    queue.add(bad)
    queue.add(good)
    bad.fail(EngineStoppedError(state="stopped"))

    assert [j is good for j, _row in queue.take(100, 8)] == [True]


def test_dressing_follows_the_model() -> None:
    assert dressing_for("multilingual-e5-small", "bert") is E5
    assert dressing_for("Qwen3 Embedding 0.6B", "qwen3") is QWEN3
    assert dressing_for("bge-small-zh-v1.5", "bert") is PLAIN
    assert E5.dress("ＡＢＣ①", "query") == "query: ABC1"
    assert E5.dress("文", "passage") == "passage: 文"


@pytest.mark.parametrize(
    "vector", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 0.0]], ids=["zero", "nan", "inf"]
)
def test_vector_without_a_direction_is_no_vector(vector: list[float]) -> None:
    assert unit_length(np.array(vector, dtype=np.float32)) is None


def embed(engine: LlamaEngine, texts: list[str], kind: str = "passage") -> np.ndarray:  # type: ignore[type-arg]
    return engine.embed(texts, kind, Priority.INGEST_EMBED)  # type: ignore[arg-type]


@pytest.mark.model
def test_batched_embeddings_equal_single_ones_in_order(qwen: LlamaEngine) -> None:
    together = embed(qwen, PASSAGES)
    alone = np.concatenate([embed(qwen, [passage]) for passage in PASSAGES])

    assert together.shape == (len(PASSAGES), qwen.n_embd) == (6, 384)
    assert together.dtype == np.float32
    assert together.flags.c_contiguous
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.min(np.sum(together * alone, axis=1)) > 0.9999


@pytest.mark.model
def test_nearest_passage_answers_the_question_in_both_languages(qwen: LlamaEngine) -> None:
    passages = embed(qwen, PASSAGES)
    questions = [
        "这块板子有多大内存？",
        "When does the library open?",
        "学生怎么请假？",
        "算力是多少？",
    ]

    best = (embed(qwen, questions, "query") @ passages.T).argmax(axis=1).tolist()

    assert best == [0, 1, 2, 3]


@pytest.mark.model
def test_full_width_text_embeds_as_its_normal_form(qwen: LlamaEngine) -> None:
    wide = "ＩＮＶ－２０２４－００１　第①章"

    vectors = embed(qwen, [wide, unicodedata.normalize("NFKC", wide)])

    assert float(vectors[0] @ vectors[1]) > 0.99999


@pytest.mark.model
def test_query_and_passage_are_dressed_differently(qwen: LlamaEngine) -> None:
    passage, query = embed(qwen, ["内存"])[0], embed(qwen, ["内存"], "query")[0]

    assert 0.5 < float(passage @ query) < 0.9999


@pytest.mark.model
def test_text_longer_than_the_embedder_takes_is_refused_with_both_numbers(
    qwen: LlamaEngine,
) -> None:
    text = "很长的文字" * 400
    n_before = qwen.status().texts_embedded

    with pytest.raises(ContextOverflowError) as caught:
        embed(qwen, ["short", text])

    assert caught.value.facts == {
        "n_prompt_tokens": int(qwen.count_embed_tokens(text)),
        "n_ctx": 512,
    }
    assert qwen.status().texts_embedded == n_before


@pytest.mark.model
def test_text_of_exactly_the_limit_is_embedded(qwen: LlamaEngine) -> None:
    words = "word " * 600
    while qwen.count_embed_tokens(words) > 512:
        words = words[:-5]

    assert qwen.count_embed_tokens(words) > 505
    assert embed(qwen, [words]).shape == (1, 384)


@pytest.mark.model
def test_counter_counts_texts_and_no_texts_is_no_work(qwen: LlamaEngine) -> None:
    before = qwen.status().texts_embedded

    assert embed(qwen, []).shape == (0, 384)
    embed(qwen, PASSAGES[:3])

    assert qwen.status().texts_embedded == before + 3


@pytest.mark.model
def test_embedder_identity_names_model_bytes_and_dressing(qwen: LlamaEngine) -> None:
    assert qwen.embedder_id == "multilingual-e5-small:72c3d352d5c29033:e5"


@pytest.mark.model
def test_chat_goes_first_and_ingestion_takes_turns_between_its_steps(
    qwen: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    chat_step, embed_step = qwen._answers.step, qwen._vectors.step

    def noted_chat(*, may_prefill: bool) -> None:
        order.append("chat")
        chat_step(may_prefill=may_prefill)

    def noted_embed(source: EmbedQueue) -> None:
        order.append("ingest")
        embed_step(source)

    monkeypatch.setattr(qwen._answers, "step", noted_chat)
    monkeypatch.setattr(qwen._vectors, "step", noted_embed)
    texts = [PASSAGES[5]] * 40
    ingestion = threading.Thread(target=embed, args=(qwen, texts))

    answer = qwen.generate(raw("从一数到五十：1，2，", 60))
    ingestion.start()
    assert finished(list(answer)).usage.completion_tokens == 60
    during = order[: len(order) - order[::-1].index("chat")]
    ingestion.join(120)

    assert not ingestion.is_alive()
    assert "ingest,ingest" not in ",".join(during)
    assert during.count("ingest") < during.count("chat") / 3
    assert order.count("ingest") >= 8


@pytest.mark.model
def test_question_is_embedded_before_the_documents_that_wait(
    qwen: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    embed_step = qwen._vectors.step

    def noted(source: EmbedQueue) -> None:
        taken.append("query" if source is qwen._vectors.queries else "ingest")
        embed_step(source)

    monkeypatch.setattr(qwen._vectors, "step", noted)
    ingestion = threading.Thread(target=embed, args=(qwen, [PASSAGES[5]] * 40))
    ingestion.start()
    deadline = time.monotonic() + 30
    while "ingest" not in taken:
        assert time.monotonic() < deadline
        time.sleep(0.001)

    qwen.embed(["内存多大？"], "query", Priority.QUERY_EMBED)
    n_before = taken.index("query")
    ingestion.join(120)

    assert n_before < taken.count("ingest")


def _anonymous_mib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no RssAnon")


@pytest.mark.model
def test_embedder_needs_little_memory_besides_its_weights(make_engine: MakeEngine) -> None:
    # llama.cpp alone: 122 MB of tokenizer and 512 MB of logits that nobody reads
    before = _anonymous_mib()

    engine = make_engine(None, starter(E5_FILE))
    embed(engine, ["很长的文字" * 90] * 16)

    assert _anonymous_mib() - before < 90


@pytest.mark.model
def test_line_break_does_not_change_what_a_passage_means(qwen: LlamaEngine) -> None:
    broken, joined = embed(qwen, ["开发板的\n内存为\n8GB。", "开发板的 内存为 8GB。"])

    assert float(broken @ joined) > 0.99999


# --------------------------------------------------------------------------------------------------
# fewer dimensions


def test_nested_vectors_are_cut_and_of_length_one_again() -> None:
    vectors = np.array([[0.6, 0.0, 0.8], [0.0, 0.6, 0.8]], dtype=np.float32)

    cut = shortened(vectors, 2, "Qwen3-Embedding:00:qwen3")

    assert cut.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert shortened(vectors, None, "any:00:e5") is vectors
    assert shortened(vectors, 3, "any:00:e5") is vectors


@pytest.mark.parametrize(("n", "model"), [(2, "e5:00:e5"), (0, "q:00:qwen3"), (4, "q:00:qwen3")])
def test_dimensions_that_the_model_does_not_have_are_refused(n: int, model: str) -> None:
    with pytest.raises(EngineError) as caught:
        shortened(np.ones((1, 3), dtype=np.float32), n, model)

    assert (caught.value.code, caught.value.facts["dimensions"]) == ("bad_dimensions", n)


# --------------------------------------------------------------------------------------------------
# pooling


def embedder(make_engine: MakeEngine, folder: Path, pooling: gguf.PoolingType) -> LlamaEngine:
    path = write_tiny_llama(folder / f"{pooling.name}.gguf", pooling=pooling)
    return make_engine(None, path, embed_batch=256)


@pytest.mark.parametrize("pooling", [gguf.PoolingType.MEAN, gguf.PoolingType.LAST])
def test_vectors_are_the_same_alone_and_in_a_batch(
    make_engine: MakeEngine, tmp_path: Path, pooling: gguf.PoolingType
) -> None:
    engine = embedder(make_engine, tmp_path, pooling)
    texts = ["a", "b" * 50, "中文" * 20, "c" * 90, "d"] * 3

    together = engine.embed(texts, "passage", Priority.QUERY_EMBED)
    alone = np.vstack([engine.embed([text], "passage", Priority.QUERY_EMBED) for text in texts])

    np.testing.assert_allclose(together, alone, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_last_pooling_sees_the_end_and_mean_pooling_everything(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    vectors = {
        pooling: embedder(make_engine, tmp_path, pooling).embed(
            ["x" * 40 + "a", "x" * 40 + "b"], "passage", Priority.QUERY_EMBED
        )
        for pooling in (gguf.PoolingType.MEAN, gguf.PoolingType.LAST)
    }

    near = {pooling: float(pair[0] @ pair[1]) for pooling, pair in vectors.items()}
    assert near[gguf.PoolingType.MEAN] > 0.95 > near[gguf.PoolingType.LAST]
