#!/usr/bin/env python3
"""Boot the installed appliance in an emulated machine, use it, and pull its plug again and again.

    python tests/boot/boot_test.py --archive dist/appliance-0.1.0-linux-x86_64.tar.gz --cuts 20

Shows, on a Debian root installed with our installer: the service is active with its watchdog, the
serial line shows the banner and answers a Chinese question with its source, a file copied into the
inbox can be found, and after each power cut the next boot has lost no document, with no manual
step. The processor is emulated in software, so times say nothing about a board.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.boot.image import Machine, install, make_disk, make_root, open_shell

ROOT = Path(__file__).parents[2]
CONFIG = """\
models: {generation: smollm2-135m-instruct}
engine: {n_ctx: 2048, n_slots: 1}
assistant: {evidence_tokens: 200, max_answer_tokens: 24}
inbox: {settle_s: 0.5, rescan_s: 10.0}
"""
DOCUMENT = "图书馆常见问题\n\n图书馆周末下午五点关门，早上十点开门。\n"
QUESTION = "图书馆周末几点关门？"
INTEGRITY = (
    "import sqlite3; db = sqlite3.connect('/var/lib/appliance/appliance.db'); "
    "print(db.execute('PRAGMA integrity_check').fetchone()[0])"
)
READY_S = 420.0
ANSWER_S = 900.0


def prepare(root: Path, archive: Path) -> None:
    """Install the archive into a fresh root, with what a slow machine needs."""
    install(root, archive, "--serial ttyS1 --no-start")
    open_shell(root)
    data = root / "var/lib/appliance"
    owner = data.stat()
    settings = data / "appliance.yaml"
    settings.write_text(CONFIG + settings.read_text(encoding="utf-8"), encoding="utf-8")
    document = data / "inbox" / "faq.txt"
    document.write_text(DOCUMENT, encoding="utf-8")
    for path in (settings, document):
        shutil.chown(path, owner.st_uid, owner.st_gid)


def wait_ready(machine: Machine) -> None:
    """Wait until the service answers and nothing is left to read."""
    machine.shell("until appliance status >/dev/null 2>&1; do sleep 1; done", READY_S)
    machine.shell("appliance kb wait --timeout 300 >/dev/null", READY_S)


def documents(machine: Machine) -> dict[str, object]:
    """Return ``kb stats``."""
    found: dict[str, object] = json.loads(machine.shell("appliance kb stats --json"))
    return found


def first_boot(machine: Machine) -> None:
    """The whole product, once."""
    print(f"shell after {machine.wait_for_shell():.0f} s", flush=True)
    wait_ready(machine)
    print(f"service answers after {time.monotonic() - machine.started:.0f} s", flush=True)
    shown = machine.shell(
        "systemctl show appliance -p ActiveState,SubState,Type,WatchdogUSec,NRestarts,StatusText"
    )
    print(shown, flush=True)
    assert "ActiveState=active" in shown
    assert "SubState=running" in shown
    assert "Type=notify" in shown
    assert "WatchdogUSec=1min 30s" in shown
    assert "NRestarts=0" in shown
    failed = machine.shell("systemctl --failed --no-legend --plain | cat")
    assert "appliance" not in failed, failed

    machine.uart.send("\r")
    machine.uart.expect(r"(?i)documents|文档", 60)
    asked = time.monotonic()
    machine.uart.send(f"{QUESTION}\r")
    machine.uart.expect(r"faq\.txt", ANSWER_S)
    print(f"cited answer on the serial line after {time.monotonic() - asked:.0f} s", flush=True)

    machine.shell("printf 'The spare key hangs behind the boiler GB-4711.\\n' > /tmp/k.txt")
    machine.shell("install -o appliance -g appliance -m 640 /tmp/k.txt /var/lib/appliance/inbox/")
    machine.shell(
        "until appliance kb search 'GB-4711' | grep -q boiler; do sleep 1; done", timeout_s=120
    )
    print("a copied file can be found", flush=True)


def cut_once(machine: Machine, rng: random.Random, number: int, *, chat: bool) -> float:
    """Boot, check what the last cut left, make work, pull the plug; returns seconds to ready."""
    machine.wait_for_shell()
    wait_ready(machine)
    ready_s = time.monotonic() - machine.started
    found = documents(machine)
    n_files = int(machine.shell("ls /var/lib/appliance/inbox | grep -vc ^_STATUS || true"))
    checked = machine.shell("appliance kb check")
    assert found["documents"] == n_files, f"{n_files} files, {found}"
    assert not found["failed"], found
    machine.shell(
        "for i in $(seq 1 8); do "
        f"printf 'Note {number}.%s about subject %s.\\n' $i $RANDOM "
        f"> /var/lib/appliance/inbox/note-{number}-$i.txt; done; "
        "chown appliance: /var/lib/appliance/inbox/*; sync"
    )
    if chat:
        machine.uart.send(f"\r{QUESTION}\r")
    time.sleep(rng.uniform(0.0, 12.0))
    machine.pull_the_plug()
    kind = "chat and reading" if chat else "reading"
    print(
        f"cut {number}: ready after {ready_s:.0f} s, {n_files} documents, {checked}; cut in {kind}",
        flush=True,
    )
    return ready_s


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--archive", type=Path, help="a release archive (default: newest in dist/)")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="keep root and disk here and use them again")
    chosen = parser.parse_args()
    archives = sorted((ROOT / "dist").glob("appliance-*-linux-x86_64.tar.gz"))
    archive = chosen.archive or (archives[-1] if archives else None)
    if archive is None:
        parser.error("there is no release archive; run: make dist ARCH=x86_64")
    rng = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory(prefix="boot-test-") as made:
        work = chosen.work or Path(made)
        work.mkdir(parents=True, exist_ok=True)
        root, disk = work / "root", work / "disk.ext4"
        if not (root / "opt/appliance/installed").exists():
            if not root.exists():
                make_root(root)
            prepare(root, archive)
        make_disk(root, disk)
        with Machine(root, disk) as machine:
            first_boot(machine)
            machine.shell("sync")
        times = []
        for number in range(1, chosen.cuts + 1):
            with Machine(root, disk) as machine:
                times.append(cut_once(machine, rng, number, chat=number % 2 == 0))
        with Machine(root, disk) as machine:
            machine.wait_for_shell()
            wait_ready(machine)
            found = documents(machine)
            checked = machine.shell("appliance kb check")
            integrity = machine.shell(f'/opt/appliance/venv/bin/python -c "{INTEGRITY}"')
            machine.shell("systemctl poweroff", 30)
    assert found["documents"] == 2 + 8 * chosen.cuts, found
    assert re.search(r"\bok\b", integrity), integrity
    median = statistics.median(times) if times else 0.0
    print(
        f"{chosen.cuts} power cuts (seed {chosen.seed}): {found['documents']} documents, 0 lost; "
        f"integrity {integrity}; {checked}; median {median:.0f} s from power-on to ready"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
