"""Run llama.cpp's own judge of backends, test-backend-ops, on the plugin over the simulator.

Every case the plugin claims must agree with ggml's CPU reference; every operator our models need
must have claimed cases. Exit status 0 only if both hold. The table and the failing cases go to
stdout, the same as JSON to <build>/sweep.json (sweep-part.json with ``--ops``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

# What whole graphs of Qwen2/3, LLaMA, BERT and Gemma 3 are made of (views need no work).
REQUIRED = [
    *("ADD", "CONT", "CPY", "GEGLU", "GELU", "GET_ROWS", "MUL", "MUL_MAT"),
    *("NORM", "RMS_NORM", "ROPE", "SCALE", "SET_ROWS", "SOFT_MAX", "SWIGLU"),
]
# "  ADD(type=f32): OK"; a failure is named in front: "[ADD] ERR = 1 > 0.1   ADD(..): FAIL".
LINE = re.compile(r"^(?P<why>.*?) {2,}(?P<op>[A-Z][A-Z0-9_]*)\((?P<params>.*)\): (?P<rest>.*)$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DEFAULT_CONFIG = '{"chip": "310B4", "threads": 2}'


class Tally:
    """Counts of one run: per operator how many cases were claimed, passed, failed, refused."""

    def __init__(self) -> None:
        self.claimed: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.failures: list[str] = []
        self.last = "none yet"

    def read(self, line: str) -> None:
        """Take in one line of the judge's console output; lines that are no case are ignored."""
        match = LINE.match(COLOUR.sub("", line.rstrip("\n")))
        if not match:
            return
        op, rest = match["op"], match["rest"]
        self.last = f"{op}({match['params']})"
        if "not supported" in rest or "skipping" in rest:
            self.refused[op] += 1
            return
        self.claimed[op] += 1
        if rest.rstrip().endswith("OK"):
            self.passed[op] += 1
        else:
            self.failures.append(f"{self.last}: {match['why']} {rest.strip()}")

    def missing(self, required: list[str]) -> list[str]:
        """Return the operators of ``required`` without one claimed case."""
        return [op for op in required if self.claimed[op] == 0]

    def table(self) -> str:
        """Return the per-operator table of everything claimed, widest first."""
        rows = [f"{'operator':<24}{'claimed':>9}{'passed':>9}{'refused':>9}"]
        rows += [
            f"{op:<24}{n:>9}{self.passed[op]:>9}{self.refused[op]:>9}"
            for op, n in sorted(self.claimed.items(), key=lambda item: (-item[1], item[0]))
        ]
        return "\n".join(rows)


def child_environment(build: Path) -> dict[str, str]:
    """Return the environment in which ggml loads our plugin and the plugin finds the simulator."""
    environment = dict(os.environ)
    environment["GGML_BACKEND_PATH"] = str(build / "libggml-cann310b.so")
    environment["ASCEND_TOOLKIT_HOME"] = str(build / "sim-toolkit")
    environment.setdefault("ACL_SIM_CONFIG", DEFAULT_CONFIG)
    return environment


def run(build: Path, device: str, ops: str | None, timeout_s: float) -> tuple[Tally, int, str]:
    """Run the judge; return the tally, its exit status (negative: signal), the end of stderr."""
    command = [str(build / "test-backend-ops"), "test", "-b", device]
    if ops:
        command += ["-o", ops]
    tally = Tally()
    errors = build / "sweep.stderr"
    deadline = time.monotonic() + timeout_s
    with (
        errors.open("w", encoding="utf-8") as sink,
        (build / "sweep.stdout").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            errors="replace",
            env=child_environment(build),
        ) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            log.write(line)
            tally.read(line)
            if time.monotonic() > deadline:
                child.kill()
                break
    tail = errors.read_text(encoding="utf-8", errors="replace")[-2000:]
    return tally, child.returncode, tail


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--device", default="CANN0", help="name of the plugin's ggml device")
    parser.add_argument("--ops", help="only these operators (test-backend-ops -o)")
    parser.add_argument("--timeout", type=float, default=1500, help="seconds for the whole run")
    options = parser.parse_args()
    build = options.build.resolve()
    for needed in ("libggml-cann310b.so", "sim-toolkit/lib64/libascendcl.so", "test-backend-ops"):
        if not (build / needed).exists():
            print(f"sweep: {build / needed} is missing. Next: make native-sweep", file=sys.stderr)
            return 1

    start = time.monotonic()
    tally, status, stderr = run(build, options.device, options.ops, options.timeout)
    seconds = time.monotonic() - start
    n_claimed, n_passed = sum(tally.claimed.values()), sum(tally.passed.values())
    missing = [] if options.ops else tally.missing(REQUIRED)

    print(tally.table())
    for failure in tally.failures:
        print(f"FAIL {failure}")
    print(
        f"{n_passed} of {n_claimed} claimed cases pass, {len(tally.failures)} claimed and failing, "
        f"{sum(tally.refused.values())} left to the CPU, "
        f"{len(tally.claimed)} operators, {seconds:.0f} s"
    )
    if missing:
        print(f"operators our models need without one claimed case: {', '.join(missing)}")
    if status != 0 and not tally.failures:
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        print(f"test-backend-ops ended with {how} after {tally.last}; stderr ends:\n{stderr}")
    (build / ("sweep-part.json" if options.ops else "sweep.json")).write_text(
        json.dumps(
            {
                "claimed": tally.claimed,
                "passed": tally.passed,
                "refused": tally.refused,
                "failures": tally.failures,
                "missing": missing,
                "status": status,
                "seconds": round(seconds, 1),
            },
            indent=1,
        ),
        encoding="utf-8",
    )
    good = status == 0 and not tally.failures and not missing and n_claimed > 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
