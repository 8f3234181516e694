"""Where tests marked ``model`` find the starter models; a missing one fails, it never skips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
E5 = "multilingual-e5-small-q4_0.gguf"
SMOLLM = "smollm2-135m-instruct-q4_1.gguf"


def starter(file: str) -> Path:
    """Return the path of a starter model's file."""
    folder = Path(os.environ.get("APPLIANCE_MODELS") or "~/.cache/appliance/models").expanduser()
    path = folder / file
    if not path.is_file():
        pytest.fail(
            f"{path} is missing: run 'appliance models pull' for it or set APPLIANCE_MODELS, "
            "or leave these tests out with -m 'not model'",
            pytrace=False,
        )
    return path
