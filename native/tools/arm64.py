"""Cross-build for aarch64 and run it under qemu-user: unit tests, then one tiny generation.

Builds the pinned llama.cpp as shared libraries (once, kept in the cache), our plugin, simulator and
unit tests against them, runs every unit test under qemu, and compares a tiny model's tokens on the
plugin over the simulator with those of ggml's CPU code, both emulated. Also checks that the
shipped plugin needs no newer glibc than Ubuntu 22.04 has (2.35).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from native.tools.fetch import CACHE, unpacked_sdist  # noqa: E402
from tests.native.gguf_models import TINY, write_random  # noqa: E402

TOOLCHAIN = ROOT / "native/cmake/aarch64.toolchain.cmake"
QEMU = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
PROMPT = [5, 99, 17, 200, 3, 42, 8]
N_PREDICT = 12
GLIBC_MAX = (2, 35)
LLAMA_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DLLAMA_CURL=OFF",
    *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("APP", "COMMON", "TESTS", "TOOLS", "EXAMPLES")),
    "-DLLAMA_BUILD_SERVER=OFF",
]


def step(*command: str | Path, **more: str) -> None:
    """Run a command, showing it; a failure ends the script with its status."""
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    done = subprocess.run(words, env={**os.environ, **more}, check=False)
    if done.returncode != 0:
        sys.exit(f"arm64: {words[0]} failed with status {done.returncode}")


def generator() -> list[str]:
    """Return cmake's generator option: ninja where there is one."""
    return ["-G", "Ninja"] if shutil.which("ninja") else []


def build_llama(sdist: Path, jobs: int) -> Path:
    """Return the folder of aarch64 libllama and libggml*, built once."""
    build = CACHE / "llama-arm64"
    source = sdist / "vendor/llama.cpp"
    tool = f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}"
    step("cmake", "-S", source, "-B", build, *generator(), tool, *LLAMA_OPTIONS)
    step("cmake", "--build", build, "-j", str(jobs), "--target", "llama", "ggml")
    return build / "bin"


def build_ours(sdist: Path, libraries: Path, build: Path, jobs: int) -> None:
    """Build plugin, simulator, unit tests and ``generate``."""
    step(
        *("cmake", "-S", ROOT / "native", "-B", build, *generator()),
        f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}",
        f"-DGGML_HEADERS={sdist}/vendor/llama.cpp/ggml",
        f"-DGGML_LIB={libraries}",
    )
    step("cmake", "--build", build, "-j", str(jobs))
    step("cmake", "--build", build, "-j", str(jobs), "--target", "generate")


def glibc_needed(library: Path) -> tuple[int, int]:
    """Return the newest glibc version a library's symbols ask for."""
    done = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-T", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [
        (int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", done.stdout)
    ]
    return max(found)


def tokens(build: Path, model: Path, plugin: str) -> list[int]:
    """Generate under qemu and return the tokens."""
    environment = {
        **os.environ,
        "ASCEND_TOOLKIT_HOME": str(build / "sim-toolkit"),
        "ACL_SIM_CONFIG": json.dumps({"chip": "310B4", "threads": 2, "seed": 1}),
    }
    words = [*QEMU, str(build / "generate"), str(model), plugin, str(N_PREDICT), *map(str, PROMPT)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    if done.returncode != 0:
        sys.exit(f"arm64: generate on {plugin} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return [int(line) for line in done.stdout.split()]


def main() -> int:
    """Build, test, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--build", type=Path, default=ROOT / "build/native-arm64")
    options = parser.parse_args()
    for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64-static", "cmake"):
        if shutil.which(tool) is None:
            print(
                f"arm64: {tool} is missing. "
                "Next: apt-get install crossbuild-essential-arm64 qemu-user-static cmake",
                file=sys.stderr,
            )
            return 1
    build = options.build.resolve()
    sdist = unpacked_sdist()
    libraries = build_llama(sdist, options.jobs)
    build_ours(sdist, libraries, build, options.jobs)

    plugin = build / "libggml-cann310b.so"
    needed = glibc_needed(plugin)
    print(f"{plugin.name} needs glibc {needed[0]}.{needed[1]}")
    if needed > GLIBC_MAX:
        print(f"arm64: Ubuntu 22.04 has only {GLIBC_MAX[0]}.{GLIBC_MAX[1]}", file=sys.stderr)
        return 1

    step("ctest", "--test-dir", build, "--output-on-failure", "-LE", "slow|native-only")

    different = 0
    for arch, shape in TINY.items():
        model = write_random(build / f"tiny-{arch}.gguf", shape, seed=7)
        on_cpu = tokens(build, model, "cpu")
        on_npu = tokens(build, model, str(plugin))
        same = on_cpu == on_npu
        different += not same
        print(f"{arch}: {N_PREDICT} tokens under qemu {'agree' if same else 'DIFFER'}: {on_npu}")
        if not same:
            print(f"   on the CPU: {on_cpu}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
