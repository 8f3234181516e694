"""axe-core for the tests alone: fetched once by npm, checked, kept in ``.cache``."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

PACKAGE = "axe-core@4.10.3"
SHA512 = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
_FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "axe"


def axe_script() -> str:
    """Return axe-core's source; skips the test where it can neither be found nor fetched."""
    archive = _FOLDER / f"{PACKAGE.replace('@', '-')}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(f"npm is missing, which fetches {PACKAGE}")
        _FOLDER.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "pack", PACKAGE, "--pack-destination", str(_FOLDER)],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be fetched: {done.stderr.strip()[-200:]}")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert digest == SHA512, f"{archive} is not {PACKAGE}: delete it"
    with tarfile.open(archive) as tar:
        file = tar.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode("utf-8")
