"""The real daemon on the simulated board: what it chooses, says, and how it outlives faults."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from appliance.models.e5 import repack
from tests.box import Box
from tests.native.conftest import ROOT, Npu, calls
from tests.tiny_e5 import write_e5s1
from tests.tiny_gguf import write_tiny_llama

OUT_OF_MEMORY = 207001
NOTE = "The pump runs at 12 V. 水泵的工作电压是 12 V。\n"
N_ANSWER = 24
LATER = 3000  # launches: after the load, the note's vectors and one whole answer


class NpuBox:
    """A box whose data folder, tiny models and simulated board a test arranges.

    Args:
        npu: plugin and toolkit.
        folder: where everything goes.
    """

    def __init__(self, npu: Npu, folder: Path) -> None:
        self.npu = npu
        self.folder = folder
        self.model = write_tiny_llama(folder / "tiny.gguf", is_half=True)
        self.embedder = folder / "e5.gguf"
        repack(write_e5s1(folder / "e5.bin"), self.embedder)

    @property
    def trace_path(self) -> Path:
        """The simulator's trace of every box of this test."""
        return self.folder / "trace.jsonl"

    def make(
        self,
        name: str = "box",
        *,
        device: str = "auto",
        settings: dict[str, Any] | None = None,
        sim: dict[str, Any] | None = None,
        toolkit: Path | None = None,
        has_plugin_path: bool = True,
    ) -> Box:
        """Return a box that is not started yet; ``has_plugin_path`` False leaves it to be found."""
        lines = [
            f"models: {{generation: {self.model}, embedding: {self.embedder}}}",
            f"engine: {{device: {device}, n_ctx: 512, n_slots: 1, n_threads: 1,"
            f" plugin: {self.npu.plugin if has_plugin_path else 'null'}}}",
            f"device: {json.dumps({'timeout_s': 5, **(settings or {})})}",
        ]
        config = {"memory_mb": 4096, "used_mb": 512, "threads": 1, **(sim or {})}
        box = Box(
            self.folder / name,
            config="\n".join(lines) + "\n",
            environ={
                "ASCEND_TOOLKIT_HOME": str(toolkit or self.npu.toolkit),
                "ACL_SIM_CONFIG": json.dumps({"trace": str(self.trace_path), **config}),
            },
        )
        (box.inbox / "pump.txt").write_text(NOTE, encoding="utf-8")
        return box

    def calls(self) -> dict[str, int]:
        """Return how often each ACL call was made."""
        lines = self.trace_path.read_text(encoding="utf-8").splitlines()
        return dict(calls([json.loads(line) for line in lines]))


@pytest.fixture
def npu_box(npu: Npu, tmp_path: Path) -> NpuBox:
    return NpuBox(npu, tmp_path)


def completion(box: Box, lang: str = "en") -> dict[str, Any]:
    """Ask the bare model for a greedy answer; returns the reply, an error's too."""
    body = {"model": "tiny", "prompt": "pump", "max_tokens": N_ANSWER, "temperature": 0}
    headers = {"Content-Type": "application/json", "Accept-Language": lang}
    where = urlsplit(box.url)
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    return found


def answer(box: Box) -> str:
    found = completion(box)
    assert "choices" in found, f"{found}\n{box.log()}"
    return str(found["choices"][0]["text"])


def failures(box: Box, n: int = 30, lang: str = "en") -> list[dict[str, Any]]:
    """Ask until something fails and a while longer; return the errors (code, message)."""
    replies = [completion(box, lang) for _ in range(n)]
    return [reply["error"] for reply in replies if "error" in reply]


def status(box: Box) -> dict[str, Any]:
    found: dict[str, Any] = box.client.get("/api/status")
    return found


def until(box: Box, claim: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim(status(box)):
        assert time.monotonic() < deadline, f"{status(box)}\n{box.log()}"
        time.sleep(0.05)


def is_settled(found: dict[str, Any]) -> bool:
    return bool(found["models"]["generation"]["state"] != "loading")


def is_on_npu(box: Box) -> bool:
    return bool(status(box)["device"]["name"].startswith("Ascend310B"))


def assert_search_works(box: Box) -> None:
    hits = box.client.get("/api/search", {"q": "水泵 12 V"})["hits"]
    assert [hit["path"] for hit in hits] == ["pump.txt"]


def stop_cleanly(box: Box) -> None:
    """End the box with SIGTERM; the simulator must have had nothing to say."""
    assert box.stop() == 0, box.log()
    assert "acl-sim:" not in box.log(), box.log()
    assert "Traceback" not in box.log(), box.log()


# --------------------------------------------------------------------------------------------------
# what is chosen, and what is said


def test_bench_never_calls_a_figure_of_the_simulator_measured(npu_box: NpuBox) -> None:
    # The tiny embedder's context is too short for the bench's passages; it is not asked about.
    npu_box.embedder = npu_box.folder / "none.gguf"
    rows = npu_box.make().json("bench", "--quick")["answers"]
    assert {row["device"]: row["kind"] for row in rows} == {"cpu": "measured", "cann": "simulated"}


def test_auto_runs_on_the_npu_and_sigterm_resets_and_finalizes_once(npu_box: NpuBox) -> None:
    with npu_box.make() as box:
        box.wait()
        box.wait_model()
        found = status(box)["device"]
        said = answer(box)
        assert_search_works(box)
        stop_cleanly(box)

    assert found["name"] == "Ascend310B4"
    assert found["layout"] == "dual"
    assert "MB were free" in found["layout_reason"]
    assert found["memory"]["used"] > 0
    assert len(said) > 0
    count = npu_box.calls()
    assert (count["aclInit"], count["aclFinalize"]) == (1, 1)
    assert (count["aclrtSetDevice"], count["aclrtResetDevice"]) == (1, 1)
    assert count["aclrtMalloc"] == count["aclrtFree"]


def test_plugin_of_the_build_folder_is_found_without_being_named(npu_box: NpuBox) -> None:
    if npu_box.npu.plugin.parent != ROOT / "build/native":
        pytest.skip("NATIVE_BUILD names another build folder")
    with npu_box.make(has_plugin_path=False) as box:
        box.wait_model()

        assert is_on_npu(box)


def test_cpu_and_npu_give_the_same_answer(npu_box: NpuBox) -> None:
    said = []
    for device in ("cann", "cpu"):
        with npu_box.make(device, device=device) as box:
            box.wait_model()
            said.append(answer(box))
            assert is_on_npu(box) == (device == "cann")

    # A random model has flat tops: one near-tie may fall either way, after which both go on alone.
    assert said[0][:4] == said[1][:4] != ""


@pytest.mark.parametrize(
    ("settings", "sim", "layout", "reason"),
    [
        ({"layout": "nd"}, {}, "nd", "configuration"),
        ({"layout": "dual"}, {}, "dual", "configuration"),
        ({"layout": "auto"}, {"memory_mb": 700, "used_mb": 300}, "nd", "were free"),
    ],
    ids=["nd", "dual", "auto-short"],
)
def test_layout_is_what_was_asked_for_and_status_says_why(
    npu_box: NpuBox, settings: dict[str, Any], sim: dict[str, Any], layout: str, reason: str
) -> None:
    with npu_box.make(settings=settings, sim=sim) as box:
        box.wait_model()
        found = status(box)["device"]

    assert found["layout"] == layout
    assert reason in found["layout_reason"]


def test_auto_without_a_toolkit_runs_on_the_cpu_and_says_why(npu_box: NpuBox) -> None:
    with npu_box.make(toolkit=npu_box.folder / "nothing") as box:
        box.wait_model()
        found = status(box)
        screen = box.run("status").stdout
        assert answer(box)

    assert found["state"] == "ready"
    assert found["device"]["name"] == "CPU"
    assert "ASCEND_TOOLKIT_HOME" in found["device"]["reason"]
    assert "ASCEND_TOOLKIT_HOME" in screen


def test_cann_without_a_toolkit_has_no_model_and_still_searches(npu_box: NpuBox) -> None:
    with npu_box.make(device="cann", toolkit=npu_box.folder / "nothing") as box:
        box.wait_model()
        found = status(box)
        box.wait()
        assert_search_works(box)
        errors = failures(box, 1)

    assert found["state"] == "degraded"
    assert [problem["code"] for problem in found["problems"]] == ["npu_absent"]
    assert [error["code"] for error in errors] == ["npu_absent"]


def test_second_process_finds_the_device_busy_and_says_so(npu_box: NpuBox) -> None:
    held = {"exclusive": str(npu_box.folder / "device.lock")}
    with npu_box.make("first", sim=held) as first, npu_box.make("second", sim=held) as second:
        first.wait_model()
        second.restart()
        second.wait_model()
        told = status(second)["device"]
        insisting = npu_box.make("third", device="cann", sim=held)
        with insisting:
            insisting.wait_model()
            refused = status(insisting)["problems"][0]
        assert answer(first)
        assert answer(second)

        stop_cleanly(first)
        second.restart()
        second.wait_model()
        assert is_on_npu(second)  # given back, so it can be had

    assert told["name"] == "CPU"
    assert "another process" in told["reason"]
    assert refused["code"] == "npu_absent"
    assert "another process" in refused["message"]


def test_debug_settings_dump_graphs_and_name_the_operator_that_failed(npu_box: NpuBox) -> None:
    dump = npu_box.folder / "graphs.txt"
    settings = {"graph_dump": str(dump), "sync_each_op": True, "acl_log": "error"}
    fault = {"fault": "aicore_exception", "after_launches": 700}
    with npu_box.make(settings=settings, sim={"faults": [fault]}) as box:
        box.wait_model()
        errors = failures(box)
        assert errors, box.log()

    text = dump.read_text(encoding="utf-8")
    assert "MUL_MAT Qcur-0 f32 [64," in text
    assert "<- blk.0.attn_q.weight f16 [64,64,1,1]" in text
    assert errors[0]["code"] == "device_lost"
    # ACL's code, the call, and the node it belongs to
    found = re.search(
        r"(aclnn\w+) failed with 507015.* in [A-Z_]+ \S+ f32 \[", errors[0]["message"]
    )
    assert found, errors[0]["message"]
    assert "[ERROR] ACL" in box.log()


# --------------------------------------------------------------------------------------------------
# faults


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"fault": "device_lost", "after_launches": LATER}, "507010"),
        ({"fault": "stream_timeout", "after_launches": LATER}, "507046"),
        ({"fault": "aicore_exception", "after_launches": LATER}, "507015"),
    ],
    ids=["device-lost", "stream-timeout", "aicore-exception"],
)
def test_npu_that_fails_in_mid_answer_is_restarted_and_answers_again(
    npu_box: NpuBox, fault: dict[str, Any], words: str
) -> None:
    with npu_box.make(sim={"faults": [fault]}) as box:
        box.wait()
        box.wait_model()
        good = answer(box)
        errors = failures(box)
        assert_search_works(box)
        until(box, is_settled)

        assert errors
        assert errors[0]["code"] == "device_lost"
        assert words in errors[0]["message"]
        assert {error["code"] for error in errors[1:]} <= {"engine_stopped"}  # while it restarts
        assert answer(box) == good
        assert is_on_npu(box)
        found = status(box)
        assert found["device"]["failures"] == 1
        assert words in found["device"]["last_failure"]
        assert found["state"] == "ready"
        stop_cleanly(box)

    count = npu_box.calls()
    assert (count["aclInit"], count["aclFinalize"]) == (1, 1)
    assert count["aclrtResetDevice"] == count["aclrtSetDevice"] == 2


def test_npu_that_fails_for_good_hands_over_to_the_cpu(npu_box: NpuBox) -> None:
    fault = {"fault": "device_lost", "after_launches": LATER, "persistent": True}
    with npu_box.make(sim={"faults": [fault]}) as box:
        box.wait()
        box.wait_model()
        errors = failures(box, lang="zh")
        until(box, is_settled)
        found = status(box)
        chinese = box.run("status", "--lang", "zh").stdout
        assert errors[0]["code"] == "device_lost"
        assert "NPU 在回答过程中出错" in errors[0]["message"]
        assert answer(box)
        assert_search_works(box)
        stop_cleanly(box)

    assert found["state"] == "degraded"
    assert found["device"]["name"] == "CPU"
    assert [problem["code"] for problem in found["problems"]] == ["npu_failed"]
    assert "507010" in found["problems"][0]["message"]
    assert "已改由 CPU 运行" in chinese


def test_npu_is_tried_again_when_idle_and_taken_once_the_fault_is_gone(npu_box: NpuBox) -> None:
    # The second fault waits for the restart: the CPU takes over, and the retry finds a good device.
    faults = [{"fault": "device_lost", "after_launches": n} for n in (LATER, LATER + 1)]
    with npu_box.make(settings={"retry_s": 0.5}, sim={"faults": faults}) as box:
        box.wait_model()
        good = answer(box)
        errors = failures(box)
        assert errors[0]["code"] == "device_lost"

        until(box, lambda found: found["device"]["name"].startswith("Ascend310B"))
        until(box, is_settled)
        assert answer(box) == good
        assert "npu_failed" in box.log()
        stop_cleanly(box)


@pytest.mark.slow
def test_out_of_memory_at_any_allocation_of_the_load_leaves_a_box_that_answers(
    npu_box: NpuBox,
) -> None:
    n_fallen = 0
    for nth in itertools.count(1):
        fault = {"call": "aclrtMalloc", "nth": nth, "code": OUT_OF_MEMORY}
        sim = {"faults": [fault]}
        with npu_box.make(f"box-{nth}", settings={"retry_s": 0.3}, sim=sim) as box:
            box.wait()
            box.wait_model()
            problems = status(box)["problems"]
            assert_search_works(box)
            said = completion(box)  # answered by the CPU, unless the NPU is just being tried again
            assert "choices" in said or said["error"]["code"] in ("engine_stopped", "device_lost")
            # The fault is gone: the NPU has both models in the end.
            until(box, lambda found: is_settled(found) and not found["problems"])
            assert is_on_npu(box)
            assert answer(box)
            fell = "bytes needed" in box.log()
            stop_cleanly(box)
        if not fell:
            break
        n_fallen += 1
        for problem in problems:
            assert problem["code"] in ("npu_failed", "npu_without_model", "npu_restarting")
            assert "bytes needed" in problem["message"]
        assert nth < 40, "the fault never stopped biting"
    print(f"aclrtMalloc failed at {n_fallen} places of the load")
    assert n_fallen >= 5


def test_model_that_does_not_fit_runs_on_the_cpu_and_the_embedder_on_the_npu(
    npu_box: NpuBox,
) -> None:
    # 64 MiB are free: enough for the embedder, not for a KV cache of 131,072 cells.
    sim = {"memory_mb": 192, "used_mb": 128}
    box = npu_box.make(settings={"retry_s": 0}, sim=sim)
    text = (box.data / "appliance.yaml").read_text(encoding="utf-8")
    npu_box.model = write_tiny_llama(npu_box.folder / "tiny.gguf", n_ctx=131072)
    (box.data / "appliance.yaml").write_text(
        text.replace("n_ctx: 512", "n_ctx: 131072"), encoding="utf-8"
    )
    with box:
        box.wait()
        box.wait_model()
        found = status(box)
        assert answer(box)
        assert_search_works(box)
        stop_cleanly(box)

    assert [problem["code"] for problem in found["problems"]] == ["npu_without_model"]
    assert "bytes needed" in found["problems"][0]["message"]
    assert "free" in found["problems"][0]["message"]
    assert found["device"]["name"] == "CPU, Ascend310B4"
    assert found["device"]["memory"]["used"] > 0
    assert found["models"]["embedding"]["state"] == "ready"
