#!/usr/bin/env python3
"""Install, install again, uninstall with and without the data, in fresh Debian userlands.

    python tests/boot/install_test.py --suites bookworm trixie

Needs root and a release archive in dist/ (make dist ARCH=x86_64).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.boot.image import Chroot, make_root

ROOT = Path(__file__).parents[2]
PACKAGES = "systemd,systemd-sysv,udev,python3,python3-venv"
WATCHED = ("etc", "opt", "usr/local", "var/lib/appliance")
INSTALLED = (
    "opt/appliance/venv/bin/appliance",
    "usr/local/bin/appliance",
    "etc/systemd/system/appliance.service",
    "etc/systemd/system/multi-user.target.wants/appliance.service",
    "etc/udev/rules.d/70-appliance.rules",
    "var/lib/appliance/inbox",
)


def said(inside: Chroot, script: str) -> str:
    """Run a script inside and return what it said; it must succeed."""
    environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(
        ["chroot", str(inside.root), "/bin/sh", "-ec", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**environ, "HOME": "/root", "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file the installer may touch."""
    found = {}
    for top in WATCHED:
        for path in (root / top).rglob("*"):
            status = path.lstat()
            if not path.is_dir():
                found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def try_suite(suite: str, archive: Path, work: Path) -> None:
    """Show the four runs on one userland."""
    root = work / suite
    make_root(root, suite, PACKAGES)
    with tarfile.open(archive) as packed:
        name = packed.getnames()[0].split("/")[0]
        packed.extractall(root / "root")
    install = f"cd /root/{name} && ./systemd/install.sh --offline"
    with Chroot(root) as inside:
        would = said(inside, f"{install} --dry-run")
        assert "changes would be made" in would, would
        assert not (root / "opt/appliance").exists()

        print(said(inside, install), flush=True)
        assert all((root / path).exists() for path in INSTALLED)
        version = said(inside, "appliance --version").strip()
        python = said(inside, "/opt/appliance/venv/bin/python --version").strip()
        models = said(inside, "appliance models list")
        assert models.count("here") >= 3, models

        before = state(root)
        again = said(inside, install)
        assert "nothing was changed" in again, again
        assert state(root) == before

        (root / "var/lib/appliance/inbox/mine.txt").write_text("mine")
        gone = said(inside, f"{install.split(' --')[0]} --uninstall")
        assert "still in /var/lib/appliance" in gone, gone
        assert not any((root / path).exists() for path in INSTALLED[:5])
        assert (root / "var/lib/appliance/inbox/mine.txt").read_text() == "mine"
        assert "nothing to remove" in said(inside, f"{install.split(' --')[0]} --uninstall")

        said(inside, install)
        assert (root / "var/lib/appliance/inbox/mine.txt").read_text() == "mine"
        said(inside, f"{install.split(' --')[0]} --uninstall --purge")
        assert not (root / "var/lib/appliance").exists()
        assert "appliance" not in said(inside, "cat /etc/passwd")
    print(f"{suite}: {version} on {python}: installed, unchanged, removed, restored, purged")


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--suites", nargs="+", default=["bookworm", "trixie"])
    parser.add_argument("--archive", type=Path)
    chosen = parser.parse_args()
    archives = sorted((ROOT / "dist").glob("appliance-*-linux-x86_64.tar.gz"))
    archive = chosen.archive or (archives[-1] if archives else None)
    if archive is None:
        parser.error("there is no release archive; run: make dist ARCH=x86_64")
    with tempfile.TemporaryDirectory(prefix="install-test-") as work:
        for suite in chosen.suites:
            try_suite(suite, archive, Path(work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
