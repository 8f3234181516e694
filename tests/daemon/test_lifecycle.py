"""Start, signals, stop: real processes and real signals, without models."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import daemon
from appliance.client import Client
from appliance.config import Config, HttpConfig, InboxConfig
from appliance.errors import DaemonUnreachableError, FrontendError, StoreError
from appliance.system.clock import Clock
from tests.box import APPLIANCE, Box
from tests.doubles import ScriptedEngine

LIBRARY = "图书馆周末几点关门？周末下午五点关门。\n"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Box]:
    """The real daemon without any model: the quickest one to start."""
    box = Box(tmp_path / "box", environ={"APPLIANCE_MODELS": str(tmp_path / "no-models")})
    yield box
    box.kill()


def scripted(tmp_path: Path, body: str, **environ: str) -> subprocess.Popen[str]:
    """Start a daemon with a scripted engine in a process of its own; ``body`` may change it."""
    code = f"""
import os, sys, threading, time
from pathlib import Path
from appliance import daemon
from tests.doubles import ScriptedEngine
engine = ScriptedEngine(default="x")
data = Path({str(tmp_path)!r})
{textwrap.dedent(body)}
options = daemon.ServeOptions(data, port=0, ready_file=data / "r")
sys.exit(daemon.run(options, os.environ, engine=lambda _config: engine))
"""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signal_stops_cleanly_and_the_address_is_gone(bare: Box, number: int) -> None:
    bare.start()
    assert json.loads((bare.data / "run" / "daemon.json").read_text()) == {
        "url": bare.url,
        "pid": bare.pid,
    }

    status = bare.stop(number)

    assert status == 0
    assert not (bare.data / "run" / "daemon.json").exists()
    assert "Traceback" not in bare.log()


@pytest.mark.slow
def test_box_without_models_stays_up_searches_and_says_why(bare: Box) -> None:
    (bare.inbox / "图书馆.txt").write_text(LIBRARY, encoding="utf-8")
    bare.start()
    deadline = time.monotonic() + 30
    while bare.client.post("/api/kb/rescan")["n_files_waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    status = bare.json("status")
    found = bare.json("kb", "search", "图书馆")
    asked = bare.run("ask", "图书馆周末几点关门？")

    assert status["state"] == "degraded"
    assert {problem["code"] for problem in status["problems"]} == {"model_missing"}
    assert "appliance models pull" in status["problems"][0]["next_step"]
    assert found["hits"][0]["path"] == "图书馆.txt"
    assert asked.returncode == 1
    assert "appliance models pull" in asked.stderr
    assert "Traceback" not in bare.log() + asked.stderr


def test_second_daemon_on_the_same_data_is_refused(bare: Box) -> None:
    bare.start()

    second = bare.run("serve", "--port", "0")

    assert second.returncode == 1
    assert f"process {bare.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert bare.client.get("/healthz") == {"status": "ok"}


def test_port_in_use_is_one_clear_line(bare: Box) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        done = bare.run("serve", "--port", str(port))

    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is already in use." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("http:\n  prot: 1\n", "http.port"),
        ("http:\n  host: 0.0.0.0\n", "api_key_file"),
        ("http: [\n", "YAML"),
    ],
    ids=["unknown key", "open without key", "no YAML"],
)
def test_configuration_mistake_is_status_78(bare: Box, config: str, expected: str) -> None:
    (bare.data / "appliance.yaml").write_text(config, encoding="utf-8")

    done = bare.run("serve", "--port", "0")

    assert done.returncode == 78
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_data_folder_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "box").write_text("a file")

    done = subprocess.run(
        [*APPLIANCE, "serve", "--port", "0", "--data", str(tmp_path / "box")],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )

    assert done.returncode in (1, 78)
    assert str(tmp_path / "box") in done.stderr
    assert "Traceback" not in done.stderr


def test_ready_file_in_a_missing_folder_is_explained_and_everything_is_stopped(bare: Box) -> None:
    done = bare.run("serve", "--port", "0", "--ready-file", "/nowhere/ready.json")

    assert done.returncode == 1
    assert "/nowhere/ready.json cannot be written" in done.stderr
    assert not (bare.data / "run" / "daemon.json").exists()


def test_reload_takes_a_changed_configuration_on_the_same_port(bare: Box) -> None:
    bare.start()
    assert bare.client.get("/api/status")["keep_history"] is True
    (bare.data / "appliance.yaml").write_text("assistant:\n  keep_history: false\n")

    os.kill(bare.pid, signal.SIGHUP)

    deadline, keeps = time.monotonic() + 30, True
    while keeps:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        with contextlib.suppress(DaemonUnreachableError):  # for the moment of the change
            keeps = bare.client.get("/api/status")["keep_history"]
    assert bare.stop() == 0


def test_reload_of_a_broken_configuration_keeps_the_old_one_and_says_so(bare: Box) -> None:
    bare.start()
    (bare.data / "appliance.yaml").write_text("assistant:\n  keep_histroy: false\n")

    os.kill(bare.pid, signal.SIGHUP)

    deadline = time.monotonic() + 30
    while "reload_refused" not in {p["code"] for p in bare.client.get("/api/status")["problems"]}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert bare.client.get("/api/status")["keep_history"] is True


def test_usr1_prints_the_stack_of_every_thread(bare: Box) -> None:
    bare.start()

    os.kill(bare.pid, signal.SIGUSR1)

    deadline = time.monotonic() + 10
    while bare.log().count("Thread 0x") < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert bare.client.get("/healthz") == {"status": "ok"}


def test_part_that_hangs_at_the_stop_is_named_and_left_behind(tmp_path: Path) -> None:
    process = scripted(
        tmp_path,
        """
        daemon.STOP_DEADLINES_S["engine"] = 0.3
        engine.close = lambda: time.sleep(60)
        """,
    )
    wait_for(tmp_path / "r")

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "engine did not stop within" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    process = scripted(tmp_path, "engine.close = lambda: time.sleep(60)")
    wait_for(tmp_path / "r")
    process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    began = time.monotonic()

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)

    assert process.returncode == 1
    assert time.monotonic() - began < 2


def test_part_that_fails_at_the_stop_does_not_keep_the_others(tmp_path: Path) -> None:
    process = scripted(tmp_path, "engine.close = lambda: 1 / 0")
    wait_for(tmp_path / "r")

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 0
    assert "engine failed while stopping" in err


def test_thread_that_breaks_stops_the_whole_box_with_a_failure(tmp_path: Path) -> None:
    process = scripted(
        tmp_path,
        """
        def broken():
            while not (data / "r").exists():
                time.sleep(0.01)
            raise KeyError("坏了")
        threading.Thread(target=broken, name="serial").start()
        """,
        PYTHONIOENCODING="utf-8",
    )

    _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "thread serial ended: KeyError" in err
    assert not (tmp_path / "run" / "daemon.json").exists()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(15)
        yield path, sock


def received(sock: socket.socket, wanted: str) -> list[str]:
    messages: list[str] = []
    while not any(message.startswith(wanted) for message in messages):
        messages.append(sock.recv(4096).decode())
    return messages


@pytest.mark.slow
def test_service_manager_hears_ready_watchdog_and_stopping(
    tmp_path: Path, manager: tuple[str, socket.socket]
) -> None:
    path, sock = manager
    process = scripted(tmp_path / "box", "", NOTIFY_SOCKET=path, WATCHDOG_USEC="4000000")

    ready = received(sock, "READY=1")
    beats = received(sock, "WATCHDOG=1")
    process.send_signal(signal.SIGTERM)
    stopping = received(sock, "STOPPING=1")
    process.communicate(timeout=20)

    assert ready[0].startswith("READY=1\nSTATUS=model ready")
    assert beats[-1] == "WATCHDOG=1"
    assert stopping[-1] == "STOPPING=1"
    assert process.returncode == 0


@pytest.mark.slow
def test_watchdog_is_not_fed_while_the_engine_stands_still(
    tmp_path: Path, manager: tuple[str, socket.socket]
) -> None:
    path, sock = manager
    process = scripted(
        tmp_path / "box", "engine.steps = lambda: 7", NOTIFY_SOCKET=path, WATCHDOG_USEC="1000000"
    )
    received(sock, "READY=1")

    time.sleep(4)  # eight times the interval at which a living engine would be pinged for
    process.send_signal(signal.SIGTERM)
    heard = received(sock, "STOPPING=1")
    process.communicate(timeout=20)

    assert heard.count("WATCHDOG=1") <= 1  # the first look has nothing to compare with


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "body"),
    [
        (
            "a long load",
            """
            import dataclasses
            status = engine.status
            engine.status = lambda: dataclasses.replace(status(), state="loading")
            engine.steps = lambda: 7
            """,
        ),
        (
            "a long parse",
            """
            from appliance.parsers.process import ParserProcess
            def parse(*_arguments):
                time.sleep(30)
            ParserProcess.parse = parse
            (data / "inbox").mkdir(parents=True)
            (data / "inbox" / "slow.txt").write_text("slow")
            (data / "appliance.yaml").write_text("inbox: {settle_s: 0.0}")
            """,
        ),
        (
            "embedding that waits for answers",
            """
            def embed(*_arguments):
                time.sleep(30)
            engine.embed = embed
            (data / "inbox").mkdir(parents=True)
            (data / "inbox" / "slow.txt").write_text("slow")
            (data / "appliance.yaml").write_text("inbox: {settle_s: 0.0}")
            """,
        ),
    ],
    ids=lambda value: value if " " in value and "\n" not in value else "",
)
def test_watchdog_is_fed_during(
    tmp_path: Path, manager: tuple[str, socket.socket], what: str, body: str
) -> None:
    path, sock = manager
    process = scripted(tmp_path / "box", body, NOTIFY_SOCKET=path, WATCHDOG_USEC="1000000")
    received(sock, "READY=1")

    time.sleep(6)  # the slow work has begun by now
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(4096)
    sock.settimeout(10.0)
    heard = [sock.recv(4096).decode() for _ in range(3)]
    process.kill()
    process.communicate()

    assert "WATCHDOG=1" in heard, what


def test_deadlines_of_all_parts_fit_into_the_units_stop_time() -> None:
    assert sum(daemon.STOP_DEADLINES_S.values()) <= 40


def test_address_can_be_read_by_other_users_of_the_machine(bare: Box) -> None:
    bare.start()

    # The service runs as a user of its own; people run "appliance ask" as theirs.
    assert stat.S_IMODE((bare.data / "run").stat().st_mode) & 0o055 == 0o055
    assert stat.S_IMODE((bare.data / "run" / "daemon.json").stat().st_mode) == 0o644


# --------------------------------------------------------------------------------------------------
# inside this process


def config_for(data: Path) -> Config:
    return Config(data=data, http=HttpConfig(port=0), inbox=InboxConfig(settle_s=0.0))


def resources() -> tuple[int, list[str]]:
    gc.collect()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return descriptors, sorted(thread.name for thread in threading.enumerate())


@pytest.mark.slow
def test_fifty_starts_and_stops_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def once(n: int) -> None:
        engine = ScriptedEngine(default="好的。")
        with daemon.open_box(config_for(tmp_path / "box"), Clock(), lambda _c: engine) as box:
            client = Client(box.http.url)
            (box.config.inbox_dir / f"{n % 3}.txt").write_text(f"{LIBRARY}{n}\n", encoding="utf-8")
            client.post("/api/kb/rescan")
            client.get("/api/search", {"q": "图书馆"})
            with client.ask("图书馆周末几点关门？") as events:
                assert [kind for kind, _ in events][-1] == "answer"

    once(0)
    before = resources()

    for n in range(1, 50):
        once(n)

    assert resources() == before


def test_every_thread_of_the_box_has_a_name_and_is_no_daemon(tmp_path: Path) -> None:
    known = set(threading.enumerate())
    with daemon.open_box(config_for(tmp_path), Clock(), lambda _c: ScriptedEngine()) as box:
        Client(box.http.url).get("/api/status")
        ours = set(threading.enumerate()) - known

    # watchdog's own threads cannot be named from outside; the inbox joins them.
    ours = {
        thread
        for thread in ours
        if not type(thread).__module__.startswith("watchdog")
        and thread.name != "InotifyFD-Dispatcher"  # a plain thread, started by one of watchdog's
    }
    assert {"http", "ingest", "inbox", "http-call_0"} <= {thread.name for thread in ours}
    assert [thread.name for thread in ours if thread.name.startswith("Thread-")] == []
    assert [thread.name for thread in ours if thread.daemon] == []


def test_failed_start_stops_what_was_started(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    before = resources()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config(data=tmp_path, http=HttpConfig(port=taken.getsockname()[1]))

        with (
            pytest.raises(FrontendError, match="port_in_use"),
            daemon.open_box(config, Clock(), lambda _c: engine),
        ):
            pass

    assert engine.is_closed
    assert resources() == before


def test_store_that_is_in_use_starts_nothing(tmp_path: Path) -> None:
    made: list[object] = []

    def make(_config: Config) -> ScriptedEngine:
        made.append(1)
        return ScriptedEngine()

    with (
        daemon.open_box(config_for(tmp_path), Clock(), make),
        pytest.raises(StoreError, match="store_locked"),
        daemon.open_box(config_for(tmp_path), Clock(), make),
    ):
        pass

    assert len(made) == 1
