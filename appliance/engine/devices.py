"""Choose where the model runs: the NPU through our plugin, or the CPU, always with the reason."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.engine.native import start_backend
from appliance.errors import EngineError

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

# libggml re-exports nothing of libggml-base, where these live; the loader has it already.
_base = ctypes.CDLL("libggml-base.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
_base.ggml_backend_reg_dev_count.argtypes = [ctypes.c_void_p]
_base.ggml_backend_reg_dev_count.restype = ctypes.c_size_t
_base.ggml_backend_reg_dev_get.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_base.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
_base.ggml_backend_dev_description.argtypes = [ctypes.c_void_p]
_base.ggml_backend_dev_description.restype = ctypes.c_char_p

_base.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
_base.ggml_backend_dev_memory.restype = None

_lock = threading.Lock()

DeviceChoice = Literal["auto", "cpu", "cann"]


@dataclass(frozen=True)
class Device:
    """Where to run. ``reason`` says why it is not the other one, for ``status``."""

    kind: Literal["cpu", "cann"]
    n_gpu_layers: int
    description: str
    reason: str


def choose_device(wanted: DeviceChoice, plugin_path: Path | None) -> Device:
    """Return the device to use, loading the plugin when it may be used.

    Args:
        wanted: ``auto`` takes the NPU when the plugin finds one, else the CPU; ``cann`` insists.
        plugin_path: the plugin's shared library, None when none is installed.

    Raises:
        EngineError: ``cann`` was demanded and there is none (code ``device_unavailable``).
    """
    if wanted == "cpu":
        return Device("cpu", 0, "CPU", "configured")
    reason = "no NPU plugin is installed"
    if plugin_path is not None:
        found = _load_plugin(plugin_path)
        if isinstance(found, Device):
            return found
        reason = found
    if wanted == "cann":
        raise EngineError("device_unavailable", device="cann", cause=reason)
    return Device("cpu", 0, "CPU", reason)


def _load_plugin(path: Path) -> Device | str:
    """Return the plugin's first device, or why there is none."""
    if not path.is_file():
        return f"the plugin {path} is not there"
    start_backend()
    with _lock:
        registry = libggml.ggml_backend_reg_by_name(_CANN.encode())
        if not registry:
            registry = libggml.ggml_backend_load(str(path).encode())
        if not registry:
            return f"ggml refused to load the plugin {path}"
        if not _base.ggml_backend_reg_dev_count(registry):
            return "the plugin found no NPU"
        device = _base.ggml_backend_reg_dev_get(registry, 0)
        described = _base.ggml_backend_dev_description(device)
    description = (described or _CANN.encode()).decode("utf-8", "replace")
    _log.info("using %s through %s", description, path)
    return Device("cann", _ALL_LAYERS, description, "the plugin found it")


def device_memory() -> tuple[int, int]:
    """Return free and total bytes of the loaded plugin's first device.

    Raises:
        EngineError: no plugin is loaded, or it found no device (code ``device_unavailable``).
    """
    with _lock:
        registry = libggml.ggml_backend_reg_by_name(_CANN.encode())
        if not registry or not _base.ggml_backend_reg_dev_count(registry):
            raise EngineError("device_unavailable", device="cann", cause="no plugin is loaded")
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        device = _base.ggml_backend_reg_dev_get(registry, 0)
        _base.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
