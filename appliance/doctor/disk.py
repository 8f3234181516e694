"""Checks of the disk under the data folder: mounted how, how full, how healthy."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from appliance.doctor.base import Finding, Machine
from appliance.errors import Fact
from appliance.units import GIB, MIB, human_bytes

UNSAFE_FILESYSTEMS = {"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"}
"""No journal, or no fsync of folders to rely on: a power cut may cost more than the last write."""

NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}
LOW_BYTES, EMPTY_BYTES = GIB, 200 * MIB
LATEST_COMMIT_S = 30
WORN_LIFE = 10
"""JEDEC eMMC device life time: 0x0A means 90 to 100 % of the estimated life is used."""


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    device: str
    number: str
    point: str
    filesystem: str
    options: frozenset[str]


def mount_of(machine: Machine, path: Path) -> Mount | None:
    """Return the mount that holds ``path``, None when the system does not say."""
    best: Mount | None = None
    wanted = os.fspath(path)
    for line in (machine.text("/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")
        is_above = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if is_above and (best is None or len(point) >= len(best.point)):
            options = frozenset(fields[5].split(",")) | frozenset(rest[2].split(","))
            best = Mount(rest[1], fields[2], point, rest[0], options)
    return best


def mount(machine: Machine) -> Finding:
    """Does the mount keep the promise that the plug may be pulled."""
    found = mount_of(machine, machine.config.data.absolute())
    if found is None:
        return Finding("mount", "skip", "doctor_mount_unknown")
    facts = {"point": found.point, "filesystem": found.filesystem}
    commits = [o.removeprefix("commit=") for o in found.options if o.startswith("commit=")]
    if "ro" in found.options:
        return Finding("mount", "fail", "doctor_mount_read_only", facts)
    if found.filesystem in UNSAFE_FILESYSTEMS:
        return Finding("mount", "fail", "doctor_mount_unsafe", facts)
    if found.filesystem in NETWORK_FILESYSTEMS:
        return Finding("mount", "fail", "doctor_mount_network", facts)
    if found.filesystem in {"tmpfs", "ramfs"}:
        return Finding("mount", "warn", "doctor_mount_in_memory", facts)
    unsafe = found.options & {"data=writeback", "nobarrier", "barrier=0"}
    if unsafe:
        options = ", ".join(sorted(unsafe))
        return Finding("mount", "fail", "doctor_mount_options", {**facts, "options": options})
    if any(text.isdigit() and int(text) > LATEST_COMMIT_S for text in commits):
        return Finding("mount", "warn", "doctor_mount_commit", {**facts, "seconds": commits[0]})
    if not found.options & {"noatime", "relatime"}:
        return Finding("mount", "warn", "doctor_mount_atime", facts)
    return Finding("mount", "ok", "doctor_mount", facts)


def free_space(machine: Machine) -> Finding:
    """Is there room for documents."""
    usage = shutil.disk_usage(_existing(machine.config.data))
    facts = {"free": human_bytes(usage.free), "total": human_bytes(usage.total)}
    if usage.free < EMPTY_BYTES:
        return Finding("space", "fail", "doctor_space_none", facts)
    if usage.free < LOW_BYTES:
        return Finding("space", "warn", "doctor_space_low", facts)
    return Finding("space", "ok", "doctor_space", facts)


def health(machine: Machine) -> Finding:
    """Has the file system or the memory card reported errors."""
    found = mount_of(machine, machine.config.data.absolute())
    if found is not None:
        name = Path(found.device).name
        n_errors = int(machine.text(f"/sys/fs/ext4/{name}/errors_count") or 0)
        if n_errors:
            met: dict[str, Fact] = {"device": found.device, "n": n_errors}
            return Finding("disk", "fail", "doctor_disk_errors", met)
        parent = name.rsplit("p", 1)[0] if name.startswith(("mmcblk", "nvme")) else name
        life = machine.text(f"/sys/block/{parent}/device/life_time")
        if life:
            used = max(int(part, 16) for part in life.split())
            if used >= WORN_LIFE:
                worn: dict[str, Fact] = {"device": found.device, "percent": min(used * 10, 100)}
                return Finding("disk", "warn", "doctor_disk_worn", worn)
    return Finding("disk", "ok", "doctor_disk")


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


CHECKS = (mount, free_space, health)
