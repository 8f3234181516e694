"""How much of a serial line's speed is text, and how late deltas are, in machine mode?

    python bench/serial_line.py [--baud 115200] [--json]

A box in this process answers over a pty whose writer is paced to the line's speed. Full speed: the
engine writes faster than the line carries; reported is the share of the line's bytes that is answer
text. Latency: the engine makes a piece every 10 ms; reported is how old the oldest piece of a frame
is when the frame has come. The peer is the line itself: baud / 10 bytes per second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from appliance import daemon
from appliance.config import AssistantConfig, Config, HttpConfig, SerialConfig
from appliance.system.clock import Clock
from tests.doubles import ScriptedEngine, pieces_of
from tests.serial.line import FarEnd

WORDS = "words" * 10 + " "
SECONDS = 4.0
PIECE_S = 0.01
FAST_PIECE_S = 0.002
"""About twice what a line of 115200 carries, for longer than is measured."""


def box_on(
    far: FarEnd, folder: Path, baud: int, engine: ScriptedEngine
) -> contextlib.AbstractContextManager[daemon.Box]:
    """Return an open box (a context manager) whose one line is ``far``."""
    config = Config(
        data=folder / "box",
        http=HttpConfig(port=0),
        assistant=AssistantConfig(max_answer_tokens=8192),
        serial=SerialConfig(ports=(str(far.path),), baud=baud),
    )
    return daemon.open_box(config, Clock(), lambda _config: engine)


def ask(far: FarEnd, number: int) -> None:
    """Begin an answer that the model gives alone."""
    request = {"op": "ask", "id": str(number), "q": "Tell me a long story", "mode": "open"}
    far.send(json.dumps(request) + "\n")


def full_speed(far: FarEnd, baud: int) -> tuple[float, float]:
    """Return the share of the line that was text, and that all bytes were."""
    ask(far, 1)
    far.expect(b'"delta"')
    far.seen = b""
    started, received = time.monotonic(), b""
    while time.monotonic() - started < SECONDS:
        received += far.read(0.05)
    elapsed = time.monotonic() - started
    lines = [line for line in received.split(b"\n")[1:-1] if line.startswith(b"{")]
    text = sum(len(json.loads(line).get("text", "").encode()) for line in lines)
    far.send(b'{"op":"cancel","id":"1"}\n')
    far.seen = b""
    can = baud / 10 * elapsed
    return text / can, len(received) / can


def latency(far: FarEnd, engine: ScriptedEngine) -> list[float]:
    """Return how old the oldest piece of each frame was when the frame had come, in seconds.

    The engine makes a piece every ``PIECE_S`` and counts them, so the age of a piece is the number
    made since, times that.
    """
    first = engine.tokens_decoded
    n_received, ages = 0, []
    ask(far, 2)
    for frame in far.each_frame():
        if frame["type"] == "delta":
            ages.append((engine.tokens_decoded - first - n_received) * PIECE_S)
            n_received += len(pieces_of(frame["text"]))
        if frame["type"] == "answer":
            return ages
    raise AssertionError


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--baud", type=int, default=115200)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    engine = ScriptedEngine(n_ctx=65536)
    with tempfile.TemporaryDirectory() as folder:
        far = FarEnd(Path(folder) / "ttyBENCH")
        with box_on(far, Path(folder), chosen.baud, engine):
            engine.token_delay_s = FAST_PIECE_S
            engine.answers = [WORDS * 8000]
            text, everything = full_speed(far, chosen.baud)
            far.expect(b'"cancelled"', 60)
            engine.token_delay_s = PIECE_S
            engine.answers = ["word " * 200]
            ages = latency(far, engine)
        far.unplug()
    found = {
        "baud": chosen.baud,
        "text_share": round(text, 3),
        "bytes_share": round(everything, 3),
        "delta_age_median_ms": round(statistics.median(ages) * 1000),
        "delta_age_worst_ms": round(max(ages) * 1000),
    }
    if chosen.json:
        print(json.dumps(found))
    else:
        print(
            f"{chosen.baud} baud: {text:.1%} of the line was answer text, "
            f"{everything:.1%} bytes in all; a delta came {found['delta_age_median_ms']} ms after "
            f"it was made (median; worst {found['delta_age_worst_ms']} ms)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
