"""The notification protocol against a real datagram socket, as systemd has one."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.system.notify import Heartbeat, Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "notify")
    name = path if request.param == "path" else f"@{path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + path if request.param == "abstract" else path)
        sock.settimeout(5)
        yield name, sock


def test_each_message_is_one_datagram(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})

    notifier.ready("model\nready")
    notifier.status("忙")
    notifier.watchdog()
    notifier.stopping()

    assert notifier.is_active
    assert sock.recv(4096) == b"READY=1\nSTATUS=model ready"
    assert sock.recv(4096).decode() == "STATUS=忙"
    assert sock.recv(4096) == b"WATCHDOG=1"
    assert sock.recv(4096) == b"STOPPING=1"


def test_reload_carries_the_monotonic_time(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager

    Notifier({"NOTIFY_SOCKET": name}).reloading()

    first, second = sock.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_without_a_manager_nothing_is_sent() -> None:
    notifier = Notifier({})

    notifier.ready("x")

    assert not notifier.is_active
    assert notifier.watchdog_s is None


def test_manager_that_went_away_is_logged_and_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")

    assert "did not take READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_ping_is_due_twice_in_what_the_manager_allows(
    environ: dict[str, str], expected: float | None
) -> None:
    assert Notifier(environ, pid=7).watchdog_s == expected


def test_heartbeat_waits_for_the_interval_and_for_every_counter() -> None:
    beat = Heartbeat(10.0)

    assert beat.is_due((1, 1), now=0.0)
    assert not beat.is_due((2, 2), now=5.0)
    assert not beat.is_due((2, 1), now=11.0)
    assert not beat.is_due((1, 2), now=12.0)
    assert beat.is_due((2, 2), now=13.0)
    assert not beat.is_due((3, 3), now=14.0)
