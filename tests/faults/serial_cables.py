#!/usr/bin/env python3
"""Pull the cable of a serial line again and again, then let a person and a machine share it.

    python tests/faults/serial_cables.py --cycles 100 --minutes 10

The real daemon with a scripted answer runs on a pty. Cycles: the pty is torn down while the line is
idle, while a line is being typed, while an answer streams; a frame must be answered within two
seconds of the new one being there, and neither threads nor descriptors may grow. Minutes: a person
types questions while a machine sends frames; no line may hold parts of both.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from appliance import daemon
from appliance.client import Client
from appliance.config import Config, HttpConfig, SerialConfig
from appliance.system.clock import Clock
from tests.doubles import ScriptedEngine
from tests.serial.line import FarEnd

BACK_S = 2.0


def n_descriptors() -> int:
    """Return how many descriptors this process, which the box lives in, has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def n_serial_threads() -> int:
    """Return how many threads belong to serial lines."""
    return sum("serial" in thread.name for thread in threading.enumerate())


def hello(far: FarEnd, number: int) -> None:
    """Demand an answer to a frame."""
    far.send(json.dumps({"op": "hello", "id": str(number)}) + "\n")
    for frame in far.each_frame():
        if frame["id"] == str(number):
            return


def cycles(far: FarEnd, count: int) -> None:
    """Pull and plug; print the slowest return and what grew."""
    slowest = 0.0
    begun = 0
    for number in range(count):
        if number == 9:
            begun = n_descriptors()
        if number % 3 == 1:
            far.wake()
            far.send("half a line")
        elif number % 3 == 2:
            far.send('{"op":"ask","id":"a","q":"Tell me a story","mode":"open"}\n')
            far.frames("delta")
        far.unplug()
        time.sleep(0.05)
        far.plug()
        started = time.monotonic()
        hello(far, number)
        slowest = max(slowest, time.monotonic() - started)
        far.seen = b""
    time.sleep(2.0)
    print(
        f"{count} cycles: slowest return {slowest:.2f} s, {n_serial_threads()} threads,"
        f" descriptors {begun} after 9 cycles, {n_descriptors()} at the end"
    )
    assert slowest < BACK_S
    assert n_serial_threads() <= 2
    assert n_descriptors() <= begun + 4


def together(far: FarEnd, minutes: float, seed: int) -> None:
    """Let both use the line at random; print what was said and whether lines stayed whole."""
    rng = random.Random(seed)
    far.wake()
    far.send("/strict off\r")
    far.expect(">>> ")
    ends = time.monotonic() + minutes * 60
    received = b""
    n_frames = n_questions = 0
    while time.monotonic() < ends:
        if rng.random() < 0.5:
            # A machine begins a line of its own: what a person has half typed is entered first.
            far.send(json.dumps({"op": "hello", "id": str(n_frames)}) + "\n")
            n_frames += 1
        else:
            far.send(f"question {n_questions} please\r")
            n_questions += 1
        stop = time.monotonic() + rng.uniform(0.02, 0.3)
        while time.monotonic() < stop:
            received += far.read(0.02)
    time.sleep(3.0)
    received += far.read(0.2)
    frames = mixed = 0
    for line in received.replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"{"):
            try:
                frames += json.loads(line)["type"] == "hello"
            except ValueError:
                mixed += 1
        elif b'"type"' in line or b'"id"' in line:
            mixed += 1
    print(
        f"{minutes} minutes (seed {seed}): {n_questions} lines typed, {n_frames} frames sent,"
        f" {frames} answered, {mixed} mixed lines"
    )
    assert mixed == 0
    assert frames == n_frames


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    engine = ScriptedEngine(default="word " * 100, token_delay_s=0.005)
    with tempfile.TemporaryDirectory() as folder:
        far = FarEnd(Path(folder) / "ttyTEST")
        config = Config(
            data=Path(folder) / "box",
            http=HttpConfig(port=0),
            serial=SerialConfig(ports=(str(far.path),), language="en"),
        )
        with daemon.open_box(config, Clock(), lambda _config: engine) as box:
            Client(box.http.url).get("/api/status")
            cycles(far, chosen.cycles)
            far.unplug()
            far.plug()
            if chosen.minutes:
                together(far, chosen.minutes, chosen.seed)
        far.unplug()
    return 0


if __name__ == "__main__":
    sys.exit(main())
