"""Choose where the model runs: the NPU through our plugin, or the CPU, always with the reason."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.config import DeviceConfig
from appliance.engine.native import start_backend
from appliance.errors import EngineError, Fact

_log = logging.getLogger(__name__)
_ALL_LAYERS = 999
_CANN = "CANN"

# The copies libllama brought along, by their soname: the wheel carries each library under three
# names, and opening another one by path makes a second ggml whose registry llama.cpp never reads.
libggml = ctypes.CDLL("libggml.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
libggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
libggml.ggml_backend_load.restype = ctypes.c_void_p
libggml.ggml_backend_reg_by_name.argtypes = [ctypes.c_char_p]
libggml.ggml_backend_reg_by_name.restype = ctypes.c_void_p
libggml.ggml_backend_device_register.argtypes = [ctypes.c_void_p]

# libggml re-exports nothing of libggml-base, where these live; the loader has it already.
_base = ctypes.CDLL("libggml-base.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
_base.ggml_backend_reg_dev_count.argtypes = [ctypes.c_void_p]
_base.ggml_backend_reg_dev_count.restype = ctypes.c_size_t
_base.ggml_backend_reg_dev_get.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_base.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
_base.ggml_backend_dev_description.argtypes = [ctypes.c_void_p]
_base.ggml_backend_dev_description.restype = ctypes.c_char_p
_base.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_base.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p

_base.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
_base.ggml_backend_dev_memory.restype = None

# What the plugin gives beside ggml's own interface; each is ggml_backend_cann_*.
_FUNCTIONS = ("configure", "retry", "memory_json", "take_failure", "reset")

_lock = threading.Lock()

DeviceChoice = Literal["auto", "cpu", "cann"]

# ASCEND_GLOBAL_LOG_LEVEL of CANN's environment reference.
_ACL_LEVELS = {"debug": "0", "info": "1", "warning": "2", "error": "3", "off": "4"}

# ACL_ERROR_BAD_ALLOC, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_DEVICE_OOM of acl_base_rt.h.
_OUT_OF_MEMORY = frozenset({200000, 207001, 207018})


@dataclass(frozen=True)
class Device:
    """Where to run.

    ``reason`` is a code of ``appliance.messages`` that says why it is this one and not the other;
    ``facts`` are what its sentence needs.
    """

    kind: Literal["cpu", "cann"]
    n_gpu_layers: int
    description: str
    reason: str
    facts: dict[str, Fact] = field(default_factory=dict)


def on_cpu(reason: str, **facts: Fact) -> Device:
    """Return the CPU, and why."""
    return Device("cpu", 0, "CPU", reason, facts)


def choose_device(
    wanted: DeviceChoice, plugin_path: Path | None, settings: DeviceConfig | None = None
) -> Device:
    """Return the device to use, loading the plugin when it may be used.

    Args:
        wanted: ``auto`` takes the NPU when the plugin finds one, else the CPU; ``cann`` insists.
        plugin_path: the plugin's shared library, None when none is installed.
        settings: what the plugin is told.

    Raises:
        EngineError: ``cann`` was demanded and there is none; the code is the reason's.
    """
    if wanted == "cpu":
        return on_cpu("device_configured")
    if plugin_path is None:
        found = on_cpu("plugin_missing")
    elif not plugin_path.is_file():
        found = on_cpu("plugin_absent", path=str(plugin_path))
    else:
        found = _load_plugin(plugin_path, settings or DeviceConfig())
    if wanted == "cann" and found.kind == "cpu":
        raise EngineError(found.reason, **found.facts)
    return found


def npu_facts() -> dict[str, Fact]:
    """Return what the plugin reports: layout of the weights and why, bytes, fused operators.

    Keys: ``layout``, ``layout_why``, ``layout_needed``, ``layout_free``, ``used``, ``peak``,
    ``free``, ``total``, ``allocations``, ``blocks`` and ``fused`` (names, joined by commas). Empty
    without an NPU. Asks the device, so it is for the engine thread.
    """
    report = _text_of("ggml_backend_cann_memory_json")
    if not report:
        return {}
    facts: dict[str, Fact] = {}
    for name, value in json.loads(report).items():
        facts[name] = ", ".join(value) if isinstance(value, list) else value
    return facts


@dataclass(frozen=True)
class NpuFailure:
    """What went wrong on the NPU: ACL's code and the plugin's words."""

    code: int
    text: str

    @property
    def is_memory(self) -> bool:
        """Whether device memory was short, which leaves the device as usable as before."""
        return self.code in _OUT_OF_MEMORY


def take_npu_failure() -> NpuFailure | None:
    """Return what first went wrong on the NPU since this was last asked, None when nothing did."""
    code, _, text = _text_of("ggml_backend_cann_take_failure").partition(" ")
    return NpuFailure(int(code), text) if code else None


def release_npu() -> None:
    """Give the device back, which also clears a fault of it; the next load takes it anew.

    Every model and context must have been freed.
    """
    if why := _text_of("ggml_backend_cann_reset"):
        _log.error("the NPU could not be reset: %s", why)


def _load_plugin(path: Path, settings: DeviceConfig) -> Device:
    """Return the plugin's first device, or the CPU with the reason why there is none."""
    start_backend()
    with _lock:
        registry = libggml.ggml_backend_reg_by_name(_CANN.encode())
        if not registry:
            # The vendor's library reads its log level once, when it is opened.
            os.environ["ASCEND_GLOBAL_LOG_LEVEL"] = _ACL_LEVELS[settings.acl_log]
            os.environ["ASCEND_SLOG_PRINT_TO_STDOUT"] = str(int(settings.acl_log != "off"))
            registry = libggml.ggml_backend_load(str(path).encode())
        if not registry:
            return on_cpu("plugin_refused", path=str(path))
        if missing := _missing(registry):
            return on_cpu("plugin_too_old", missing=missing)
        _configure(registry, settings)
        if not _base.ggml_backend_reg_dev_count(registry):
            why = _ask(registry, "ggml_backend_cann_retry")
            if not _base.ggml_backend_reg_dev_count(registry):
                return on_cpu("npu_absent", cause=why)
            # ggml knows the devices that were there when the plugin was loaded.
            libggml.ggml_backend_device_register(_base.ggml_backend_reg_dev_get(registry, 0))
        device = _base.ggml_backend_reg_dev_get(registry, 0)
        described = _base.ggml_backend_dev_description(device)
    description = (described or _CANN.encode()).decode("utf-8", "replace")
    _log.info("using %s through %s", description, path)
    return Device("cann", _ALL_LAYERS, description, "npu_found")


def device_memory() -> tuple[int, int]:
    """Return free and total bytes of the loaded plugin's first device.

    Raises:
        EngineError: no plugin is loaded, or it found no device.
    """
    with _lock:
        registry = libggml.ggml_backend_reg_by_name(_CANN.encode())
        if not registry or not _base.ggml_backend_reg_dev_count(registry):
            raise EngineError("npu_absent", cause="no plugin with a device is loaded")
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        device = _base.ggml_backend_reg_dev_get(registry, 0)
        _base.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def is_simulated() -> bool:
    """Whether the vendor's library this process has loaded is our simulator of it.

    Its figures are never measurements. It exports a name that no vendor's library has
    (``native/acl-sim/acl-rt.cpp``); the chip's name is the same in both.
    """
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.endswith("/libascendcl.so"):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return hasattr(library, "aclSimulatorIsNoChip")
    return False


def _missing(registry: int) -> str | None:
    """Return a function that is asked for and an older plugin does not have, None when all are."""
    names = (f"ggml_backend_cann_{name}" for name in _FUNCTIONS)
    found = _base.ggml_backend_reg_get_proc_address
    return next((name for name in names if not found(registry, name.encode())), None)


def _configure(registry: int, settings: DeviceConfig) -> None:
    wanted = {
        "layout": settings.layout,
        "graph_dump": settings.graph_dump or "",
        "sync_each_op": str(int(settings.sync_each_op)),
        "timeout_ms": str(round(settings.timeout_s * 1000)),
    }
    for name, value in wanted.items():
        if why := _ask(registry, "ggml_backend_cann_configure", name, value):
            raise EngineError(cause=why)


def _ask(registry: int, function: str, *arguments: str) -> str:
    """Call ``const char * function(const char *...)`` of the plugin."""
    address = _base.ggml_backend_reg_get_proc_address(registry, function.encode())
    kinds = [ctypes.c_char_p] * len(arguments)
    call: Callable[..., bytes | None] = ctypes.CFUNCTYPE(ctypes.c_char_p, *kinds)(address)
    said = call(*(argument.encode() for argument in arguments))
    return (said or b"").decode("utf-8", "replace")


def _text_of(function: str) -> str:
    registry = libggml.ggml_backend_reg_by_name(_CANN.encode())
    # A plugin that is too old to be used is loaded all the same; it has nothing to say.
    return _ask(registry, function) if registry and not _missing(registry) else ""
