"""Write a GGUF again with other weights: F16 for a comparison, a smaller type for a small board."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import llama_cpp

from appliance.engine.native import start_backend
from appliance.errors import EngineError
from appliance.system.gguf import inspect

WeightType = Literal["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0"]
WEIGHT_TYPES: tuple[str, ...] = get_args(WeightType)

_FTYPES: dict[str, int] = {
    "F16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "Q5_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
}


def requantise(source: Path, target: Path, weight_type: WeightType, n_threads: int) -> None:
    """Write ``source`` to ``target`` with another type of weights.

    From F16 or F32 this is llama.cpp's quantisation. From a quantised file it loses a little more
    each time; to F16 it loses nothing, it only makes the file larger.

    Raises:
        ModelRejectedError: ``source`` is no model this build can use.
        EngineError: llama.cpp could not write it (code ``requantise_failed``).
    """
    inspect(source)
    start_backend()
    params: Any = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _FTYPES[weight_type]
    params.nthread = n_threads
    params.allow_requantize = True
    path, made = str(source).encode(), str(target).encode()
    status = llama_cpp.llama_model_quantize(path, made, params)
    if status != 0:
        target.unlink(missing_ok=True)
        raise EngineError("requantise_failed", path=str(source), weight_type=weight_type)
