"""Where the files that are no Python code lie: the model catalogue and the pages of the kiosk.

In a source tree they are in ``assets/`` beside the package. A wheel installs the same files under
its environment's ``share/appliance`` (``[tool.setuptools.data-files]`` in pyproject.toml).
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

_SOURCE_TREE = Path(__file__).resolve().parents[2]
_INSTALLED = Path("share") / "appliance"


def asset(name: str) -> Path:
    """Return the path of an asset; ``name`` is relative to ``assets/``, as ``models.yaml``."""
    beside = _SOURCE_TREE / "assets" / name
    # A package in site-packages may have a stranger's folder named assets for a neighbour.
    if beside.exists() and (_SOURCE_TREE / "pyproject.toml").is_file():
        return beside
    return Path(sysconfig.get_path("data")) / _INSTALLED / name
