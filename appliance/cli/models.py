"""``appliance models``: model files; works with or without a running daemon."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from appliance import config as configuration
from appliance.cli.connect import connect
from appliance.cli.output import Output, ProgressLine
from appliance.client import RemoteError
from appliance.errors import EXIT_DONE, BadRequestError, DaemonUnreachableError
from appliance.frontends.terminal.layout import table
from appliance.frontends.terminal.screens import duration
from appliance.units import human_bytes

_POLL_S = 0.3

if TYPE_CHECKING:
    from appliance.models import ModelInfo, ModelStore, Progress


def list_models(arguments: Namespace, output: Output) -> int:
    """Print the catalogue and what is here."""
    store = _store(arguments)
    found = store.list()
    if output.is_json:
        output.json({"folder": str(store.folder), "models": [_as_json(info) for info in found]})
        return EXIT_DONE
    rows = [
        [
            info.name,
            output.label("model_here" if info.path else "model_not_here"),
            human_bytes(info.n_bytes) if info.n_bytes else "?",
            output.label("model_starter") if info.is_starter else "",
            (info.about_zh if output.lang == "zh" else info.about_en) or (info.source or ""),
        ]
        for info in found
    ]
    for line in table(rows):
        output.line(line)
    output.say("models_folder", path=store.folder)
    return EXIT_DONE


def pull(arguments: Namespace, output: Output) -> int:
    """Fetch models, going on where an earlier pull was stopped."""
    store = _store(arguments)
    names = list(arguments.names)
    if arguments.starter:
        names += [entry.name for entry in store.catalogue.starters if entry.name not in names]
    if not names:
        raise BadRequestError(field="NAME", allowed="a model's name or --starter")
    pulled: dict[str, str] = {}
    with _stoppable() as cancel:
        for name in names:
            with output.progress() as line:
                path = store.pull(name, _meter(line, output), cancel, only=arguments.source)
            pulled[name] = str(path)
            if not output.is_json:
                output.say("pulled", name=name, path=path)
    if output.is_json:
        output.json({"models": [{"name": name, "path": path} for name, path in pulled.items()]})
    return EXIT_DONE


def verify(arguments: Namespace, output: Output) -> int:
    """Compare digests."""
    store = _store(arguments)
    names = arguments.names or [info.name for info in store.list() if info.path]
    digests: dict[str, str] = {}
    for name in names:
        with output.progress() as line:
            digests[name] = store.verify(name, _meter(line, output))
        if not output.is_json:
            output.say("verified", name=name, sha256=digests[name])
    if output.is_json:
        output.json({"models": [{"name": n, "sha256": d} for n, d in digests.items()]})
    return EXIT_DONE


def import_model(arguments: Namespace, output: Output) -> int:
    """Take in a file from a path or stick."""
    store = _store(arguments)
    with output.progress() as line:
        info = store.import_file(arguments.file.expanduser(), arguments.name, _meter(line, output))
    if output.is_json:
        output.json(_as_json(info))
    else:
        output.say("imported", name=info.name, path=info.path)
    return EXIT_DONE


def use(arguments: Namespace, output: Output) -> int:
    """Answer with another model: at once when the box runs, else from its next start on."""
    name: str = arguments.name
    if "/" in name or name.endswith(".gguf"):
        name = str(Path(name).expanduser().resolve())
    try:
        client = connect(arguments, output)
        found = client.post("/api/models/use", {"name": name})
    except DaemonUnreachableError:
        _store(arguments).path(name)
        configuration.choose_model(arguments.data, name)
        _used(name, output, is_running=False)
        return EXIT_DONE
    with output.progress() as line:
        while (change := found["change"])["is_running"]:
            n_left = change["answers_left"]
            label = "model_finishing" if n_left else "model_being_loaded"
            line.show(output.label(label, name=name, n=n_left))
            time.sleep(_POLL_S)
            found = client.get("/api/models")
    if change["error"] is not None:
        raise RemoteError(change["error"]["code"], **change["error"]["facts"])
    _used(found["current"], output, is_running=True)
    return EXIT_DONE


def _used(name: str, output: Output, *, is_running: bool) -> None:
    if output.is_json:
        output.json({"model": name, "is_running": is_running})
    else:
        output.say("model_used" if is_running else "model_used_later", name=name)


def remove(arguments: Namespace, output: Output) -> int:
    """Delete files."""
    store = _store(arguments)
    for name in arguments.names:
        store.remove(name)
        if not output.is_json:
            output.say("model_removed", name=name)
    if output.is_json:
        output.json({"removed": arguments.names})
    return EXIT_DONE


def _store(arguments: Namespace) -> ModelStore:
    from appliance.models import ModelStore

    return ModelStore(configuration.models_dir(configuration.load(arguments.data)))


def _as_json(info: ModelInfo) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(info).items()
    }


class _Meter:
    """Progress of one transfer as a line: bar, bytes, speed, time left."""

    def __init__(self, line: ProgressLine, output: Output) -> None:
        self._line = line
        self._output = output
        self._source = ""
        self._began = (0.0, 0)

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.source != self._source or progress.n_done < self._began[1]:
            self._source, self._began = progress.source, (now, progress.n_done)
        seconds = now - self._began[0]
        rate = (progress.n_done - self._began[1]) / seconds if seconds > 0.5 else 0.0
        parts = [progress.model]
        if progress.n_total:
            share = min(progress.n_done / progress.n_total, 1.0)
            filled = round(20 * share)
            bar = "#" * filled + "-" * (20 - filled)
            sizes = f"{human_bytes(progress.n_done)} / {human_bytes(progress.n_total)}"
            parts += [f"[{bar}] {share:4.0%}", sizes]
        else:
            parts.append(human_bytes(progress.n_done))
        if rate > 0:
            parts.append(f"{human_bytes(int(rate))}/s")
            if progress.n_total:
                left_s = (progress.n_total - progress.n_done) / rate
                left = duration(max(left_s, 0), self._output.lang)
                parts.append(self._output.label("work_eta", eta=left))
        parts.append(self._output.label(f"source_{progress.source}"))
        self._line.show("  ".join(parts))


def _meter(line: ProgressLine, output: Output) -> _Meter:
    return _Meter(line, output)


@contextlib.contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Turn Ctrl-C into a clean stop, after which the next pull goes on."""
    cancel = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        cancel.set()

    old = signal.signal(signal.SIGINT, ask)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, old)
