"""Run one job in a process of its own: stock llama_cpp, with or without the plugin.

    python child.py job.json

A process of its own because the simulator judges per process: init, reset, leaks at exit, and death
by abort() when a rule is broken. The job and the result are JSON files beside each other, arrays go
to ``.npy`` files. The script imports nothing of the appliance: what is judged is the plugin under
the stock package, and whatever it does must hold for other programs too.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C  # noqa: N812
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
N_GPU_LAYERS_ALL = 999
FLASH_ATTN_AUTO, FLASH_ATTN_OFF = -1, 0

# The copies that libllama brought along, found by their soname: the wheel has each library under
# three names, and opening another one by path would be a second ggml with its own registry.
libggml = ctypes.CDLL("libggml.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
base = ctypes.CDLL("libggml-base.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
libggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
libggml.ggml_backend_load.restype = ctypes.c_void_p
base.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
base.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p


class Log:
    """Keep llama.cpp's log, debug lines too: the scheduler's split table is read from it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.callback = C.llama_log_callback(self.take)
        C.llama_log_set(self.callback, ctypes.c_void_p(0))

    def take(self, _level: int, text: bytes, _user: int | None) -> None:
        self.parts.append(text.decode("utf-8", "replace"))

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Session:
    """One loaded model with one context, and the few verbs the jobs are made of."""

    def __init__(self, job: dict[str, Any]) -> None:
        parameters = C.llama_model_default_params()
        parameters.n_gpu_layers = job.get("n_gpu_layers", N_GPU_LAYERS_ALL)
        parameters.use_mmap = job.get("use_mmap", True)
        self.model = C.llama_model_load_from_file(job["model"].encode(), parameters)
        if not self.model:
            raise RuntimeError("model load failed")
        self.vocab = C.llama_model_get_vocab(self.model)
        settings = C.llama_context_default_params()
        settings.n_ctx = job.get("n_ctx", 512)
        settings.n_batch = settings.n_ubatch = job.get("n_batch", 512)
        settings.n_seq_max = job.get("n_seq_max", 1)
        settings.n_threads = settings.n_threads_batch = job.get("threads", 2)
        settings.flash_attn_type = job.get("flash_attn", FLASH_ATTN_AUTO)
        settings.embeddings = job.get("embeddings", False)
        settings.kv_unified = True
        self.context = C.llama_init_from_model(self.model, settings)
        if not self.context:
            C.llama_model_free(self.model)
            raise RuntimeError("context creation failed")
        self.n_vocab = C.llama_vocab_n_tokens(self.vocab)
        self.n_embd = C.llama_model_n_embd(self.model)
        self.batch = C.llama_batch_init(max(settings.n_batch, 1), 0, 1)

    def close(self) -> None:
        C.llama_batch_free(self.batch)
        C.llama_free(self.context)
        C.llama_model_free(self.model)

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        room = len(data) + 16
        out = (C.llama_token * room)()
        n = C.llama_tokenize(self.vocab, data, len(data), out, room, True, True)
        if n < 0:
            raise RuntimeError(f"tokenize needs room for {-n} tokens")
        return list(out[:n])

    def decode(self, tokens: list[int], start: int, *, all_logits: bool) -> int:
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = start + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = all_logits or i + 1 == len(tokens)
        self.batch.n_tokens = len(tokens)
        return int(C.llama_decode(self.context, self.batch))

    def clear(self) -> None:
        C.llama_memory_clear(C.llama_get_memory(self.context), True)

    def logits(self, index: int) -> Floats:
        row = C.llama_get_logits_ith(self.context, index)
        return np.ctypeslib.as_array(row, (self.n_vocab,)).copy()

    def forced(self, tokens: list[int], chunk: int) -> Floats:
        """Feed the tokens ``chunk`` at a time; return the logits of every position."""
        self.clear()
        rows: list[Floats] = []
        for at in range(0, len(tokens), chunk):
            part = tokens[at : at + chunk]
            status = self.decode(part, at, all_logits=True)
            if status != 0:
                raise RuntimeError(f"llama_decode returned {status} at position {at}")
            rows += [self.logits(i) for i in range(len(part))]
        return np.stack(rows)

    def greedy(self, tokens: list[int], n: int) -> dict[str, Any]:
        """Prefill, then take the best token ``n`` times; stop at a failing decode."""
        self.clear()
        out: list[int] = []
        seconds: list[float] = []
        step, at = tokens, 0
        for _ in range(n):
            began = time.monotonic()
            status = self.decode(step, at, all_logits=False)
            if status != 0:
                return {"tokens": out, "status": status, "seconds": seconds}
            out.append(int(np.argmax(self.logits(-1))))
            seconds.append(round(time.monotonic() - began, 4))
            at += len(step)
            step = out[-1:]
        return {"tokens": out, "status": 0, "seconds": seconds}

    def embed(self, tokens: list[int]) -> Floats:
        """Return the pooled, normalised vector of one text."""
        status = self.decode(tokens, 0, all_logits=True)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        row = C.llama_get_embeddings_seq(self.context, 0)
        vector = np.ctypeslib.as_array(row, (self.n_embd,)).copy()
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


class Plugin:
    """The plugin as ggml sees it; its extra functions are fetched by name from the registry."""

    def __init__(self, path: str) -> None:
        self.registry = libggml.ggml_backend_load(path.encode())

    def text(self, name: str) -> str | None:
        """Call a plugin function ``const char * name(void)``; None when there is none."""
        address = base.ggml_backend_reg_get_proc_address(self.registry, name.encode())
        if not address:
            return None
        said = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)()
        return said.decode("utf-8", "replace") if said is not None else None


def mark(trace: str | None, text: str) -> None:
    """Put a line of our own into the simulator's trace, so that a test can cut it by phase."""
    if trace is not None:
        with Path(trace).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"mark": text}) + "\n")


def run(job: dict[str, Any], folder: Path, result: dict[str, Any]) -> None:
    log = Log()
    plugin = Plugin(job["plugin"]) if job.get("plugin") else None
    result["registered"] = bool(plugin and plugin.registry)
    C.llama_backend_init()
    session: Session | None = None
    try:
        for number, action in enumerate(job["actions"]):
            verb = action["do"]
            mark(job.get("trace"), f"{number} {verb}")
            answer: Any = None
            if verb == "load":
                try:
                    session = Session({**job, **action})
                    answer = "loaded"
                except RuntimeError as error:
                    answer = str(error)
            elif verb == "call":
                answer = plugin.text(action["function"]) if plugin else None
            elif verb == "close":
                if session is not None:
                    session.close()
                session = None
            elif session is None:
                answer = "no model"
            elif verb == "tokenize":
                answer = session.tokenize(action["text"])
            elif verb == "forced":
                tokens = action.get("tokens") or session.tokenize(action["text"])
                tokens = tokens[: action.get("n", len(tokens))]
                try:
                    logits = session.forced(tokens, action["chunk"])
                    np.save(folder / f"{number}.npy", logits)
                    answer = {"tokens": tokens, "array": f"{number}.npy"}
                except RuntimeError as error:
                    answer = {"error": str(error)}
            elif verb == "greedy":
                tokens = action.get("tokens") or session.tokenize(action["text"])
                answer = session.greedy(tokens, action["n"])
            elif verb == "embed":
                vectors = [session.embed(session.tokenize(text)) for text in action["texts"]]
                np.save(folder / f"{number}.npy", np.stack(vectors))
                answer = {"array": f"{number}.npy"}
            elif verb == "fork":
                answer = fork(session, action)
            elif verb == "threads":
                answer = threads(session, job, action)
            else:
                raise ValueError(f"unknown verb {verb!r}")
            result["answers"].append(answer)
    finally:
        if session is not None:
            session.close()
        if plugin is not None:
            result["memory"] = plugin.text("ggml_backend_cann_memory_json")
        C.llama_backend_free()
        (folder / "log.txt").write_text(log.text, encoding="utf-8")


def fork(session: Session, action: dict[str, Any]) -> dict[str, int]:
    """Use the device in a forked child, which ends like any process; return how it fared."""
    pid = os.fork()
    if pid == 0:
        sys.exit(abs(session.greedy(action["tokens"], 1)["status"]))
    _, ended = os.waitpid(pid, 0)
    return {"status": os.waitstatus_to_exitcode(ended)}


def threads(session: Session, job: dict[str, Any], action: dict[str, Any]) -> list[Any]:
    """Run the same greedy job from several threads, each with its own context on one model."""
    answers: list[Any] = [None] * action["threads"]

    def work(index: int) -> None:
        own = Session({**job, **action})
        answers[index] = [
            own.greedy(action["tokens"], action["n"])["tokens"] for _ in range(action["runs"])
        ]
        own.close()

    workers = [
        threading.Thread(target=work, args=(i,), name=f"client-{i}")
        for i in range(action["threads"])
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return answers


def main() -> None:
    job_path = Path(sys.argv[1])
    job = json.loads(job_path.read_text(encoding="utf-8"))
    result: dict[str, Any] = {"answers": []}
    try:
        run(job, job_path.parent, result)
    finally:
        (job_path.parent / "result.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
