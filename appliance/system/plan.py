"""What the last bench of this box found best: ``DATA/bench.json``.

Written by ``appliance bench``; read at the next start for what the configuration leaves open
(``engine.device: auto``, ``engine.n_threads: 0``). A plan for another model is not used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

BENCH_FILE = "bench.json"


@dataclass(frozen=True)
class Plan:
    """Where ``model`` runs fastest here, and on how many threads."""

    model: str
    device: Literal["cpu", "cann"]
    n_threads: int


def read_plan(data: Path, model: str) -> Plan | None:
    """Return the plan for a model, None when there is none that can be used."""
    try:
        said = json.loads((data / BENCH_FILE).read_bytes())["plan"]
        plan = Plan(str(said["model"]), said["device"], int(said["n_threads"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_sane = plan.device in ("cpu", "cann") and plan.n_threads > 0
    return plan if is_sane and plan.model == model else None
