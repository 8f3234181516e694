"""Fetch the two pinned upstream archives the native build reads, through pip, checked by SHA-256.

    python native/tools/fetch.py sdist       prints the unpacked llama-cpp-python source tree
    python native/tools/fetch.py torch-npu   prints the path of the wheel (never installed)

Nothing of either is committed: they live in a git-ignored cache. Which index serves them is pip's
business (its own configuration); the digest decides whether the bytes are the right ones.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "native"


@dataclass(frozen=True)
class Pin:
    """One archive: what pip is asked for, the file it must produce and that file's SHA-256."""

    requirement: str
    file_name: str
    sha256: str
    pip_options: tuple[str, ...]


PINS = {
    "sdist": Pin(
        "llama-cpp-python==0.3.36",
        "llama_cpp_python-0.3.36.tar.gz",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        ("--no-binary=llama-cpp-python",),
    ),
    "torch-npu": Pin(
        "torch-npu==2.14.0",
        "torch_npu-2.14.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "7736f7d82cf9f16c7dfc4537f7e7c638153da760273a193455e70857f912189e",
        # One fixed wheel whatever the host is: only its headers are read.
        (
            "--only-binary=:all:",
            "--implementation=cp",
            "--python-version=3.11",
            "--platform=manylinux_2_28_x86_64",
        ),
    ),
}


class FetchError(Exception):
    """The archive could not be had, or is not the pinned one; the text says what to do next."""


def sha256_of(path: Path) -> str:
    """Return the file's SHA-256 in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fetch(name: str, cache: Path = CACHE) -> Path:
    """Return the path of the pinned archive, downloading it when the cache lacks it.

    Raises:
        FetchError: pip failed, or the file's digest is not the pinned one.
    """
    pin = PINS[name]
    path = cache / pin.file_name
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += [*pin.pip_options, "--dest", str(cache), pin.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FetchError(
                f"pip could not download {pin.requirement}:\n{done.stderr.strip()}\n"
                f"Next: connect, or put {pin.file_name} into {cache} yourself."
            )
    if not path.exists():
        found = sorted(entry.name for entry in cache.iterdir())
        raise FetchError(f"pip saved no {pin.file_name} in {cache}; found {found}")
    got = sha256_of(path)
    if got != pin.sha256:
        raise FetchError(
            f"{path} has SHA-256 {got}, pinned is {pin.sha256}. "
            "Next: delete the file and fetch again; if it stays so, do not use it."
        )
    return path


def unpacked_sdist(cache: Path = CACHE) -> Path:
    """Return the folder of the unpacked llama-cpp-python source, unpacking it once.

    Raises:
        FetchError: see ``fetch``.
    """
    archive = fetch("sdist", cache)
    folder = cache / archive.name.removesuffix(".tar.gz")
    stamp = folder / ".unpacked"
    if not stamp.exists():
        with tarfile.open(archive) as tar:
            root = cache.resolve()
            for member in tar.getmembers():
                if not (root / member.name).resolve().is_relative_to(root):
                    raise FetchError(f"{archive.name}: {member.name!r} leaves the folder")
            tar.extractall(cache)  # members checked above; Python 3.10.0 has no filter argument
        stamp.write_text(PINS["sdist"].sha256 + "\n", encoding="ascii")
    return folder


def main() -> int:
    """Fetch what the command line names and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(PINS))
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    try:
        if options.name == "sdist":
            path = unpacked_sdist(options.cache)
        else:
            path = fetch(options.name, options.cache)
    except FetchError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
