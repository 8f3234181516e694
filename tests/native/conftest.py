"""Fixtures: ``npu`` is the plugin on the simulator, driven through a child process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.native import gguf_models

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("NATIVE_BUILD", ROOT / "build/native"))
F16_CACHE = ROOT / ".cache/native/f16"
CHILD = Path(__file__).with_name("child.py")

SPLIT = re.compile(r"^## SPLIT #(\d+): (\S+) # (\d+) inputs", re.MULTILINE)
NODE = re.compile(r"^node #\s*\d+ \(\s*(?P<op>\S+)\):\s+(?P<name>\S+) \([^)]*\) \[\s*(?P<on>\S+)")


@dataclass(frozen=True)
class Node:
    """One graph node and the backend the scheduler gave it to."""

    op: str
    name: str
    on: str


@dataclass
class Graph:
    """One graph as the scheduler cut it: backends of its splits, its nodes."""

    splits: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def off_device(self) -> list[Node]:
        """Return the nodes that run elsewhere than on the plugin."""
        return [node for node in self.nodes if not node.on.startswith("CANN")]


@dataclass
class Run:
    """What a child process left behind."""

    status: int
    stderr: str
    result: dict[str, Any]
    folder: Path

    @property
    def answers(self) -> list[Any]:
        return list(self.result["answers"])

    def array(self, number: int) -> npt.NDArray[np.float32]:
        loaded: npt.NDArray[np.float32] = np.load(self.folder / f"{number}.npy")
        return loaded

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(encoding="utf-8")

    def graphs(self) -> list[Graph]:
        """Return every graph the scheduler printed (GGML_SCHED_DEBUG=2), oldest first."""
        out: list[Graph] = []
        for line in self.log.splitlines():
            if split := SPLIT.match(line):
                if split[1] == "0":
                    out.append(Graph())
                out[-1].splits.append(split[2])
            elif out and (node := NODE.match(line)):
                out[-1].nodes.append(Node(node["op"], node["name"], node["on"]))
        return out

    def trace(self) -> list[dict[str, Any]]:
        """Return the simulator's trace, one dict a call, with our own marks in between."""
        lines = (self.folder / "trace.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def phase(self, number: int) -> list[dict[str, Any]]:
        """Return the trace of one action of the job (its marks cut it out)."""
        out: list[dict[str, Any]] = []
        inside = False
        for entry in self.trace():
            if "mark" in entry:
                inside = entry["mark"].split()[0] == str(number)
            elif inside:
                out.append(entry)
        return out

    def must_be_clean(self) -> Run:
        """Fail unless the child ended well and the simulator had nothing to say."""
        if self.status != 0 or "acl-sim:" in self.stderr:
            pytest.fail(
                f"child ended with {self.status}; stderr ends:\n{self.stderr[-4000:]}",
                pytrace=False,
            )
        return self


def calls(trace: list[dict[str, Any]]) -> Counter[str]:
    """Count the trace's entries by call name."""
    return Counter(str(entry["call"]) for entry in trace if "call" in entry)


@dataclass(frozen=True)
class Npu:
    """The plugin and the toolkit folder it is pointed at."""

    plugin: Path
    toolkit: Path
    tmp: Path

    def run(
        self,
        job: dict[str, Any],
        *,
        sim: dict[str, Any] | None = None,
        plugin: bool = True,
        trace: bool = False,
        timeout_s: float = 600,
        environment: dict[str, str] | None = None,
    ) -> Run:
        """Run one job in a child, on the simulator (``plugin``) or on the CPU alone.

        Args:
            job: see ``child.py``.
            sim: simulator configuration, over the defaults (310B4, two threads, seed 1).
            plugin: whether the child loads the plugin at all.
            trace: whether the simulator writes a trace.
            timeout_s: seconds until the child is killed and the test fails.
            environment: more variables for the child.
        """
        folder = self.tmp / f"run-{len(list(self.tmp.iterdir()))}"
        folder.mkdir()
        config: dict[str, Any] = {"chip": "310B4", "threads": 2, "seed": 1, **(sim or {})}
        job = {"model": "", **job, "actions": list(job["actions"])}
        if plugin:
            job["plugin"] = str(self.plugin)
        if trace:
            config["trace"] = job["trace"] = str(folder / "trace.jsonl")
            Path(config["trace"]).touch()
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        inherited = {name: value for name, value in os.environ.items() if "ASCEND" not in name}
        done = subprocess.run(
            [sys.executable, str(CHILD), str(folder / "job.json")],
            env={
                **inherited,
                "ASCEND_TOOLKIT_HOME": str(self.toolkit),
                "ACL_SIM_CONFIG": json.dumps(config),
                "GGML_SCHED_DEBUG": "2",
                "OMP_NUM_THREADS": "2",
                **(environment or {}),
            },
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        stderr = done.stderr.decode("utf-8", "replace")
        (folder / "stderr.txt").write_text(stderr, encoding="utf-8")
        path = folder / "result.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"answers": []}
        return Run(done.returncode, stderr, result, folder)


@pytest.fixture
def npu(tmp_path: Path) -> Npu:
    """The plugin on the simulator; `make native` must have built both."""
    plugin, toolkit = BUILD / "libggml-cann310b.so", BUILD / "sim-toolkit"
    for needed in (plugin, toolkit / "lib64/libascendcl.so", toolkit / "lib64/libopapi.so"):
        if not needed.exists():
            pytest.fail(f"{needed} is not built. Next: make native", pytrace=False)
    runs = tmp_path / "runs"
    runs.mkdir()
    return Npu(plugin, toolkit, runs)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random-weight models, one per family and weight type: ``qwen3-f16``, ``gemma3-q8_0`` ..."""
    folder = tmp_path_factory.mktemp("tiny")
    return {
        f"{arch}-{dtype}": gguf_models.write_random(
            folder / f"{arch}-{dtype}.gguf", shape, dtype=dtype
        )
        for arch, shape in gguf_models.TINY.items()
        for dtype in ("f16", "q8_0")
    }


def agreement(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the share of positions with the same best token, and mean KL(want || got) in nats."""
    top1 = float(np.mean(got.argmax(axis=1) == want.argmax(axis=1)))
    p, q = _log_softmax(want), _log_softmax(got)
    return top1, float(np.mean(np.sum(np.exp(p) * (p - q), axis=1)))


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    out: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out
