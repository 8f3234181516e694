"""One minute of measuring: how fast this box answers, embeds, searches and reads.

Each speed is the median of a few runs, on the box's own models and store. What the NPU is compared
with is the same model with F16 weights, since that is what it computes with; the F16 file is made
for the run and removed. A figure from the simulator is marked as simulated, never as measured.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.config import Config, models_dir, plugin_path
from appliance.engine.base import Finished, GenerationRequest, Priority, Sampling
from appliance.engine.devices import DeviceChoice, choose_device, is_simulated
from appliance.engine.llama import LlamaEngine
from appliance.engine.requantise import write_f16
from appliance.errors import ApplianceError
from appliance.models import ModelStore
from appliance.parsers.base import Limits
from appliance.parsers.process import ParserProcess
from appliance.store import Store
from appliance.system import files
from appliance.system.plan import BENCH_FILE

PROMPT_TOKENS = 256
ANSWER_TOKENS = 32
RUNS = 3
N_TEXTS = 32
PAGE_CHARS = 1800
N_PAGES = 60
SLOWER = 0.85
"""Below this part of the baseline an update is said to have made the box slower."""

_TEXT = (
    "The library closes at five on weekends. 图书馆周末下午五点关门，早上十点开门。"
    "Boards need a power supply of 65 W. 实验室的电源为 65 瓦。 "
)
Report = Callable[[str], None]


@dataclass(frozen=True)
class AnswerRow:
    """Speed of answers in one setting; times in seconds, speeds in tokens per second.

    ``kind`` says what is behind it: ``measured``, or ``simulated`` for the simulator's NPU.
    """

    device: str
    weights: str
    n_threads: int
    ttft_s: float
    prefill_tok_s: float
    decode_tok_s: float
    kind: str = "measured"


@dataclass(frozen=True)
class Bench:
    """Everything one run found; what could not be measured is None."""

    date: str
    version: str
    machine: str
    model: str
    answers: tuple[AnswerRow, ...]
    passages_per_s: float | None
    search_ms: float | None
    pages_per_s: float | None
    plan: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def run(config: Config, report: Report, *, quick: bool = False) -> Bench:
    """Measure this box; the daemon must not run.

    Args:
        config: what is in force.
        report: told what is measured next.
        quick: leave out the F16 comparison.

    Raises:
        ModelError: the configured model is not here.
        EngineError: it could not be loaded.
    """
    models = ModelStore(models_dir(config))
    name = config.models.generation
    model = models.path(name)
    rows = list(_answer_rows(config, model, report, quick=quick))
    best = max(
        (row for row in rows if row.kind == "measured" and row.weights == "as stored"),
        key=lambda row: row.decode_tok_s,
    )
    report("embedding")
    embedded = _passages_per_s(config, models)
    report("reading")
    pages = _pages_per_s()
    report("search")
    return Bench(
        date=time.strftime("%Y-%m-%d"),
        version=__version__,
        machine=describe_machine(),
        model=name,
        answers=tuple(rows),
        passages_per_s=embedded,
        search_ms=_search_ms(config),
        pages_per_s=pages,
        plan={"model": name, "device": best.device, "n_threads": best.n_threads},
    )


def describe_machine() -> str:
    """Return what kind of machine this is, in words without a name of its own."""
    n_cores = len(os.sched_getaffinity(0))
    board = Path("/proc/device-tree/model")
    name = board.read_text("utf-8").strip("\0") if board.is_file() else platform.machine()
    return f"{name}, {n_cores} cores"


def _answer_rows(
    config: Config, model: Path, report: Report, *, quick: bool
) -> Iterator[AnswerRow]:
    n_cores = len(os.sched_getaffinity(0))
    settings = [n_cores] if n_cores <= 2 else [n_cores, n_cores // 2]
    for n_threads in settings:
        report(f"cpu, {n_threads} threads")
        yield _answers(config, model, "cpu", "as stored", n_threads)
    npu = _npu(config)
    if quick and npu is None:
        return
    with _f16_of(model, n_cores) as wide:
        if not quick:
            report("cpu, F16")
            yield _answers(config, wide, "cpu", "F16", n_cores)
        if npu is not None:
            report(npu)
            row = _answers(config, model, "cann", "as stored", n_cores)
            yield replace(row, kind="simulated" if is_simulated() else "measured")


def _npu(config: Config) -> str | None:
    """Return the NPU's name, None when there is none that may be used."""
    if config.engine.device == "cpu":
        return None
    try:
        return choose_device("cann", plugin_path(config)).description
    except ApplianceError:
        return None


@contextmanager
def _f16_of(model: Path, n_threads: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="appliance-bench-", dir=model.parent) as folder:
        target = Path(folder) / "f16.gguf"
        write_f16(model, target, n_threads)
        yield target


@contextmanager
def _engine(
    config: Config,
    *,
    model: Path | None = None,
    embedder: Path | None = None,
    device: DeviceChoice = "cpu",
    n_threads: int | None = None,
) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(
        model,
        embedder,
        n_ctx=1024,
        n_slots=1,
        n_threads=n_threads,
        n_batch=config.engine.n_batch,
        device=device,
        plugin_path=plugin_path(config),
    )
    try:
        while engine.status().state == "loading":
            time.sleep(0.05)
        yield engine
    finally:
        engine.close()


def _answers(
    config: Config, model: Path, device: DeviceChoice, weights: str, n_threads: int
) -> AnswerRow:
    with _engine(config, model=model, device=device, n_threads=n_threads) as engine:
        if engine.failure is not None:
            raise engine.failure
        found = [_one_answer(engine, number) for number in range(RUNS + 1)][1:]
    return AnswerRow(
        device,
        weights,
        n_threads,
        *(round(statistics.median(column), 3) for column in zip(*found, strict=True)),
    )


def _one_answer(engine: LlamaEngine, number: int) -> tuple[float, float, float]:
    """Return seconds to the first token, tokens read per second, tokens written per second."""
    # A different beginning each time: the prompt cache must not help.
    prompt = f"{number} {time.monotonic_ns()} "
    while engine.count_text_tokens(prompt) < PROMPT_TOKENS:
        prompt += _TEXT
    request = GenerationRequest(
        prompt=prompt,
        max_tokens=ANSWER_TOKENS,
        sampling=Sampling(temperature=0),
        ignore_eos=True,
    )
    for event in engine.generate(request):
        if isinstance(event, Finished):
            timings, usage = event.timings, event.usage
            decode_s = max(timings.total_s - timings.ttft_s, 1e-9)
            read = (int(usage.prompt_tokens) - int(usage.cached_tokens)) / timings.prefill_s
            return timings.ttft_s, read, (int(usage.completion_tokens) - 1) / decode_s
    raise AssertionError


def _passages_per_s(config: Config, models: ModelStore) -> float | None:
    try:
        embedder = models.path(config.models.embedding)
    except ApplianceError:
        return None
    texts = [f"{number} {_TEXT * 3}" for number in range(N_TEXTS)]
    n_threads = config.engine.n_threads or None
    with _engine(config, embedder=embedder, n_threads=n_threads) as engine:
        engine.embed(texts[:4], "passage", Priority.INGEST_EMBED)
        started = time.monotonic()
        engine.embed(texts, "passage", Priority.INGEST_EMBED)
        return round(len(texts) / (time.monotonic() - started), 1)


def _pages_per_s() -> float:
    """Return pages of text read per second, through the parsing child process."""
    page = (_TEXT * (PAGE_CHARS // len(_TEXT) + 1))[:PAGE_CHARS]
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as folder:
        path = Path(folder) / "pages.txt"
        path.write_text("\n\n".join([page] * N_PAGES), encoding="utf-8")
        parser = ParserProcess()
        try:
            parser.parse(os.fsencode(path), path.name, Limits())
            started = time.monotonic()
            parser.parse(os.fsencode(path), path.name, Limits())
            return round(N_PAGES / (time.monotonic() - started), 1)
        finally:
            parser.close()


def _search_ms(config: Config) -> float | None:
    """Return milliseconds of one keyword search in the box's own store; None when it is empty."""
    if not config.database.exists():
        return None
    store = Store.open(config.database)
    try:
        terms = ["图书", "电源", "library", "power", "supply"]
        if not store.has_passages():
            return None
        times = []
        for term in terms * 4:
            started = time.monotonic()
            store.keyword_search([term], 20)
            times.append(time.monotonic() - started)
        return round(statistics.median(times) * 1000, 2)
    finally:
        store.close()


# --------------------------------------------------------------------------------------------------
# the baseline


def read_baseline(config: Config) -> dict[str, Any] | None:
    """Return the kept run, None when there is none."""
    try:
        found = json.loads((config.data / BENCH_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return dict(found) if isinstance(found, dict) else None


def keep(config: Config, found: Bench) -> Path:
    """Make this run the baseline and its plan the one in force at the next start.

    Raises:
        OSError: it cannot be written.
    """
    path = config.data / BENCH_FILE
    files.write_whole(path, (json.dumps(found.as_json(), indent=2) + "\n").encode())
    return path


def slower_than(found: Bench, baseline: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return what became slower than the baseline: name, speed then, speed now."""
    slow: list[tuple[str, float, float]] = []
    if baseline.get("machine") != found.machine or baseline.get("model") != found.model:
        return []
    before = {_key(row): row for row in baseline.get("answers", [])}
    for row in found.answers:
        old = before.get(_key(asdict(row)))
        slow += [
            (f"{row.device} {row.weights} {name}", old[name], getattr(row, name))
            for name in ("prefill_tok_s", "decode_tok_s")
            if old and getattr(row, name) < SLOWER * old[name]
        ]
    for name in ("passages_per_s", "pages_per_s"):
        old_speed, speed = baseline.get(name), getattr(found, name)
        if old_speed and speed and speed < SLOWER * old_speed:
            slow.append((name, old_speed, speed))
    return slow


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], row["weights"], row["n_threads"], row["kind"]
