"""Checks of the machine and its system: version, clock, processor, heat, memory."""

from __future__ import annotations

import contextlib
import datetime as dt
import platform
import sys
import time

from appliance.config import models_dir
from appliance.doctor.base import Finding, Machine
from appliance.errors import ApplianceError
from appliance.models import ModelStore
from appliance.system.gguf import inspect
from appliance.system.memory import machine_memory
from appliance.units import MIB, human_bytes

KNOWN_SYSTEMS = {"debian": 12.0, "ubuntu": 22.04, "openEuler": 22.03, "raspbian": 12.0}
"""``ID`` in os-release and the least version the appliance was made for."""

BUILT_YEAR = 2026
HOT_C, TOO_HOT_C = 80.0, 95.0
OWN_MIB = 400
"""What the daemon needs beside weights and conversation cache, parsing child included."""


def system_version(machine: Machine) -> Finding:
    """Is this a system the appliance was made for."""
    name = machine.value("/etc/os-release", "PRETTY_NAME") or platform.system()
    ident = machine.value("/etc/os-release", "ID") or ""
    version = machine.value("/etc/os-release", "VERSION_ID") or ""
    facts = {"system": name, "machine": platform.machine(), "python": sys.version.split()[0]}
    try:
        is_known = float(version) >= KNOWN_SYSTEMS[ident]
    except (ValueError, KeyError):
        is_known = False
    if is_known:
        return Finding("system", "ok", "doctor_system", facts)
    return Finding("system", "warn", "doctor_system_unknown", facts)


def clock(machine: Machine) -> Finding:
    """Does the clock show a year in which this program exists."""
    now = dt.datetime.fromtimestamp(time.time(), tz=dt.timezone.utc)
    shown = now.strftime("%Y-%m-%d %H:%M UTC")
    if now.year < BUILT_YEAR:
        return Finding("clock", "warn", "doctor_clock_wrong", {"shown": shown})
    has_clock = bool(machine.glob("/sys/class/rtc/rtc*"))
    if not has_clock:
        return Finding("clock", "warn", "doctor_clock_no_rtc", {"shown": shown})
    return Finding("clock", "ok", "doctor_clock", {"shown": shown})


def governor(machine: Machine) -> Finding:
    """May the processor run as fast as it can."""
    policies = machine.glob("/sys/devices/system/cpu/cpufreq/policy*")
    if not policies:
        return Finding("governor", "skip", "doctor_governor_none")
    names = {
        (policy / "scaling_governor").read_text().strip()
        for policy in policies
        if (policy / "scaling_governor").is_file()
    }
    slow = names & {"powersave", "conservative", "userspace"}
    drivers = {
        (policy / "scaling_driver").read_text().strip()
        for policy in policies
        if (policy / "scaling_driver").is_file()
    }
    # In its active mode intel_pstate calls its own full-speed policy "powersave".
    if slow and drivers != {"intel_pstate"}:
        return Finding("governor", "warn", "doctor_governor_slow", {"governor": ", ".join(slow)})
    return Finding("governor", "ok", "doctor_governor", {"governor": ", ".join(sorted(names))})


def temperature(machine: Machine) -> Finding:
    """Is the board cool enough."""
    found: list[float] = []
    for zone in machine.glob("/sys/class/thermal/thermal_zone*/temp"):
        text = machine.text("/" + str(zone.relative_to(machine.root)))
        try:
            found.append(int(text or "") / 1000)
        except ValueError:
            continue
    # Zones that are switched off report 0 or a constant far outside.
    found = [value for value in found if 0 < value < 150]
    if not found:
        return Finding("temperature", "skip", "doctor_temperature_none")
    hottest = round(max(found))
    facts = {"celsius": hottest}
    if hottest >= TOO_HOT_C:
        return Finding("temperature", "fail", "doctor_hottest", facts)
    if hottest >= HOT_C:
        return Finding("temperature", "warn", "doctor_hot", facts)
    return Finding("temperature", "ok", "doctor_temperature", facts)


def throttling(machine: Machine) -> Finding:
    """Has the processor been slowed down."""
    slowed = []
    for policy in machine.glob("/sys/devices/system/cpu/cpufreq/policy*"):
        base = "/" + str(policy.relative_to(machine.root))
        allowed, built = (
            machine.text(f"{base}/{name}") for name in ("scaling_max_freq", "cpuinfo_max_freq")
        )
        if allowed and built and int(allowed) < int(built):
            slowed.append(f"{int(allowed) // 1000} < {int(built) // 1000} MHz")
    if slowed:
        return Finding("throttling", "warn", "doctor_throttled", {"limits": ", ".join(slowed)})
    counts = machine.glob("/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count")
    n_events = sum(int(path.read_text() or 0) for path in counts)
    if n_events:
        return Finding("throttling", "warn", "doctor_throttle_events", {"n": n_events})
    return Finding("throttling", "ok", "doctor_throttling")


def memory(machine: Machine) -> Finding:
    """Do the configured models fit into the memory."""
    ram = machine_memory(machine.at("/proc/meminfo"))
    store = ModelStore(models_dir(machine.config, machine.environ))
    need = OWN_MIB * MIB
    for name in (machine.config.models.generation, machine.config.models.embedding):
        # A model that is not there is another check's finding.
        with contextlib.suppress(ApplianceError):
            need += inspect(store.path(name)).n_bytes
    facts = {
        "need": human_bytes(need),
        "total": human_bytes(ram.total),
        "available": human_bytes(ram.available),
    }
    if need > ram.total * 0.9:
        return Finding("memory", "fail", "doctor_memory_small", facts)
    if need > ram.available and not machine.is_daemon_running:
        return Finding("memory", "warn", "doctor_memory_busy", facts)
    return Finding("memory", "ok", "doctor_memory", facts)


def swap(machine: Machine) -> Finding:
    """Is swapping going to wear out a memory card."""
    lines = (machine.text("/proc/swaps") or "").splitlines()[1:]
    worn = [line.split()[0] for line in lines if "mmcblk" in line.split()[0]]
    if worn:
        return Finding("swap", "warn", "doctor_swap_card", {"device": ", ".join(worn)})
    n_bytes = sum(int(line.split()[2]) * 1024 for line in lines)
    return Finding("swap", "ok", "doctor_swap", {"size": human_bytes(n_bytes)})


CHECKS = (system_version, clock, governor, temperature, throttling, memory, swap)
