"""The units, judged by systemd's own tools, and the installer's arguments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.daemon import STOP_DEADLINES_S

FOLDER = Path(__file__).parents[2] / "systemd"
EXPOSURE_MAX = 2.5

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def said(*command: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"},
        timeout=60,
    )
    return done.returncode, done.stdout


@needs_systemd
@pytest.mark.parametrize("name", ["appliance.service", "appliance-kiosk.service"])
def test_unit_has_no_mistake(tmp_path: Path, name: str) -> None:
    # The programs it starts are put on this machine by the installer, not by the test.
    text = (FOLDER / name).read_text()
    text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", text, flags=re.M)
    text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)
    unit = tmp_path / name
    unit.write_text(text)
    status, output = said("systemd-analyze", "verify", "--man=no", unit)
    ours = [line for line in output.splitlines() if name in line]
    assert (status, ours) == (0, [])


@needs_systemd
def test_verify_would_see_a_mistake(tmp_path: Path) -> None:
    unit = tmp_path / "appliance.service"
    unit.write_text((FOLDER / unit.name).read_text().replace("WatchdogSec=90s", "WatchdogSecs=90s"))
    _, output = said("systemd-analyze", "verify", "--man=no", unit)
    assert "WatchdogSecs" in output


@needs_systemd
def test_daemon_is_exposed_to_little() -> None:
    _, output = said(
        "systemd-analyze", "security", "--offline=true", "--no-pager", FOLDER / "appliance.service"
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert found, output
    assert float(found[1]) <= EXPOSURE_MAX


def test_unit_waits_longer_than_the_parts_may_take() -> None:
    text = (FOLDER / "appliance.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)s$", text, re.M)
    assert found
    assert sum(STOP_DEADLINES_S.values()) < int(found[1])


def test_typo_in_the_configuration_does_not_restart_for_ever() -> None:
    assert "RestartPreventExitStatus=78" in (FOLDER / "appliance.service").read_text()


@pytest.mark.parametrize("name", ["install.sh", "kiosk.sh", "appliance.sh"])
def test_script_parses(name: str) -> None:
    path = FOLDER / name
    assert os.access(path, os.X_OK)
    assert said("sh", "-n", path) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--frobnicate",), "There is no option --frobnicate."),
        (("--purge",), "--purge only goes with --uninstall."),
        (("--serial",), "--serial needs the name of a port"),
        (("--serial", "../etc/passwd"), "A port is a name in /dev"),
    ],
)
def test_installer_refuses_what_it_does_not_know(arguments: tuple[str, ...], words: str) -> None:
    status, output = said(FOLDER / "install.sh", *arguments)
    assert status == 2
    assert words in output


def test_installer_says_what_it_would_do_and_does_nothing() -> None:
    before = sorted(Path("/etc/systemd/system").glob("appliance*"))
    status, output = said(FOLDER / "install.sh", "--dry-run")
    if shutil.which("systemctl") is None:
        assert "this system has no systemd" in output
        return
    assert status == 0, output
    assert "would: install the program" in output
    assert "changes would be made" in output
    assert sorted(Path("/etc/systemd/system").glob("appliance*")) == before
