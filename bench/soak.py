"""Does the engine hold its memory over thousands of chats?

    python bench/soak.py --model FILE [--chats 10000] [--slots 8] [--people 16] [--json]

Chats of random length run over the slots, some are given up half-way. Reported: the resident
memory while they run and its slope per thousand chats over the second half, chats that failed,
and answers whose pieces did not join to the whole.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from pathlib import Path

import numpy as np

from appliance.engine.base import Finished, GenerationRequest, Sampling, Token
from appliance.engine.llama import LlamaEngine

_PAGE = 4096


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


class Soak:
    """The people who chat, and what they saw."""

    def __init__(self, engine: LlamaEngine, n_chats: int, seed: int) -> None:
        self._engine = engine
        self._n_chats = n_chats
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self.n_started = 0
        self.n_done = 0
        self.n_given_up = 0
        self.failures: list[str] = []
        self.memory: list[tuple[int, int]] = []

    def person(self) -> None:
        """Chat until enough chats were had."""
        while True:
            with self._lock:
                if self.n_started == self._n_chats:
                    return
                self.n_started += 1
                text = "x字" * self._rng.randrange(1, 150)
                n_out = self._rng.randrange(1, 40)
                patience = self._rng.randrange(1, 20) if self._rng.random() < 0.1 else None
            self._chat(text, n_out, patience)

    def _chat(self, text: str, n_out: int, patience: int | None) -> None:
        sampling = Sampling(temperature=1.0)
        request = GenerationRequest(prompt=text, max_tokens=n_out, sampling=sampling)
        pieces: list[str] = []
        last: Finished | None = None
        answer = self._engine.generate(request)
        for n, event in enumerate(answer):
            if isinstance(event, Token):
                pieces.append(event.text)
            elif isinstance(event, Finished):
                last = event
            if n == patience:
                answer.cancel()
        with self._lock:
            if last is None or last.text != "".join(pieces):
                self.failures.append(f"lost an event: {len(pieces)} pieces")
            self.n_given_up += patience is not None
            self.n_done += 1
            if self.n_done % max(1, self._n_chats // 100) == 0:
                self.memory.append((self.n_done, resident_bytes()))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engine = LlamaEngine(
        args.model, None, n_ctx=1024, n_slots=args.slots, n_threads=args.threads, device="cpu"
    )
    while engine.status().state == "loading":
        time.sleep(0.02)
    soak = Soak(engine, args.chats, seed=1)
    began = time.monotonic()
    people = [threading.Thread(target=soak.person) for _ in range(args.people)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join()
    took = time.monotonic() - began
    engine.close()
    counted = [(n, rss) for n, rss in soak.memory if n >= args.chats // 2]
    slope = float(np.polyfit(*np.array(counted, dtype=float).T, 1)[0]) * 1000
    found = {
        "chats": soak.n_done,
        "given_up": soak.n_given_up,
        "failures": len(soak.failures),
        "seconds": round(took, 1),
        "rss_mib": [round(rss / 2**20, 1) for _, rss in (counted[0], counted[-1])],
        "slope_kib_per_1000_chats": round(slope / 1024, 1),
    }
    if args.json:
        print(json.dumps(found))
        return
    print(f"{found['chats']} chats over {args.slots} slots in {took:.0f} s, ", end="")
    print(f"{found['given_up']} given up, {found['failures']} failed")
    print(f"resident memory {found['rss_mib'][0]} to {found['rss_mib'][1]} MiB, ", end="")
    print(f"slope {found['slope_kib_per_1000_chats']} KiB per 1,000 chats")


if __name__ == "__main__":
    main()
