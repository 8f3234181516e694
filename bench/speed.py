"""How fast is the engine beside llama.cpp's own programs, on this machine, in the same run?

    python bench/speed.py [--models DIR] [--peers .cache/peers] [--only single,chats,gap,cache]
                          [--rounds 5] [--threads N] [--slots 4,8] [--out bench/results]

Ours and theirs take turns, so that a busy machine slows both; every figure is the median of the
rounds. What is compared:

single  one answer, no server: prefill of 512 tokens and decode of 128 against llama-bench
chats   N streaming chats at once over HTTP, prompts of 50 to 1,500 tokens, 128 tokens out, against
        llama-server with the same slots and context: tokens per second, time to the first token
gap     answers are running when prompts of 1,500 tokens come in: the longest pause between two
        tokens of a running answer, and the speed at which the prompts are read
cache   time to the first token of a second turn, of a second question over the same beginning and
        of the first question after a restart, each against a cold one (ours alone)

Results go to ``speed.json`` and ``speed.svg`` in the output folder; parts that did not run keep
what they said before. The last line on stdout is the JSON.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import itertools
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers

from appliance.config import Config, models_dir
from appliance.engine.base import (
    Finished,
    GenerationRequest,
    Message,
    Sampling,
    SavedPrompts,
)
from appliance.engine.llama import LlamaEngine

QWEN = "qwen2.5-coder-0.5b-instruct"
SMOL = "smollm2-135m-instruct"
N_CTX = 2048
N_OUT = 128
LENGTHS = (50, 1500, 200, 800, 400, 1100, 100, 600)
"""Prompt lengths of concurrent chats, in tokens, in this order."""
LONG = 1500
GREEDY = Sampling(temperature=0)

TARGETS: dict[str, tuple[str, float]] = {
    "decode": (">=", 0.97),
    "prefill": (">=", 0.97),
    "tokens/s": (">=", 1.00),
    "ttft p95": ("<=", 1.00),
    "gap": ("<=", 0.15),
    "prompt speed": (">=", 0.90),
    "second turn": ("<=", 0.15),
    "second question": ("<=", 0.15),
    "after restart": ("<=", 0.30),
}


@dataclass
class Row:
    """One line of the table: ours beside theirs, and what the ratio should be."""

    part: str
    case: str
    what: str
    unit: str
    ours: float
    theirs: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours / self.theirs

    @property
    def is_met(self) -> bool:
        """Whether the target holds."""
        sign, bound = TARGETS[self.what]
        return self.ratio >= bound if sign == ">=" else self.ratio <= bound

    def as_dict(self) -> dict[str, Any]:
        """Return what the JSON holds."""
        sign, bound = TARGETS[self.what]
        return {**vars(self), "ratio": self.ratio, "target": f"{sign} {bound}", "met": self.is_met}


@dataclass
class Stream:
    """When the pieces of one streamed answer came, seconds on the monotonic clock."""

    sent: float
    times: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def ttft_s(self) -> float:
        """From sending the request to the first piece."""
        return self.times[0] - self.sent


# --------------------------------------------------------------------------------------------------
# prompts and requests


class Texts:
    """Prompts of an exact number of tokens, never the same twice."""

    def __init__(self, engine: LlamaEngine, seed: int) -> None:
        self._engine = engine
        self._rng = random.Random(seed)

    def of(self, n_tokens: int) -> str:
        """Return a text that the model reads as ``n_tokens`` tokens."""
        parts: list[str] = []
        while self._engine.count_text_tokens(" ".join(parts)) < n_tokens:
            parts += [str(self._rng.randrange(10**6)) for _ in range(max(4, n_tokens // 16))]
        text = " ".join(parts)
        while self._engine.count_text_tokens(text) > n_tokens:
            text = text[:-1]
        return text


def stream(server: peers.Server, prompt: str, n_out: int) -> Stream:
    """Ask a server for a streamed completion and note when each piece comes."""
    body = {"model": server.model, "prompt": prompt, "max_tokens": n_out}
    body |= {"stream": True, "temperature": 0}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    found = Stream(time.monotonic())
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    reply = connection.getresponse()
    if reply.status != http.client.OK:
        found.error = reply.read().decode("utf-8", "replace")
    while line := reply.readline():
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices") or [{}]
            if choices[0].get("text"):
                found.times.append(time.monotonic())
    connection.close()
    return found


def together(jobs: Sequence[Callable[[], Stream]]) -> list[Stream]:
    """Run jobs at the same time and return their streams in order."""
    found: dict[int, Stream] = {}

    def run(at: int) -> None:
        found[at] = jobs[at]()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    streams = [found[at] for at in range(len(jobs))]
    for one in streams:
        if one.error or not one.times:
            raise SystemExit(f"a request got no answer: {one.error or 'no text'}")
    return streams


def our_server(model: Path, *, threads: int, slots: int, n_ctx: int, work: Path) -> peers.Server:
    """Return our daemon with the same model, slots and context."""
    data = Path(tempfile.mkdtemp(dir=work))
    engine = {"device": "cpu", "n_slots": slots, "n_ctx": n_ctx, "n_threads": threads}
    config = {"models": {"generation": str(model)}, "engine": engine}
    # JSON is YAML; the daemon reads either.
    (data / "appliance.yaml").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "appliance", "serve", "--data", str(data), "--port", "{port}"]
    return peers.Server(command, "/api/status", model.stem, work)


@dataclass
class Bench:
    """What all parts share."""

    args: argparse.Namespace
    work: Path

    def model(self, name: str) -> Path:
        """Return a model's file."""
        found = sorted(self.args.models.glob(f"{name}*.gguf"))
        if not found:
            raise SystemExit(f"no {name} in {self.args.models}; run 'make models'")
        return Path(found[0])

    def engine(self, name: str, **settings: Any) -> LlamaEngine:  # noqa: ANN401
        """Return a loaded engine in this process."""
        settings = {"n_ctx": N_CTX, "n_slots": 1, **settings}
        engine = LlamaEngine(
            self.model(name), None, n_threads=self.args.threads, device="cpu", **settings
        )
        while engine.status().state == "loading":
            time.sleep(0.02)
        return engine

    def servers(self, name: str, slots: int) -> list[tuple[str, Callable[[], peers.Server]]]:
        """Return what starts ours and theirs, equally set up."""
        model, threads = self.model(name), self.args.threads

        def ours() -> peers.Server:
            return our_server(model, threads=threads, slots=slots, n_ctx=N_CTX, work=self.work)

        def theirs() -> peers.Server:
            return peers.llama_server(
                self.args.peers, model, threads=threads, slots=slots, n_ctx=N_CTX, work=self.work
            )

        return [("ours", ours), ("theirs", theirs)]


# --------------------------------------------------------------------------------------------------
# the parts


def single(bench: Bench, name: str) -> list[Row]:
    """One answer at a time against llama-bench."""
    ours: dict[str, list[float]] = {"prefill": [], "decode": []}
    theirs: dict[str, list[float]] = {"prefill": [], "decode": []}
    for n_round in range(bench.args.rounds):
        prefill, decode = peers.llama_bench(
            bench.args.peers,
            bench.model(name),
            threads=bench.args.threads,
            n_prompt=512,
            n_gen=N_OUT,
        )
        theirs["prefill"].append(prefill)
        theirs["decode"].append(decode)
        engine = bench.engine(name)
        texts = Texts(engine, n_round)
        read(engine, texts.of(512), 1)  # llama-bench warms up too
        last = read(engine, texts.of(512), 1)
        ours["prefill"].append(last.usage.prompt_tokens / last.timings.prefill_s)
        last = read(engine, texts.of(8), N_OUT + 1)
        spoken_s = last.timings.total_s - last.timings.queue_s - last.timings.prefill_s
        ours["decode"].append(N_OUT / spoken_s)
        engine.close()
    return [row("single", name, what, "tok/s", ours[what], theirs[what]) for what in ours]


def read(engine: LlamaEngine, prompt: str, n_out: int) -> Finished:
    """Return how an answer of exactly ``n_out`` tokens went."""
    request = GenerationRequest(prompt=prompt, max_tokens=n_out, sampling=GREEDY, ignore_eos=True)
    return next(event for event in engine.generate(request) if isinstance(event, Finished))


def chat(engine: LlamaEngine, *messages: Message) -> Finished:
    """Return how a short answer in a conversation went."""
    request = GenerationRequest(messages=messages, max_tokens=8, sampling=GREEDY)
    return next(event for event in engine.generate(request) if isinstance(event, Finished))


def chats(bench: Bench, name: str, slots: int) -> list[Row]:
    """Concurrent chats against llama-server."""
    speed: dict[str, list[float]] = {"ours": [], "theirs": []}
    ttft: dict[str, list[float]] = {"ours": [], "theirs": []}
    texts = bench_texts(bench, name)
    for n_round in range(bench.args.rounds):
        for who, start in in_turn(bench.servers(name, slots), n_round):
            with start() as server:
                prompts = [texts.of(LENGTHS[at % len(LENGTHS)]) for at in range(slots)]
                stream(server, texts.of(40), 8)
                began = time.monotonic()
                streams = together([job(server, prompt, N_OUT) for prompt in prompts])
                took = time.monotonic() - began
            speed[who].append(sum(len(one.times) for one in streams) / took)
            ttft[who] += [one.ttft_s for one in streams]
    case = f"{name}, {slots} chats"
    p95 = {who: [quantile(found, 0.95)] for who, found in ttft.items()}
    tail = row("chats", case, "ttft p95", "s", p95["ours"], p95["theirs"])
    tail.rounds = bench.args.rounds
    return [row("chats", case, "tokens/s", "tok/s", speed["ours"], speed["theirs"]), tail]


def gap(bench: Bench, name: str, slots: int) -> list[Row]:
    """Long prompts come in while answers run."""
    pause: dict[str, list[float]] = {"ours": [], "theirs": []}
    speed: dict[str, list[float]] = {"ours": [], "theirs": []}
    texts = bench_texts(bench, name)
    n_long = slots - 1
    for n_round in range(bench.args.rounds):
        for who, start in in_turn(bench.servers(name, slots), n_round):
            with start() as server:
                stream(server, texts.of(40), 8)
                running: list[Stream] = []
                short, longs = texts.of(50), [texts.of(LONG) for _ in range(n_long)]
                talk = threading.Thread(
                    target=lambda server=server, text=short, into=running: into.append(
                        stream(server, text, 400)
                    )
                )
                talk.start()
                time.sleep(1.5)
                began = time.monotonic()
                streams = together([job(server, prompt, 8) for prompt in longs])
                ended = max(one.times[0] for one in streams)
                talk.join()
            pairs = itertools.pairwise(running[0].times)
            window = [b - a for a, b in pairs if b > began and a < ended]
            if not window:
                raise SystemExit("the running answer ended before the prompts came")
            pause[who].append(max(window))
            speed[who].append(n_long * LONG / (ended - began))
    case = f"{name}, {slots} slots"
    return [
        row("gap", case, "gap", "s", pause["ours"], pause["theirs"]),
        row("gap", case, "prompt speed", "tok/s", speed["ours"], speed["theirs"]),
    ]


def cache(bench: Bench, name: str) -> list[Row]:
    """What is in the cache is not read again; ours alone, against its own cold start."""
    found: dict[str, list[float]] = {what: [] for what in CACHE_CASES}
    cold: list[float] = []
    saves = SavedPrompts(bench.work / "cache", 1 << 28)
    for n_round in range(bench.args.rounds):
        engine = bench.engine(name, n_slots=2, saved_prompts=saves)
        texts = Texts(engine, 100 + n_round)
        system = Message("system", texts.of(1000))
        first, second, third = (Message("user", texts.of(30)) for _ in range(3))
        read(engine, texts.of(512), 4)
        one = chat(engine, system, first)
        cold.append(one.timings.ttft_s)
        said = Message("assistant", one.text)
        found["second turn"].append(chat(engine, system, first, said, second).timings.ttft_s)
        found["second question"].append(chat(engine, system, second).timings.ttft_s)
        engine.close()
        again = bench.engine(name, n_slots=2, saved_prompts=saves)
        found["after restart"].append(chat(again, system, third).timings.ttft_s)
        again.close()
    return [row("cache", name, what, "s", found[what], cold) for what in CACHE_CASES]


CACHE_CASES = ("second turn", "second question", "after restart")


def job(server: peers.Server, prompt: str, n_out: int) -> Callable[[], Stream]:
    """Return a request that can be started later."""
    return lambda: stream(server, prompt, n_out)


def bench_texts(bench: Bench, name: str) -> Texts:
    """Return prompts for servers; the engine that counts tokens is closed only at the end."""
    if name not in _counters:
        _counters[name] = bench.engine(name, n_ctx=512)
    return Texts(_counters[name], len(_counters))


_counters: dict[str, LlamaEngine] = {}


def in_turn(
    servers: list[tuple[str, Callable[[], peers.Server]]], n_round: int
) -> list[tuple[str, Callable[[], peers.Server]]]:
    """Let the other one begin every second round."""
    return servers if n_round % 2 == 0 else servers[::-1]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(
    part: str, case: str, what: str, unit: str, ours: Sequence[float], theirs: Sequence[float]
) -> Row:
    """Return the line for medians."""
    return Row(
        part, case, what, unit, statistics.median(ours), statistics.median(theirs), len(ours)
    )


# --------------------------------------------------------------------------------------------------
# what is shown


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| what | case | ours | peer | ratio | target |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in rows:
        mark = "" if one["met"] else " (missed)"
        lines.append(
            f"| {one['what']} ({one['unit']}) | {one['case']} | {one['ours']:.3g} "
            f"| {one['theirs']:.3g} | {one['ratio']:.2f} | {one['target']}{mark} |"
        )
    return "\n".join(lines)


def svg(rows: Sequence[dict[str, Any]], title: str) -> str:
    """Return a chart of the ratios: a bar per row, a tick where the target lies."""
    width, label, height = 760, 330, 24
    scale = (width - label - 80) / max(1.2, *(one["ratio"] for one in rows))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height * (len(rows) + 2)}" font-family="sans-serif" font-size="12">',
        f'<text x="8" y="16" font-weight="bold">{title}</text>',
    ]
    for at, one in enumerate(rows, start=1):
        y = at * height + 6
        bound = float(one["target"].split()[1])
        colour = "#2a7f4f" if one["met"] else "#b4442c"
        parts += [
            f'<text x="8" y="{y + 12}">{one["what"]}: {one["case"]}</text>',
            f'<rect x="{label}" y="{y}" width="{one["ratio"] * scale:.1f}" height="14" '
            f'fill="{colour}"/>',
            f'<line x1="{label + bound * scale:.1f}" x2="{label + bound * scale:.1f}" '
            f'y1="{y - 3}" y2="{y + 17}" stroke="#333" stroke-width="2"/>',
            f'<text x="{label + one["ratio"] * scale + 6:.1f}" y="{y + 12}">'
            f"{one['ratio']:.2f}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def machine() -> str:
    """Return the kind of machine, without its name."""
    return f"{os.cpu_count()}-core {platform.machine()}, {platform.system()}"


def save(out: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """Merge the rows into the results and write JSON and chart."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "speed.json"
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    new = [one.as_dict() for one in rows]
    keys = {(one["part"], one["case"], one["what"]) for one in new}
    kept = [one for one in before if (one["part"], one["case"], one["what"]) not in keys]
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    found = {"date": today, "machine": machine(), "rows": [*kept, *new]}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    chart = svg(found["rows"], f"ours / llama.cpp, {today}, {machine()}")
    (out / "speed.svg").write_text(chart, encoding="utf-8")
    return found


def main() -> None:
    """Run the parts asked for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=models_dir(Config(Path())))
    parser.add_argument("--peers", type=Path, default=peers.BUILD)
    parser.add_argument("--only", default="single,chats,gap,cache")
    parser.add_argument("--model", default=f"{QWEN},{SMOL}", help="names, separated by commas")
    parser.add_argument("--slots", default="4,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(args, Path(work))
        for name in args.model.split(","):
            for part in args.only.split(","):
                found = run(bench, part, name)
                for one in found:
                    print(json.dumps(one.as_dict(), ensure_ascii=False), file=sys.stderr)
                rows += found
    for engine in _counters.values():
        engine.close()
    results = save(args.out, rows)
    print(table(results["rows"]))
    print(json.dumps(results, ensure_ascii=False))


def run(bench: Bench, part: str, name: str) -> list[Row]:
    """Return the rows of one part for one model; concurrency is judged on the larger one."""
    if part == "single":
        return single(bench, name)
    if part == "cache":
        return cache(bench, name)
    if name == SMOL and QWEN in bench.args.model:
        return []
    parts = {"chats": chats, "gap": gap}
    slots = [int(n) for n in bench.args.slots.split(",")]
    return [one for n in slots for one in parts[part](bench, name, n)]


if __name__ == "__main__":
    main()
