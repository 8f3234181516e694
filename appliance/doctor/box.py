"""Checks of the box itself: configuration, models, store, service, ports, rights."""

from __future__ import annotations

import os
import socket
import sys

from appliance.config import CONFIG_NAME, models_dir
from appliance.doctor.base import Finding, Machine
from appliance.errors import ApplianceError, ConfigError, Fact, StoreCorruptError, StoreError
from appliance.frontends.serial.port import has_getty, parse_ports
from appliance.models import ModelStore
from appliance.store import Store
from appliance.system.gguf import inspect

UNIT = "appliance.service"
ENGINE_S = 60.0


def config_file(machine: Machine) -> Finding:
    """Is there a configuration file; that it is right was shown by reading it."""
    path = machine.config.data / CONFIG_NAME
    code = "doctor_config" if path.exists() else "doctor_config_default"
    return Finding("config", "ok", code, {"path": str(path)})


def permissions(machine: Machine) -> Finding:
    """May this user use the data folder and read the inbox."""
    for path in (machine.config.data, machine.config.inbox_dir):
        if not path.exists():
            return Finding("folders", "warn", "doctor_folder_missing", {"path": str(path)})
        if not os.access(path, os.R_OK | os.X_OK):
            return Finding("folders", "fail", "doctor_folder_unreadable", {"path": str(path)})
    if not os.access(machine.config.data, os.W_OK):
        path = machine.config.data
        return Finding("folders", "fail", "doctor_folder_unwritable", {"path": str(path)})
    return Finding("folders", "ok", "doctor_folders", {"path": str(machine.config.data)})


def engine(machine: Machine) -> Finding:
    """Can llama.cpp be loaded; tried in a child process."""
    status, text = machine.run([sys.executable, "-c", "import llama_cpp"], ENGINE_S)
    if status != 0:
        cause = (text.strip().splitlines() or [f"status {status}"])[-1][:300]
        return Finding("engine", "fail", "doctor_engine", {"cause": cause})
    return Finding("engine", "ok", "doctor_engine_ok")


def models(machine: Machine) -> Finding:
    """Are the configured models here and whole; ``appliance models verify`` reads every byte."""
    store = ModelStore(models_dir(machine.config, machine.environ))
    names = []
    for name in (machine.config.models.generation, machine.config.models.embedding):
        try:
            inspect(store.path(name))
        except ApplianceError as error:
            facts = {"name": name, "cause": error.code}
            return Finding("models", "fail", "doctor_model", facts)
        names.append(name)
    return Finding("models", "ok", "doctor_models", {"names": ", ".join(names)})


def digests(machine: Machine) -> Finding:
    """Are the models' bytes what they should be: reads each file whole."""
    store = ModelStore(models_dir(machine.config, machine.environ))
    name = ""
    try:
        for name in (machine.config.models.generation, machine.config.models.embedding):
            store.verify(name)
    except ApplianceError as error:
        facts = {"name": name, "cause": error.code}
        return Finding("digests", "fail", "doctor_digest", facts)
    return Finding("digests", "ok", "doctor_digests")


def store(machine: Machine) -> Finding:
    """Is the knowledge base consistent, without orphans; a running daemon is asked instead."""
    path = machine.config.database
    if not path.exists():
        return Finding("store", "skip", "doctor_store_none", {"path": str(path)})
    if machine.is_daemon_running:
        return Finding("store", "skip", "doctor_store_in_use")
    try:
        opened = Store.open(path)
    except StoreCorruptError as error:
        facts: dict[str, Fact] = {"path": str(path), "cause": error.facts.get("cause")}
        return Finding("store", "fail", "doctor_store_corrupt", facts)
    except StoreError as error:
        facts = {"path": str(path), "cause": str(error)}
        return Finding("store", "fail", "doctor_store_unopened", facts)
    try:
        problems = opened.check()
        counts = opened.stats()
    finally:
        opened.close()
    if problems:
        facts = {"n": len(problems), "first": problems[0]}
        return Finding("store", "fail", "doctor_store_inconsistent", facts)
    return Finding(
        "store",
        "ok",
        "doctor_store",
        {"documents": counts["documents"], "passages": counts["passages"]},
    )


def port(machine: Machine) -> Finding:
    """Can the daemon have its port."""
    host, number = machine.config.http.host, machine.config.http.port
    if machine.is_daemon_running or number == 0:
        return Finding("port", "skip", "doctor_port_in_use", {"port": number})
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
        except OSError as error:
            taken: dict[str, Fact] = {"port": number, "cause": error.strerror or str(error)}
            return Finding("port", "fail", "doctor_port_taken", taken)
    return Finding("port", "ok", "doctor_port", {"port": number})


def serial_lines(machine: Machine) -> Finding:
    """Can the configured lines be opened, and is a login prompt on one."""
    try:
        ports = parse_ports(machine.config.serial)
    except ConfigError as error:
        return Finding("serial", "fail", error.code, error.facts)
    if not ports:
        return Finding("serial", "skip", "doctor_serial_none")
    for port in ports:
        facts = {"port": port.name}
        path = machine.at(port.path)
        if not path.exists():
            return Finding("serial", "warn", "doctor_serial_missing", facts)
        if has_getty(port.name, machine.root):
            return Finding("serial", "fail", "doctor_serial_getty", facts)
        if not os.access(path, os.R_OK | os.W_OK):
            return Finding("serial", "fail", "doctor_serial_denied", facts)
    names = ", ".join(port.name for port in ports)
    return Finding("serial", "ok", "doctor_serial", {"ports": names})


def service(machine: Machine) -> Finding:
    """What the service manager says of the daemon."""
    if not machine.at(f"/etc/systemd/system/{UNIT}").exists():
        code = "doctor_daemon_runs" if machine.is_daemon_running else "doctor_daemon_by_hand"
        return Finding("service", "ok" if machine.is_daemon_running else "skip", code)
    properties = "ActiveState,SubState,NRestarts,Result"
    status, text = machine.run(["systemctl", "show", UNIT, f"--property={properties}"])
    if status != 0:
        cause = " ".join(text.split())[:200] or f"status {status}"
        return Finding("service", "warn", "doctor_service_unknown", {"cause": cause})
    said = dict(line.partition("=")[::2] for line in text.splitlines())
    facts = {"state": said.get("ActiveState", "?"), "restarts": said.get("NRestarts", "?")}
    if said.get("ActiveState") != "active":
        result = said.get("Result", "?")
        return Finding("service", "fail", "doctor_service_down", {**facts, "result": result})
    if said.get("NRestarts", "0") not in ("", "0"):
        return Finding("service", "warn", "doctor_service_restarts", facts)
    return Finding("service", "ok", "doctor_service", facts)


def kiosk(machine: Machine) -> Finding:
    """Can the kiosk show its page."""
    if not machine.at("/etc/systemd/system/appliance-kiosk.service").exists():
        return Finding("kiosk", "skip", "doctor_kiosk_none")
    programs = {
        "cage": ("/usr/bin/cage",),
        "Chromium": ("/usr/bin/chromium", "/usr/bin/chromium-browser"),
    }
    missing = [
        name for name, paths in programs.items() if not any(machine.at(p).exists() for p in paths)
    ]
    if missing:
        return Finding("kiosk", "fail", "doctor_kiosk_programs", {"missing": ", ".join(missing)})
    if not machine.glob("/dev/dri/card*"):
        return Finding("kiosk", "fail", "doctor_kiosk_screen")
    return Finding("kiosk", "ok", "doctor_kiosk")


CHECKS = (config_file, permissions, engine, models, store, port, serial_lines, service, kiosk)
THOROUGH = (digests,)
