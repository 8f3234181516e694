"""Every check is shown a machine on which it must speak up, and one on which it must not."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import config as configuration
from appliance.config import Config, EngineConfig, HttpConfig, ModelsConfig, SerialConfig
from appliance.doctor import CHECKS, THOROUGH, Finding, Machine, box, disk, examine, npu, system
from appliance.doctor.base import run_command
from appliance.doctor.bundle import redact, write_bundle
from appliance.messages import SENTENCES, sentence
from appliance.models import ModelStore
from appliance.store import Store
from tests import tiny_gguf

OK_MOUNT = "31 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw,errors=remount-ro"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A small board where nothing is wrong; tests break one thing each."""
    # A source tree may hold a built plugin, which this board must not find.
    monkeypatch.setattr(
        "appliance.doctor.npu.plugin_path",
        lambda config: Path(config.engine.plugin) if config.engine.plugin else None,
    )
    root = tmp_path / "root"
    data = tmp_path / "data"
    (data / "inbox").mkdir(parents=True)
    files = {
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n',
        "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n",
        "proc/swaps": "Filename Type Size Used Priority\n/dev/zram0 partition 512000 0 100\n",
        "proc/self/mountinfo": OK_MOUNT + "\n",
        "sys/class/thermal/thermal_zone0/temp": "51000\n",
        "sys/class/rtc/rtc0/name": "rtc\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_driver": "cppc_cpufreq\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1600000\n",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "1600000\n",
    }
    for name, text in files.items():
        put(root, name, text)
    models = tmp_path / "models"
    models.mkdir()
    model = models / "tiny.gguf"
    tiny_gguf.write_tiny_llama(model)
    config = Config(
        data=data,
        models=ModelsConfig(generation=str(model), embedding=str(model), directory=str(models)),
        http=HttpConfig(port=0),
    )
    return Machine(config, root=root, environ={}, run=no_command)


def no_command(command: Sequence[str], _timeout_s: float = 10.0) -> tuple[int, str]:
    """A machine with Python and nothing else."""
    return (0, "") if command[0] == sys.executable else (127, "")


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def saying(status: int, text: str) -> Callable[..., tuple[int, str]]:
    """Return a runner whose every command says this."""
    return lambda _command, _timeout_s=10.0: (status, text)


def with_npu(machine: Machine) -> Machine:
    """Put an NPU into the machine: nodes, driver, toolkit with kernels."""
    for node in npu.NODES:
        put(machine.root, node.lstrip("/"), "")
    put(machine.root, npu.DRIVER_VERSION.lstrip("/"), "Version=23.0.0\n")
    home = npu.TOOLKITS[0].lstrip("/")
    put(machine.root, f"{home}/lib64/libascendcl.so", "")
    put(machine.root, f"{home}/version.info", "version=8.5.0\n")
    (machine.root / home / npu.KERNELS).mkdir(parents=True)
    return machine


def test_healthy_machine_has_nothing_to_say(machine: Machine) -> None:
    found = list(examine(machine, thorough=False))
    assert [f for f in found if f.state in ("warn", "fail")] == []
    assert len({f.item for f in found}) == len(found) == len(CHECKS)


BREAKAGES: dict[str, tuple[Callable[[Machine], Finding], str, str, str, str]] = {
    "strange system": (
        system.system_version,
        "etc/os-release",
        "ID=arch\nVERSION_ID=1\n",
        "warn",
        "doctor_system_unknown",
    ),
    "old system": (
        system.system_version,
        "etc/os-release",
        'ID=debian\nVERSION_ID="10"\n',
        "warn",
        "doctor_system_unknown",
    ),
    "slow governor": (
        system.governor,
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "powersave\n",
        "warn",
        "doctor_governor_slow",
    ),
    "hot": (
        system.temperature,
        "sys/class/thermal/thermal_zone1/temp",
        "85000\n",
        "warn",
        "doctor_hot",
    ),
    "too hot": (
        system.temperature,
        "sys/class/thermal/thermal_zone1/temp",
        "99000\n",
        "fail",
        "doctor_hottest",
    ),
    "held below its limit": (
        system.throttling,
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        "1000000\n",
        "warn",
        "doctor_throttled",
    ),
    "throttled before": (
        system.throttling,
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
        "7\n",
        "warn",
        "doctor_throttle_events",
    ),
    "too little memory": (
        system.memory,
        "proc/meminfo",
        "MemTotal: 300000 kB\nMemAvailable: 200000 kB\n",
        "fail",
        "doctor_memory_small",
    ),
    "memory in use": (
        system.memory,
        "proc/meminfo",
        "MemTotal: 8000000 kB\nMemAvailable: 200000 kB\n",
        "warn",
        "doctor_memory_busy",
    ),
    "swap on a card": (
        system.swap,
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/mmcblk0p3 partition 512000 0 -2\n",
        "warn",
        "doctor_swap_card",
    ),
    "read-only": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT.replace("rw,noatime", "ro,noatime"),
        "fail",
        "doctor_mount_read_only",
    ),
    "writeback": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT + ",data=writeback",
        "fail",
        "doctor_mount_options",
    ),
    "no barriers": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT + ",barrier=0",
        "fail",
        "doctor_mount_options",
    ),
    "rare commits": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT + ",commit=600",
        "warn",
        "doctor_mount_commit",
    ),
    "notes reads": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT.replace("noatime", "strictatime"),
        "warn",
        "doctor_mount_atime",
    ),
    "on a stick": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT.replace("ext4", "vfat"),
        "fail",
        "doctor_mount_unsafe",
    ),
    "on the network": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT.replace("ext4", "nfs4"),
        "fail",
        "doctor_mount_network",
    ),
    "in memory": (
        disk.mount,
        "proc/self/mountinfo",
        OK_MOUNT.replace("ext4", "tmpfs"),
        "warn",
        "doctor_mount_in_memory",
    ),
    "file system errors": (
        disk.health,
        "sys/fs/ext4/mmcblk0p2/errors_count",
        "3\n",
        "fail",
        "doctor_disk_errors",
    ),
    "worn card": (
        disk.health,
        "sys/block/mmcblk0/device/life_time",
        "0x02 0x0a\n",
        "warn",
        "doctor_disk_worn",
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_machine_is_named_with_its_cure(machine: Machine, name: str) -> None:
    check, path, text, state, code = BREAKAGES[name]
    assert check(machine).state == "ok"
    put(machine.root, path, text)
    found = check(machine)
    assert (found.state, found.code) == (state, code)
    for lang in ("en", "zh"):
        said = sentence(found.code, lang, found.facts)
        assert said.next_step
        assert "?" not in said.message + said.next_step


def test_clock_before_the_program_was_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert system.clock(machine).code == "doctor_clock"
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert system.clock(machine).code == "doctor_clock_wrong"


def test_board_without_a_clock(machine: Machine) -> None:
    (machine.root / "sys/class/rtc/rtc0/name").unlink()
    (machine.root / "sys/class/rtc/rtc0").rmdir()
    assert system.clock(machine).code == "doctor_clock_no_rtc"


@pytest.mark.parametrize(
    ("free", "code"), [(10**8, "doctor_space_none"), (10**9, "doctor_space_low")]
)
def test_full_disk(machine: Machine, monkeypatch: pytest.MonkeyPatch, free: int, code: str) -> None:
    usage = type("Usage", (), {"free": free, "total": 10**10})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    assert disk.free_space(machine).code == code


# --------------------------------------------------------------------------------------------------
# the NPU


def test_board_with_everything_is_ok(machine: Machine) -> None:
    machine = replace(with_npu(machine), run=saying(0, "| 0 310B4 | OK | 8.9 |"))
    checks = (npu.nodes, npu.group, npu.driver, npu.toolkit, npu.variables, npu.sensors)
    assert [check(machine).state for check in checks] == ["ok"] * len(checks)
    assert npu.toolkit(machine).facts["version"] == "8.5.0"


def test_missing_node(machine: Machine) -> None:
    with_npu(machine)
    machine.at("/dev/ts_aisle").unlink()
    found = npu.nodes(machine)
    assert (found.state, found.facts["missing"]) == ("fail", "/dev/ts_aisle")


def test_no_right_to_the_node(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with_npu(machine)
    monkeypatch.setattr("os.access", lambda *_args: False)
    found = npu.group(machine)
    assert found.code == "doctor_npu_group"
    assert "HwHiAiUser" in sentence(found.code, "en", found.facts).next_step


def test_driver_is_not_installed(machine: Machine) -> None:
    with_npu(machine)
    machine.at(npu.DRIVER_VERSION).unlink()
    assert npu.driver(machine).code == "doctor_npu_driver_none"


def test_toolkit_is_not_installed(machine: Machine) -> None:
    put(machine.root, npu.DRIVER_VERSION.lstrip("/"), "Version=23.0.0\n")
    assert npu.toolkit(machine).code == "doctor_cann_none"


def test_toolkit_without_its_library(machine: Machine) -> None:
    with_npu(machine)
    machine.at(f"{npu.TOOLKITS[0]}/lib64/libascendcl.so").unlink()
    assert npu.toolkit(machine).code == "doctor_cann_library"


def test_toolkit_without_the_chips_kernels(machine: Machine) -> None:
    with_npu(machine)
    machine.at(f"{npu.TOOLKITS[0]}/{npu.KERNELS}").rmdir()
    assert npu.toolkit(machine).code == "doctor_cann_kernels"


def test_two_toolkits(machine: Machine) -> None:
    with_npu(machine)
    put(machine.root, "usr/local/Ascend/nnrt/latest/lib64/libascendcl.so", "")
    found = npu.toolkit(machine)
    assert (found.state, found.code, found.facts["n"]) == ("warn", "doctor_cann_several", 2)


def test_variable_that_points_nowhere(machine: Machine) -> None:
    machine = replace(machine, environ={"ASCEND_TOOLKIT_HOME": "/opt/gone"})
    found = npu.variables(machine)
    assert (found.code, found.facts["path"]) == ("doctor_cann_variable", "/opt/gone")


def test_variable_of_old_releases(machine: Machine) -> None:
    machine = replace(machine, environ={"ASCEND_HOME": "/usr/local/Ascend"})
    assert npu.variables(machine).code == "doctor_cann_old_variable"


def test_alarm_of_the_missing_current_sensor_is_no_alarm(machine: Machine) -> None:
    with_npu(machine)
    harmless = replace(machine, run=saying(0, "Alarm 0x80E3A203"))
    assert npu.sensors(harmless).code == "doctor_npu_alarm_harmless"
    real = replace(machine, run=saying(0, "Alarm 0x80F18003"))
    found = npu.sensors(real)
    assert (found.state, found.code) == ("warn", "doctor_npu_alarm")


def test_npu_smi_is_not_there(machine: Machine) -> None:
    assert npu.sensors(with_npu(machine)).code == "doctor_npu_smi"


def test_another_process_holds_the_device(machine: Machine) -> None:
    with_npu(machine)
    assert npu.holder(machine).code == "doctor_npu_free"
    put(machine.root, "proc/77/comm", "msprof\n")
    link = machine.at("/proc/77/fd/5")
    link.parent.mkdir()
    link.symlink_to("/dev/davinci0")
    found = npu.holder(machine)
    assert (found.code, found.facts["processes"]) == ("doctor_npu_held", "msprof (77)")


def with_plugin(machine: Machine, content: bytes, device: str = "cann") -> Machine:
    path = machine.root / "plugin.so"
    path.write_bytes(content)
    engine = EngineConfig(device=device, plugin=str(path))  # type: ignore[arg-type]
    return replace(machine, config=replace(machine.config, engine=engine))


def test_plugin_of_another_machine(machine: Machine) -> None:
    mine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    head = b"\x7fELF" + bytes(14)
    good = with_plugin(machine, head + mine.to_bytes(2, "little") + bytes(100))
    assert npu.plugin(good).state == "ok"
    other = with_plugin(machine, head + (245 - mine).to_bytes(2, "little") + bytes(100))
    assert npu.plugin(other).code == "doctor_plugin_other"
    assert npu.plugin(with_plugin(machine, b"text")).code == "doctor_plugin_other"


def test_plugin_is_not_installed_but_wanted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.doctor.npu.plugin_path", lambda _config: None)
    assert npu.plugin(machine).state == "skip"
    engine = EngineConfig(device="cann")
    wanted = replace(machine, config=replace(machine.config, engine=engine))
    assert npu.plugin(wanted).state == "fail"


@pytest.mark.parametrize(
    ("status", "text", "state", "code"),
    [
        (
            0,
            '{"device": "Ascend310B4", "free": 8000000000, "total": 8e9}',
            "ok",
            "doctor_npu_starts",
        ),
        (0, '{"device": "Ascend310B4", "free": 10, "total": 8e9}', "fail", "doctor_npu_memory"),
        (1, '{"error": "107001: no device"}', "fail", "doctor_npu_refuses"),
        (-11, "", "fail", "doctor_npu_crashes"),
        (124, "", "fail", "doctor_npu_hangs"),
    ],
)
def test_trial_start(machine: Machine, status: int, text: str, state: str, code: str) -> None:
    machine = replace(
        with_plugin(machine, b""), run=saying(status, text.replace("8e9", "8000000000"))
    )
    found = npu.trial(machine)
    assert (found.state, found.code) == (state, code)


def test_real_trial_of_a_file_that_is_no_plugin(machine: Machine) -> None:
    found = npu.trial(replace(with_plugin(machine, b"no plugin"), run=run_command))
    assert (found.state, found.code) == ("fail", "doctor_npu_refuses")


# --------------------------------------------------------------------------------------------------
# the box


def test_engine_that_cannot_be_loaded(machine: Machine) -> None:
    text = "Traceback\nRuntimeError: libgomp.so.1: cannot open shared object file"
    found = box.engine(replace(machine, run=saying(1, text)))
    assert (found.state, found.code) == ("fail", "doctor_engine")
    assert "libgomp1" in sentence(found.code, "en", found.facts).next_step
    assert box.engine(replace(machine, run=run_command)).state == "ok"


def test_missing_model(machine: Machine) -> None:
    models = replace(machine.config.models, embedding="/nowhere/at/all.gguf")
    broken = replace(machine, config=replace(machine.config, models=models))
    found = box.models(broken)
    assert (found.state, found.facts["name"]) == ("fail", "/nowhere/at/all.gguf")


def test_model_with_a_spoilt_byte(machine: Machine) -> None:
    folder = machine.root.parent / "models"
    source = machine.root.parent / "stick.gguf"
    tiny_gguf.write_tiny_llama(source)
    store = ModelStore(folder)
    path = store.import_file(source, "spoilt").path
    assert path is not None
    models = replace(machine.config.models, generation="spoilt", embedding="spoilt")
    machine = replace(machine, config=replace(machine.config, models=models))
    assert box.digests(machine).state == "ok"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    assert box.digests(machine).code == "doctor_digest"
    assert box.digests in THOROUGH


def test_store_with_an_orphan(machine: Machine) -> None:
    path = machine.config.database
    Store.open(path).close()
    assert box.store(machine).code == "doctor_store"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("INSERT INTO vectors (passage_id, vector) VALUES (7, x'00')")
    db.close()
    found = box.store(machine)
    assert (found.state, found.code) == ("fail", "doctor_store_inconsistent")


def test_store_that_is_no_database(machine: Machine) -> None:
    machine.config.database.write_bytes(b"not a database, " * 1000)
    assert box.store(machine).code == "doctor_store_corrupt"


def test_store_in_other_hands(machine: Machine) -> None:
    store = Store.open(machine.config.database)
    try:
        assert box.store(machine).code == "doctor_store_unopened"
    finally:
        store.close()


def test_port_in_other_hands(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        http = HttpConfig(port=taken.getsockname()[1])
        found = box.port(replace(machine, config=replace(machine.config, http=http)))
    assert (found.state, found.code) == ("fail", "doctor_port_taken")


def test_folder_that_may_not_be_used(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert box.permissions(machine).state == "ok"
    monkeypatch.setattr("os.access", lambda _path, mode: mode & os.W_OK == 0)
    assert box.permissions(machine).code == "doctor_folder_unwritable"
    monkeypatch.setattr("os.access", lambda *_args: False)
    assert box.permissions(machine).code == "doctor_folder_unreadable"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ActiveState=active\nNRestarts=0\n", "doctor_service"),
        ("ActiveState=active\nNRestarts=4\n", "doctor_service_restarts"),
        ("ActiveState=failed\nNRestarts=4\nResult=watchdog\n", "doctor_service_down"),
    ],
)
def test_service(machine: Machine, said: str, code: str) -> None:
    put(machine.root, "etc/systemd/system/appliance.service", "")
    assert box.service(replace(machine, run=saying(0, said))).code == code


def test_service_manager_does_not_answer(machine: Machine) -> None:
    put(machine.root, "etc/systemd/system/appliance.service", "")
    assert box.service(replace(machine, run=saying(1, "no bus"))).code == "doctor_service_unknown"


def test_kiosk(machine: Machine) -> None:
    assert box.kiosk(machine).state == "skip"
    put(machine.root, "etc/systemd/system/appliance-kiosk.service", "")
    assert box.kiosk(machine).code == "doctor_kiosk_programs"
    put(machine.root, "usr/bin/cage", "")
    put(machine.root, "usr/bin/chromium", "")
    assert box.kiosk(machine).code == "doctor_kiosk_screen"
    put(machine.root, "dev/dri/card0", "")
    assert box.kiosk(machine).state == "ok"


def with_serial(machine: Machine, *ports: str) -> Machine:
    config = replace(machine.config, serial=SerialConfig(ports=ports))
    return replace(machine, config=config)


def test_serial_lines(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert box.serial_lines(machine).state == "skip"
    wired = with_serial(machine, "ttyS1")
    assert box.serial_lines(wired).code == "doctor_serial_missing"
    put(machine.root, "dev/ttyS1", "")
    assert box.serial_lines(wired).state == "ok"
    put(machine.root, "sys/class/tty/console/active", "tty0 ttyS1\n")
    assert box.serial_lines(wired).code == "doctor_serial_getty"
    put(machine.root, "sys/class/tty/console/active", "tty0\n")
    put(machine.root, "proc/9/comm", "agetty\n")
    put(machine.root, "proc/9/cmdline", "agetty\0--noclear\0ttyS1\0vt100\0")
    assert box.serial_lines(wired).code == "doctor_serial_getty"
    put(machine.root, "proc/9/comm", "bash\n")
    monkeypatch.setattr("os.access", lambda *_args: False)
    assert box.serial_lines(wired).code == "doctor_serial_denied"
    assert box.serial_lines(with_serial(machine, "a b")).code == "serial_bad_port"


def test_check_that_meets_the_unforeseen_hides_no_other(machine: Machine) -> None:
    put(machine.root, "proc/swaps", "head\nbroken\n" + "x y z\n")
    put(machine.root, "sys/fs/ext4/mmcblk0p2/errors_count", "many\n")
    found = list(examine(machine))
    assert [f.item for f in found if f.code == "doctor_check_failed"]
    assert len(found) == len(CHECKS)


def test_every_cure_is_there_in_both_languages() -> None:
    said = {code: s for code, s in SENTENCES.items() if code.startswith("doctor_")}
    assert len(said) > 60
    assert [code for code, s in said.items() if bool(s.en_next) != bool(s.zh_next)] == []


# --------------------------------------------------------------------------------------------------
# the support file


def test_bundle_holds_nothing_private(machine: Machine, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame-opens")
    (machine.config.data / configuration.CONFIG_NAME).write_text(f"http: {{api_key_file: {key}}}\n")
    journal = (
        f"2026 INFO failed: {machine.config.inbox_dir}/private letter.pdf\n"
        "2026 INFO question 'where is the money' from 192.168.1.7 key=sesame-opens\n"
    )

    def run(command: Sequence[str], _timeout_s: float = 10.0) -> tuple[int, str]:
        return (0, journal) if command[0] == "journalctl" else (127, "")

    status = {
        "state": "ready",
        "documents": {"documents": 1, "failed": [{"path": "private.pdf", "code": "no_text"}]},
        "work": {"current": "private.pdf", "n_files": 3},
    }
    target = tmp_path / "support.tar.gz"
    write_bundle(replace(machine, run=run), target, [{"item": "system"}], status)
    with tarfile.open(target) as archive:
        texts = {m.name: archive.extractfile(m).read().decode() for m in archive}  # type: ignore[union-attr]
    everything = "\n".join(texts.values())
    for private in ("private", "money", "sesame", "192.168.1.7"):
        assert private not in everything
    assert json.loads(texts["appliance-support/status.json"])["failed"] == ["no_text"]
    assert target.stat().st_mode & 0o777 == 0o600


def test_redacting_keeps_the_reason() -> None:
    said = redact("ERROR cannot read 'my diary.txt': disk full, Authorization: Bearer abc")
    assert "disk full" in said
    assert "diary" not in said
    assert "abc" not in said


def test_command_reports_as_json_and_by_exit_status(tmp_path: Path) -> None:
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "appliance", "doctor", "--json", "--data", str(tmp_path)]
    (tmp_path / "appliance.yaml").write_text("models: {generation: /gone.gguf}\nhttp: {port: 0}\n")
    done = subprocess.run(command, capture_output=True, env=environ, check=False, timeout=120)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert not found["ok"]
    failed = [row for row in found["findings"] if row["state"] == "fail"]
    assert "models" in {row["item"] for row in failed}
    assert all(row["next_step"] for row in failed)
    (tmp_path / "appliance.yaml").write_text("modles: {}\n")
    done = subprocess.run(command, capture_output=True, env=environ, check=False, timeout=120)
    assert done.returncode == 78
