"""Build the release archives: one folder that installs without a network, packed per machine.

    python assets/setup/dist.py [--arch x86_64 aarch64] [--no-models] [--jobs 2]

Each ``dist/appliance-VERSION-linux-ARCH.tar.gz`` holds the wheels of the program and of everything
it needs (llama-cpp-python compiled here, for a plain board of that kind rather than for this very
processor), the NPU plugin, the units, the installer and, unless left out, the starter models.
``SHA256SUMS`` lists every archive. Nothing in it asks for a newer glibc than Ubuntu 22.04 has.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from appliance import __version__  # noqa: E402
from appliance.system.files import sha256_of  # noqa: E402

DIST = ROOT / "dist"
CACHE = ROOT / ".cache" / "dist"
GLIBC_MAX = (2, 35)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""Pythons of Ubuntu 22.04, Debian 12, Ubuntu 24.04 and Debian 13."""

LLAMA = "llama-cpp-python==0.3.36"
JIEBA = "jieba==0.42.1"
CMAKE_ARGS = {
    # Any x86-64 of the last ten years; any 64-bit board with a Cortex-A76 or newer, the 310B's too.
    # Without OpenMP: its library comes with a compiler, which a board need not have.
    "x86_64": "-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON"
    " -DGGML_F16C=ON -DGGML_BMI2=ON",
    "aarch64": "-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16"
    f" -DCMAKE_TOOLCHAIN_FILE={ROOT}/native/cmake/aarch64.toolchain.cmake",
}
PLATFORMS = (
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_24",
    "manylinux_2_26",
    "manylinux_2_27",
    "manylinux_2_28",
    "manylinux_2_31",
    "manylinux_2_34",
    "manylinux_2_35",
)
FILES = ("README.md", "README.zh-CN.md", "LICENSE", "CHANGELOG.md", "systemd", "docs")


class DistError(Exception):
    """The archive could not be built; the text says why."""


def run(*command: str | Path, **more: str) -> None:
    """Run a command, showing it.

    Raises:
        DistError: it failed.
    """
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    done = subprocess.run(words, env={**os.environ, **more}, check=False)
    if done.returncode != 0:
        raise DistError(f"{words[0]} ended with status {done.returncode}")


def own_wheel(target: Path) -> None:
    """Build the program's wheel into ``target`` and, beside the archives, its source archive."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", target, ROOT)
    # Pure Python, published as source only.
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", target, JIEBA)
    run(sys.executable, "-m", "pip", "install", "-q", "build")
    run(sys.executable, "-m", "build", "-q", "--sdist", "--outdir", DIST, ROOT)


def llama_wheel(arch: str, jobs: int) -> Path:
    """Return llama-cpp-python's wheel for a machine; compiled once, kept in the cache."""
    folder = CACHE / f"llama-{arch}"
    found = list(folder.glob("llama_cpp_python-*.whl"))
    if found:
        return found[0]
    flags = {"CMAKE_ARGS": CMAKE_ARGS[arch], "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    if arch != os.uname().machine:
        # What sysconfig.get_platform() says decides the wheel's tag.
        flags["_PYTHON_HOST_PLATFORM"] = f"linux-{arch}"
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir")
    run(*pip, "--no-binary", "llama-cpp-python", "-w", folder, LLAMA, **flags)
    return next(folder.glob("llama_cpp_python-*.whl"))


def dependencies(arch: str, target: Path, llama: Path) -> None:
    """Collect the wheels of everything else the program needs, for each Python it may meet."""
    for python in PYTHONS:
        # Our own wheel of llama-cpp-python is a plain linux one.
        options = [f"--platform={name}_{arch}" for name in (*PLATFORMS, "linux")]
        run(
            *(sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"),
            *("--implementation=cp", f"--python-version={python}", *options),
            *("--find-links", llama.parent, "--find-links", target, "-d", target),
            f"appliance=={__version__}",
        )


def glibc_needed(library: Path) -> tuple[int, int]:
    """Return the newest glibc version the library's symbols ask for."""
    text = subprocess.run(
        ["objdump", "-T", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = [tuple(map(int, m)) for m in re.findall(r"GLIBC_(\d+)\.(\d+)", text)]
    return max(found, default=(0, 0))  # type: ignore[return-value]


def check_glibc(wheels: Path, lib: Path) -> None:
    """Read every shared library that is shipped.

    Raises:
        DistError: one needs a newer glibc than the oldest system supported has.
    """
    unpacked = CACHE / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    libraries = list(lib.glob("*.so"))
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".so" in Path(name).name]
            archive.extractall(unpacked / wheel.name, names)
        libraries += [p for p in (unpacked / wheel.name).rglob("*.so*") if p.is_file()]
    late = {path: glibc_needed(path) for path in libraries}
    newest = max(late.values(), default=(0, 0))
    print(f"{len(libraries)} shared libraries, newest glibc asked for: {newest[0]}.{newest[1]}")
    too_new = [path for path, version in late.items() if version > GLIBC_MAX]
    if too_new:
        raise DistError(f"these need a newer glibc than 2.35: {', '.join(map(str, too_new))}")


def plugin(arch: str, target: Path) -> None:
    """Copy the NPU plugin that was built for the machine.

    Raises:
        DistError: it was not built yet.
    """
    build = "native" if arch == os.uname().machine else "native-arm64"
    found = list((ROOT / "build" / build).rglob("libggml-cann310b.so"))
    if not found:
        make = "make native" if build == "native" else "make native-arm64"
        raise DistError(f"the plugin for {arch} is not built; run: {make}")
    target.mkdir(parents=True)
    shutil.copy2(found[0], target / found[0].name)


def starter_models(target: Path) -> None:
    """Copy the starter models from the cache; pull them first if they are not there."""
    from appliance.models import ModelStore
    from appliance.models.catalogue import load_catalogue

    cache = os.environ.get("APPLIANCE_MODELS") or "~/.cache/appliance/models"
    store = ModelStore(Path(cache).expanduser())
    target.mkdir(parents=True)
    for entry in load_catalogue().starters:
        store.pull(entry.name)
        shutil.copy2(store.path(entry.name), target / f"{entry.name}.gguf")


def archive(arch: str, jobs: int, *, with_models: bool) -> Path:
    """Build the archive for one machine and return its path."""
    name = f"appliance-{__version__}-linux-{arch}"
    stage = CACHE / name
    shutil.rmtree(stage, ignore_errors=True)
    wheels = stage / "wheels"
    wheels.mkdir(parents=True)
    own_wheel(wheels)
    llama = llama_wheel(arch, jobs)
    dependencies(arch, wheels, llama)
    plugin(arch, stage / "lib")
    check_glibc(wheels, stage / "lib")
    for item in FILES:
        source = ROOT / item
        if source.is_dir():
            shutil.copytree(source, stage / item)
        else:
            shutil.copy2(source, stage / item)
    (stage / "assets/setup").mkdir(parents=True)
    shutil.copy2(ROOT / "assets/setup/install.sh", stage / "assets/setup/install.sh")
    if with_models:
        starter_models(stage / "models")
    target = DIST / f"{name}.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=1 if with_models else 6) as packed:
        packed.add(stage, arcname=name)
    return target


def write_sums() -> None:
    """Write ``SHA256SUMS`` over everything in ``dist/``."""
    lines = [
        f"{sha256_of(path)}  {path.name}\n"
        for path in sorted(DIST.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--arch", nargs="+", choices=sorted(CMAKE_ARGS), default=sorted(CMAKE_ARGS))
    parser.add_argument("--no-models", action="store_true", help="leave the starter models out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    try:
        for arch in chosen.arch:
            print(archive(arch, chosen.jobs, with_models=not chosen.no_models))
        write_sums()
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
