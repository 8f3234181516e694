"""Our ACL declarations against the vendor's own headers, and proof that a difference is seen."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "native/include/acl310b"


def check(headers: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "native/tools/header_check.py"),
        "--headers",
        str(headers),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_declarations_match_the_vendor_headers() -> None:
    done = check(HEADERS)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (r"ACL_FORMAT_FRACTAL_NZ +=  *29,", "ACL_FORMAT_FRACTAL_NZ = 28,", "ACL_FORMAT_FRACTAL_NZ"),
        (r"ACL_FLOAT16 +=  *1,", "ACL_FLOAT16 = 2,", "ACL_FLOAT16"),
        (r"size_t destMax", "uint32_t destMax", "aclrtMemcpy"),
    ],
    ids=["format", "data-type", "argument-type"],
)
def test_changed_declaration_is_named(tmp_path: Path, before: str, after: str, named: str) -> None:
    changed = tmp_path / "acl310b"
    shutil.copytree(HEADERS, changed)
    touched = 0
    for header in changed.glob("*.h"):
        text = header.read_text(encoding="utf-8")
        text, n = re.subn(before, after, text, count=1)
        header.write_text(text, encoding="utf-8")
        touched += n
    assert touched == 1, f"{before!r} stands in {touched} headers"

    done = check(changed)

    assert done.returncode == 1
    assert named in done.stdout + done.stderr
