"""The import contracts of pyproject.toml hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
