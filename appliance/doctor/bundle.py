"""One file to send to somebody who helps: what the box is and found, without what it knows.

It holds no document text, file name, question, answer, key or address. What is taken is listed
here; anything else stays out.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance import config as configuration
from appliance.doctor.base import Machine
from appliance.system import files

JOURNAL_LINES = 500
STATUS_KEYS = (
    "state",
    "device",
    "memory",
    "models",
    "queue",
    "speed",
    "uptime_s",
    "versions",
    "work",
)
DOCUMENT_KEYS = ("documents", "passages", "vectors", "by_state")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|“[^”\n]*”")
_TOKEN = re.compile(r"(?i)\b(bearer|key|token|password)\b(\s*[:= ]\s*)\S+")


def redact(text: str, secrets: Sequence[str] = ()) -> str:
    """Return log text without quoted pieces (file names, questions), keys and addresses."""
    for secret in secrets:
        text = text.replace(secret, "<path>")
    text = _QUOTED.sub("<text>", text)
    text = _TOKEN.sub(r"\1\2<secret>", text)
    return _ADDRESS.sub("<address>", text)


def write_bundle(
    machine: Machine,
    target: Path,
    findings: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any] | None,
) -> None:
    """Write the archive ``target`` (tar, gzip).

    Args:
        machine: what is looked at.
        target: the file to write; its folder must exist.
        findings: the checks' results as JSON objects.
        status: what a running daemon said of itself, None when none runs.

    Raises:
        OSError: it cannot be written.
    """
    inbox = str(machine.config.inbox_dir)
    parts = {
        "doctor.json": _json(list(findings)),
        "config.yaml": configuration.to_yaml(machine.config),
        "version.txt": f"appliance {__version__}\n",
        "memory.txt": machine.text("/proc/meminfo") or "",
        "cpu.txt": "\n".join((machine.text("/proc/cpuinfo") or "").splitlines()[:40]),
        "system.txt": machine.text("/etc/os-release") or "",
    }
    if status is not None:
        chosen = {key: status[key] for key in STATUS_KEYS if key in status}
        chosen["work"] = {k: v for k, v in dict(chosen.get("work", {})).items() if k != "current"}
        counts = status.get("documents", {})
        chosen["documents"] = {key: counts[key] for key in DOCUMENT_KEYS if key in counts}
        chosen["failed"] = sorted(item["code"] for item in counts.get("failed", []))
        parts["status.json"] = _json(chosen)
    code, journal = machine.run(
        [
            "journalctl",
            "-u",
            "appliance.service",
            "-n",
            str(JOURNAL_LINES),
            "--no-pager",
            "-o",
            "short-iso",
        ]
    )
    if code == 0:
        parts["journal.txt"] = "\n".join(_paths_out(line, inbox) for line in journal.splitlines())
    npu_code, npu = machine.run(["npu-smi", "info"])
    if npu_code == 0:
        parts["npu-smi.txt"] = npu
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in parts.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"appliance-support/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o644
            archive.addfile(entry, io.BytesIO(content))
    files.write_whole(target, packed.getvalue(), mode=0o600)


def _paths_out(line: str, inbox: str) -> str:
    """Return a log line without anything below the inbox."""
    return redact(re.sub(re.escape(inbox) + r"\S*", "<inbox>", line))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
