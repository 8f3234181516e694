"""A bootable Debian disk with the appliance installed on it, and the machine that boots it.

The root is made with debootstrap; the release archive is unpacked in it and installed with its own
installer, as the README says. The only things added for the test are a root shell on the first
serial line (to look inside) and settings for a slow machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tarfile
import termios
import time
import tty
from pathlib import Path
from types import TracebackType

SUITE = "bookworm"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
PACKAGES = (
    "systemd,systemd-sysv,udev,dbus,kmod,iproute2,procps,ca-certificates,"
    "python3,python3-venv,linux-image-cloud-amd64"
)
SIZE = "6G"
MEMORY_MIB = 2048
PROMPT = "BOOT-TEST# "


def sh(*command: str | Path, **more: str) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, **more})


class Chroot:
    """A root folder with the file systems a package's scripts expect mounted inside."""

    MOUNTS = (("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev"), ("devpts", "dev/pts"))

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> Chroot:
        for kind, where in self.MOUNTS:
            sh("mount", "-t", kind, kind, self.root / where)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for _, where in reversed(self.MOUNTS):
            sh("umount", "-l", self.root / where)

    def run(self, script: str) -> None:
        """Run a shell script inside that must succeed."""
        environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        command = ["chroot", str(self.root), "/bin/sh", "-ec", script]
        subprocess.run(command, check=True, env={**environ, "HOME": "/root", "LANG": "C.UTF-8"})


def make_root(root: Path, suite: str = SUITE, packages: str = PACKAGES) -> None:
    """Make a minimal system; ``root`` must not exist."""
    sh("debootstrap", "--variant=minbase", f"--include={packages}", suite, root, MIRROR)


def install(root: Path, archive: Path, options: str) -> None:
    """Unpack a release archive in the root and run its installer without a network."""
    with tarfile.open(archive) as packed:
        name = packed.getnames()[0].split("/")[0]
        packed.extractall(root / "root")
    with Chroot(root) as inside:
        inside.run(f"cd /root/{name} && ./systemd/install.sh --offline {options}")
    shutil.rmtree(root / "root" / name)


def open_shell(root: Path) -> None:
    """Put a root shell with a known prompt on the first serial line."""
    drop_in = root / "etc/systemd/system/serial-getty@ttyS0.service.d/shell.conf"
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text(
        "[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin root --noclear %I 115200 dumb\n"
    )
    (root / "root/.profile").write_text(f"PS1='{PROMPT}'; export PS1; stty -echo\n")
    (root / "root/.bash_profile").write_text(f"PS1='{PROMPT}'; stty -echo\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults,noatime 0 1\n")


def make_disk(root: Path, disk: Path) -> None:
    """Write the root into an ext4 file system in a sparse file."""
    disk.unlink(missing_ok=True)
    sh("mke2fs", "-q", "-t", "ext4", "-d", root, "-L", "box", disk, SIZE)


class Line:
    """One emulated serial line, as a terminal at its far end sees it."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.fd, termios.TCSANOW)
        self.seen = ""
        self._rest = b""

    def send(self, text: str) -> None:
        """Type a text."""
        os.write(self.fd, text.encode())

    def expect(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until what came in since the last match fits; return the match.

        Raises:
            AssertionError: it did not come in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come within {timeout_s} s; got:\n{self.seen}"
            if select.select([self.fd], [], [], min(left, 1.0))[0]:
                with contextlib.suppress(OSError):
                    self._rest += os.read(self.fd, 65536)
                text = self._rest.decode("utf-8", "ignore")
                self.seen += text
                self._rest = b""

    def close(self) -> None:
        """Unplug."""
        os.close(self.fd)


class Machine:
    """The emulated board: ``console`` is its root shell, ``uart`` the appliance's serial line."""

    def __init__(self, root: Path, disk: Path, accel: str = "tcg,thread=multi") -> None:
        self.root, self.disk, self.accel = root, disk, accel
        self.process: subprocess.Popen[str] | None = None
        self.started = 0.0

    def __enter__(self) -> Machine:
        kernel = sorted(self.root.glob("boot/vmlinuz-*"))[-1]
        initrd = sorted(self.root.glob("boot/initrd.img-*"))[-1]
        command = [
            *("qemu-system-x86_64", "-accel", self.accel, "-cpu", "max", "-smp", "2"),
            *(
                "-m",
                str(MEMORY_MIB),
                "-nographic",
                "-no-reboot",
                "-monitor",
                "none",
                "-net",
                "none",
            ),
            *("-kernel", str(kernel), "-initrd", str(initrd)),
            *("-append", "root=/dev/vda rw console=ttyS0,115200 quiet panic=-1"),
            *("-drive", f"file={self.disk},if=virtio,format=raw,cache=writeback"),
            *("-serial", "pty", "-serial", "pty"),
        ]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        paths: list[str] = []
        assert self.process.stdout is not None
        while len(paths) < 2:
            said = self.process.stdout.readline()
            assert said, "the emulator ended at once"
            paths += re.findall(r"redirected to (\S+)", said)
        self.console, self.uart = Line(paths[0]), Line(paths[1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.pull_the_plug()

    def pull_the_plug(self) -> None:
        """End the machine as a power cut does."""
        if self.process is None:
            return
        process, self.process = self.process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.console.close()
        self.uart.close()

    def wait_for_shell(self, timeout_s: float = 300.0) -> float:
        """Wait for the root shell; returns seconds since power-on."""
        self.console.expect(re.escape(PROMPT), timeout_s)
        return time.monotonic() - self.started

    def shell(self, command: str, timeout_s: float = 120.0) -> str:
        """Run a command in the root shell and return what it printed; it must succeed."""
        self.console.seen = ""
        self.console.send(f'{command}; echo "@status=$?@"\n')
        found = self.console.expect(r"(?s)(.*?)@status=(\d+)@", timeout_s)
        output = found[1].replace("\r", "").replace(PROMPT, "").strip()
        assert found[2] == "0", f"{command} ended with {found[2]}:\n{output}"
        return output
