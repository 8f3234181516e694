"""Write a GGUF again with F16 weights, which is what the NPU computes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp

from appliance.engine.native import start_backend
from appliance.errors import EngineError
from appliance.system.gguf import inspect


def write_f16(source: Path, target: Path, n_threads: int) -> None:
    """Write ``source`` to ``target`` with F16 weights; nothing is lost, the file becomes larger.

    Raises:
        ModelRejectedError: ``source`` is no model this build can use.
        EngineError: llama.cpp could not write it (code ``requantise_failed``).
    """
    inspect(source)
    start_backend()
    params: Any = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_F16
    params.nthread = n_threads
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params) != 0:
        target.unlink(missing_ok=True)
        raise EngineError("requantise_failed", path=str(source))
