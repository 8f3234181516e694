"""Checks of the Ascend NPU: nodes, rights, driver, toolkit, a trial start, memory, who holds it.

Paths and codes: the vendor's layout as seen on 310B boards (docs/native.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from appliance.config import models_dir, plugin_path
from appliance.doctor.base import Finding, Machine
from appliance.errors import ApplianceError, Fact
from appliance.models import ModelStore
from appliance.system.gguf import inspect
from appliance.units import human_bytes

NODES = ("/dev/davinci0", "/dev/davinci_manager", "/dev/svm0", "/dev/ts_aisle")
GROUP = "HwHiAiUser"
TOOLKITS = (
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/nnrt/latest",
)
TOOLKIT_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
OLD_VARIABLES = ("ASCEND_HOME", "DDK_PATH")
KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel/ascend310b"
DRIVER_VERSION = "/usr/local/Ascend/driver/version.info"
TRIAL_S = 90.0
"""A first start may compile kernels."""

HARMLESS_ALARM = "80E3A203"
"""The board has no current sensor; the NPU computes all the same."""


def has_npu(machine: Machine) -> bool:
    """Return whether anything of an Ascend board is here, or the configuration insists on it."""
    here = any(machine.at(node).exists() for node in NODES)
    return here or machine.at(DRIVER_VERSION).exists() or machine.config.engine.device == "cann"


def nodes(machine: Machine) -> Finding:
    """Are the driver's device nodes here."""
    if machine.config.engine.device == "cpu":
        return Finding("npu", "skip", "doctor_npu_unused")
    if not has_npu(machine):
        return Finding("npu", "skip", "doctor_npu_none")
    missing = [node for node in NODES if not machine.at(node).exists()]
    if missing:
        return Finding("npu", "fail", "doctor_npu_nodes", {"missing": ", ".join(missing)})
    return Finding("npu", "ok", "doctor_npu")


def group(machine: Machine) -> Finding:
    """May this user open the device."""
    here = [machine.at(node) for node in NODES if machine.at(node).exists()]
    if not here:
        return Finding("npu-group", "skip", "doctor_npu_none")
    if not all(os.access(node, os.R_OK | os.W_OK) for node in here):
        return Finding("npu-group", "fail", "doctor_npu_group", {"group": GROUP})
    return Finding("npu-group", "ok", "doctor_npu_group_ok")


def driver(machine: Machine) -> Finding:
    """Which driver is installed."""
    if not has_npu(machine):
        return Finding("npu-driver", "skip", "doctor_npu_none")
    version = machine.value(DRIVER_VERSION, "Version")
    if version is None:
        return Finding("npu-driver", "fail", "doctor_npu_driver_none", {"path": DRIVER_VERSION})
    return Finding("npu-driver", "ok", "doctor_npu_driver", {"version": version})


def toolkits(machine: Machine) -> list[str]:
    """Return the toolkit folders the plugin would try, in its order."""
    named = [machine.environ.get(name, "") for name in TOOLKIT_VARIABLES]
    return [path for path in (*named, *TOOLKITS) if path and machine.at(path).is_dir()]


def toolkit(machine: Machine) -> Finding:
    """Is CANN here, with the kernels of this chip."""
    if not has_npu(machine):
        return Finding("cann", "skip", "doctor_npu_none")
    found = toolkits(machine)
    if not found:
        return Finding("cann", "fail", "doctor_cann_none", {"tried": ", ".join(TOOLKITS)})
    home = found[0]
    libraries = [machine.at(f"{home}/{place}") for place in ("lib64", "aarch64-linux/lib64")]
    if not any((folder / "libascendcl.so").exists() for folder in libraries):
        return Finding("cann", "fail", "doctor_cann_library", {"path": home})
    if not machine.at(f"{home}/{KERNELS}").is_dir():
        return Finding("cann", "fail", "doctor_cann_kernels", {"path": f"{home}/{KERNELS}"})
    version = _toolkit_version(machine, home)
    others = {os.path.realpath(machine.at(path)) for path in found}
    if len(others) > 1:
        facts: dict[str, Fact] = {"path": home, "version": version, "n": len(others)}
        return Finding("cann", "warn", "doctor_cann_several", facts)
    return Finding("cann", "ok", "doctor_cann", {"path": home, "version": version})


def _toolkit_version(machine: Machine, home: str) -> str:
    candidates = [f"{home}/version.info", f"{home}/version.cfg"]
    pattern = f"{home}/*/ascend_toolkit_install.info"
    candidates += ["/" + str(path.relative_to(machine.root)) for path in machine.glob(pattern)]
    for path in candidates:
        for key in ("version", "Version"):
            if version := machine.value(path, key):
                return version
    return "?"


def variables(machine: Machine) -> Finding:
    """Do the toolkit's variables point at something."""
    for name in (*TOOLKIT_VARIABLES, "ASCEND_OPP_PATH"):
        path = machine.environ.get(name)
        if path and not machine.at(path).is_dir():
            return Finding("cann-env", "fail", "doctor_cann_variable", {"name": name, "path": path})
    old = [name for name in OLD_VARIABLES if machine.environ.get(name)]
    if old and not any(machine.environ.get(name) for name in TOOLKIT_VARIABLES):
        return Finding("cann-env", "warn", "doctor_cann_old_variable", {"name": ", ".join(old)})
    return Finding("cann-env", "ok", "doctor_cann_env")


def holder(machine: Machine) -> Finding:
    """Does another process hold the device."""
    if not machine.at(NODES[0]).exists():
        return Finding("npu-holder", "skip", "doctor_npu_none")
    pids = set()
    for link in machine.glob("/proc/[0-9]*/fd/*"):
        # Not to be read: processes of other users, and those that ended meanwhile.
        with contextlib.suppress(OSError):
            if str(link.readlink()) in NODES:
                pids.add(link.parts[-3])
    ours = _daemon_pid(machine)
    strangers = {pid: machine.text(f"/proc/{pid}/comm") or "?" for pid in pids if pid != ours}
    if strangers:
        shown = ", ".join(f"{name} ({pid})" for pid, name in sorted(strangers.items()))
        return Finding("npu-holder", "warn", "doctor_npu_held", {"processes": shown})
    return Finding("npu-holder", "ok", "doctor_npu_free")


def _daemon_pid(machine: Machine) -> str:
    try:
        return str(json.loads(machine.config.runtime_file.read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def sensors(machine: Machine) -> Finding:
    """What does npu-smi say of the chip's health."""
    if not has_npu(machine):
        return Finding("npu-health", "skip", "doctor_npu_none")
    status, text = machine.run(["npu-smi", "info"])
    if status != 0:
        cause = "not found" if status == 127 else " ".join(text.split())[:120] or f"status {status}"
        return Finding("npu-health", "warn", "doctor_npu_smi", {"cause": cause})
    if "Alarm" not in text:
        return Finding("npu-health", "ok", "doctor_npu_health")
    _, detail = machine.run(["npu-smi", "info", "-t", "health", "-i", "0"])
    if HARMLESS_ALARM in detail.upper().replace("0X", ""):
        return Finding("npu-health", "ok", "doctor_npu_alarm_harmless", {"code": HARMLESS_ALARM})
    return Finding(
        "npu-health", "warn", "doctor_npu_alarm", {"detail": " ".join(detail.split())[:200]}
    )


def trial(machine: Machine) -> Finding:
    """Does the NPU start, and does the model fit; tried in a child process."""
    path = plugin_path(machine.config)
    if machine.config.engine.device == "cpu" or path is None:
        return Finding("npu-start", "skip", "doctor_npu_unused")
    if machine.is_daemon_running:
        return Finding("npu-start", "skip", "doctor_npu_in_use")
    status, text = machine.run([sys.executable, "-m", "appliance.doctor.trial", str(path)], TRIAL_S)
    try:
        said = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = {}
    if status == 124:
        return Finding("npu-start", "fail", "doctor_npu_hangs")
    if status < 0 or not said:
        cause = f"signal {-status}" if status < 0 else " ".join(text.split())[-200:] or str(status)
        return Finding("npu-start", "fail", "doctor_npu_crashes", {"cause": cause})
    if "error" in said:
        # Without a board there is nothing to mend: "auto" means the CPU then.
        wanted = machine.config.engine.device == "cann" or has_npu(machine)
        cause = str(said["error"])
        return Finding(
            "npu-start", "fail" if wanted else "ok", "doctor_npu_refuses", {"cause": cause}
        )
    need = _model_bytes(machine)
    facts = {
        "device": str(said["device"]),
        "free": human_bytes(said["free"]),
        "total": human_bytes(said["total"]),
        "need": human_bytes(need),
    }
    if need > said["free"]:
        return Finding("npu-start", "fail", "doctor_npu_memory", facts)
    return Finding("npu-start", "ok", "doctor_npu_starts", facts)


def _model_bytes(machine: Machine) -> int:
    """Return the least device memory the model needs: its weights as the file stores them."""
    try:
        store = ModelStore(models_dir(machine.config, machine.environ))
        return inspect(store.path(machine.config.models.generation)).n_bytes
    except ApplianceError:
        return 0


def plugin(machine: Machine) -> Finding:
    """Is the plugin's file here and made for this processor."""
    path = plugin_path(machine.config)
    if path is None:
        is_wanted = machine.config.engine.device == "cann"
        return Finding("plugin", "fail" if is_wanted else "skip", "doctor_plugin_none")
    facts = {"path": str(path)}
    try:
        head = _head(path)
    except OSError as error:
        return Finding("plugin", "fail", "doctor_plugin_unreadable", {**facts, "cause": str(error)})
    # ELF: e_machine is the 16-bit number at byte 18; 62 is x86-64, 183 is AArch64.
    machines = {62: "x86_64", 183: "aarch64"}
    built_for = (
        machines.get(int.from_bytes(head[18:20], "little")) if head[:4] == b"\x7fELF" else None
    )
    if built_for != os.uname().machine:
        return Finding(
            "plugin",
            "fail",
            "doctor_plugin_other",
            {**facts, "built_for": built_for or "?", "machine": os.uname().machine},
        )
    return Finding("plugin", "ok", "doctor_plugin", facts)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(20)


CHECKS = (nodes, group, driver, toolkit, variables, plugin, holder, sensors, trial)
