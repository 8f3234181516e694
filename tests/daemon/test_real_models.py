"""The whole box as users have it: child process, starter models, official client, no network."""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from appliance.units import MIB
from tests.box import APPLIANCE, Box
from tests.starters import E5, QWEN, SMOLLM, starter
from tests.tiny_gguf import write_tiny_llama

pytestmark = [pytest.mark.model, pytest.mark.slow]

LIBRARY = "图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。\n"
SMALL = "models:\n  generation: smollm2-135m-instruct\nengine:\n  n_ctx: 2048\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box that answers with SmolLM2, which is quick and speaks English only."""
    starter(SMOLLM)
    starter(E5)
    with Box(tmp_path_factory.mktemp("small") / "box", config=SMALL) as running:
        running.wait_model()
        yield running


@pytest.fixture
def client(small: Box) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{small.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def test_official_client_chats_whole_and_streamed(client: openai.OpenAI) -> None:
    asked = [{"role": "user", "content": "Say hello in one short sentence."}]

    whole = client.chat.completions.create(
        model="smollm2-135m-instruct",
        messages=asked,  # type: ignore[arg-type]
        max_tokens=24,
        temperature=0,
    )
    chunks = list(
        client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=asked,  # type: ignore[arg-type]
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert whole.choices[0].message.content == streamed != ""
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens > 0


def test_official_client_embeds_near_what_means_the_same(client: openai.OpenAI) -> None:
    texts = ["图书馆几点关门？", "When does the library close?", "The motor runs on 12 V."]

    rows = [
        item.embedding
        for item in client.embeddings.create(model="multilingual-e5-small", input=texts).data
    ]

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert cosine(rows[0], rows[1]) > cosine(rows[0], rows[2])
    assert all(abs(cosine(row, row) - 1) < 1e-4 for row in rows)


def test_file_added_while_the_box_was_off_is_ready_without_a_click(small: Box) -> None:
    small.stop()
    (small.inbox / "图书馆.txt").write_text(LIBRARY, encoding="utf-8")

    began = time.monotonic()
    small.start()
    small.wait()

    assert time.monotonic() - began < 60
    assert small.json("kb", "stats")["by_state"]["ready"] >= 1
    small.wait_model()


def test_idle_memory_without_weights_and_cache_is_below_150_mib(box: Box) -> None:
    (box.inbox / "图书馆.txt").write_text(LIBRARY, encoding="utf-8")
    box.wait()
    box.wait_model()

    # What loading freed is given back when the daemon next looks, at the latest after a second.
    until(lambda: own_memory(box) < 150 * MIB, timeout_s=20)

    print(f"own {own_memory(box) / MIB:.1f} MiB")


def own_memory(box: Box) -> int:
    return int(box.client.get("/api/status")["memory"]["own"])


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model folder with the real embedder and no answering model."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / E5).symlink_to(starter(E5))
    return folder


def truncated(folder: Path) -> tuple[str, str]:
    with starter(SMOLLM).open("rb") as whole:
        (folder / "cut.gguf").write_bytes(whole.read(8 * MIB))
    return str(folder / "cut.gguf"), "model_truncated"


def foreign(folder: Path) -> tuple[str, str]:
    good = write_tiny_llama(folder / "foreign.gguf", n_embd=32, n_layer=1)
    good.write_bytes(good.read_bytes().replace(b"llama", b"alien"))
    return str(good), "model_unsupported"


def absent(_folder: Path) -> tuple[str, str]:
    return "qwen2.5-coder-0.5b-instruct", "model_missing"


@pytest.mark.parametrize("make", [truncated, foreign, absent], ids=lambda make: make.__name__)
def test_box_with_an_unusable_model_searches_and_says_why(
    tmp_path: Path, models: Path, make: object
) -> None:
    name, code = make(models)  # type: ignore[operator]
    box = Box(
        tmp_path / "box",
        config=f"models:\n  generation: {name}\n",
        environ={"APPLIANCE_MODELS": str(models)},
    )
    (box.inbox / "图书馆.txt").write_text(LIBRARY, encoding="utf-8")

    with box:
        box.wait()
        box.wait_model()
        status = box.json("status")
        hit = box.json("kb", "search", "周末几点关门")["hits"][0]
        asked = box.run("ask", "图书馆周末几点关门？", "--json")

        assert status["state"] == "degraded"
        assert [problem["code"] for problem in status["problems"]] == [code]
        assert status["problems"][0]["message"]
        assert hit["path"] == "图书馆.txt"
        assert set(hit["arms"]) == {"keyword", "dense"}
        assert asked.returncode == 1
        assert json.loads(asked.stdout)["error"]["code"] == code
        assert "Traceback" not in box.log()


def until(claim: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Wait until something is true; returns the seconds that took."""
    began = time.monotonic()
    while not claim():
        assert time.monotonic() - began < timeout_s, "still not true"
        time.sleep(0.01)
    return time.monotonic() - began


def test_client_that_leaves_during_a_long_prefill_frees_the_engine_within_a_second(
    box: Box,
) -> None:
    box.wait_model()
    host, port = box.url.removeprefix("http://").split(":")
    freed_s: list[float] = []

    for n in range(10):
        # About 6,000 tokens; the number in front keeps the prompt cache out of it.
        prompt = f"{n} " + "The library is open today. " * 1000
        body = {
            "model": "qwen2.5-coder-0.5b-instruct",
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
        }
        before = box.client.get("/api/status")["counters"]["tokens_prefilled"]
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        until(lambda b=before: box.client.get("/api/status")["counters"]["tokens_prefilled"] > b)  # type: ignore[misc]
        connection.sock.close()
        connection.close()
        freed_s.append(until(lambda: box.client.get("/api/status")["queue"]["running"] == 0))

    print(f"freed after {sorted(round(s, 3) for s in freed_s)} s")
    assert statistics.median(freed_s) < 1.0


def test_box_in_an_empty_network_reads_and_answers_and_nothing_leaves(tmp_path: Path) -> None:
    starter(QWEN)
    starter(E5)
    trace = tmp_path / "trace"
    watched = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", str(trace))
    calls = ("-e", "trace=connect,sendto,sendmsg,sendmmsg")
    # A user of this name space is its root, and so may make a network for it.
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    alone = ("unshare", *as_root, "-n", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("an empty network needs root or user name spaces")
    box = Box(tmp_path / "box", prefix=(*alone, *watched, *calls))
    (box.inbox / "图书馆.txt").write_bytes(LIBRARY.encode("gb18030"))

    def inside(*arguments: str) -> str:
        done = subprocess.run(
            [
                *(
                    "nsenter",
                    "-t",
                    str(box.pid),
                    *(("-U", "--preserve-credentials") if as_root else ()),
                ),
                *("-n", "--", *APPLIANCE, *arguments, "--data", str(box.data)),
            ],
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with box:
        inside("kb", "wait", "--timeout", "120")
        answer = json.loads(inside("ask", "--json", "图书馆周末几点关门？"))

    assert answer["citations"][0]["path"] == "图书馆.txt"
    text = trace.read_text(encoding="utf-8", errors="replace")
    assert "sendto(" in text  # replies to the client: the trace works
    addresses = re.findall(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"', text)
    assert [a for a in addresses if not (a[0].startswith("127.") or a[1] == "::1")] == []
