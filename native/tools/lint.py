"""Check the native sources: clang-format (any difference fails) and clang-tidy (errors fail).

clang-format must be 15 or later for the settings in ``native/.clang-format`` (InsertBraces); the
one in the venv (PyPI's ``clang-format``) is preferred to the system's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("acl-sim", "ggml-cann310b", "include", "tests")
MIN_FORMAT = 15


def sources() -> list[Path]:
    """Return every C++ file of ours."""
    found = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / "native" / folder).rglob("*"))
        if path.suffix in (".h", ".cpp")
    ]
    if not found:
        raise SystemExit("lint: no native sources found")
    return found


def clang_format() -> str:
    """Return a clang-format of the needed version, or end with what to install."""
    beside = Path(sys.executable).with_name("clang-format")
    for candidate in (
        str(beside),
        "clang-format",
        *(f"clang-format-{n}" for n in range(25, 14, -1)),
    ):
        path = shutil.which(candidate)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        version = re.search(r"version (\d+)", said.stdout)
        if version and int(version[1]) >= MIN_FORMAT:
            return path
    raise SystemExit(
        f"lint: no clang-format {MIN_FORMAT} or later. Next: pip install clang-format into the venv"
    )


def tidy(path: Path, build: Path) -> str:
    """Return clang-tidy's complaints about one file."""
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", str(build), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def main() -> int:
    """Format check on all, tidy on all that the build compiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--fix", action="store_true", help="rewrite the files in house style")
    parser.add_argument("--no-tidy", action="store_true")
    options = parser.parse_args()
    files = sources()
    mode = ["-i"] if options.fix else ["--dry-run", "--Werror"]
    formatted = subprocess.run([clang_format(), *mode, *map(str, files)], check=False)
    failed = formatted.returncode != 0
    if not options.no_tidy:
        if shutil.which("clang-tidy") is None:
            raise SystemExit("lint: clang-tidy is missing. Next: apt-get install clang-tidy")
        commands = json.loads((options.build / "compile_commands.json").read_text(encoding="utf-8"))
        compiled = {Path(entry["file"]).resolve() for entry in commands}
        wanted = [path for path in files if path in compiled]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for said in pool.map(lambda path: tidy(path, options.build), wanted):
                if said.strip():
                    print(said)
                failed = failed or "error:" in said
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
