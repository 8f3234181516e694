"""The daemon: build the parts in order, run, stop in reverse order.

    config > data folder > store (lock, check, migrate) > engine (loads behind) > core > ingest
    > inbox > HTTP > READY=1

Whatever happens (a signal, an error while starting, a reload) the way out is the same: each part
that was started is stopped, the last one first, each within a deadline; who was late is logged.
SIGTERM and SIGINT ask for a stop and the second one forces it; SIGHUP reads the configuration again
and rebuilds the parts with it; SIGUSR1 prints the stack of every thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from appliance import config as configuration
from appliance.config import Config, models_dir, plugin_path
from appliance.core import Core, IngestWorker
from appliance.engine.base import Engine, SavedPrompts
from appliance.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    ApplianceError,
    ConfigError,
    EngineError,
    FrontendError,
)
from appliance.frontends.dropfolder import Inbox
from appliance.frontends.http.frontend import HttpFrontend
from appliance.frontends.http.guard import read_api_key
from appliance.messages import Lang, explain
from appliance.models import ModelStore
from appliance.store import Store
from appliance.system import files, log, memory
from appliance.system.clock import Clock
from appliance.system.notify import Heartbeat, Notifier
from appliance.system.plan import read_plan
from appliance.system.starts import Starts, boot_id

if TYPE_CHECKING:
    from appliance.engine.llama import LlamaEngine
    from appliance.engine.remote_embedder import RemoteEmbedder

_log = logging.getLogger(__name__)

STOP_DEADLINES_S = {
    "serial": 4.0,
    "http": 6.0,
    "inbox": 3.0,
    "ingest": 8.0,
    "selftest": 3.0,
    "engine": 10.0,
    "store": 5.0,
}
"""Seconds each part may take to stop; their sum stays below the unit's TimeoutStopSec."""

_STEADY_S = 20.0
"""A start counts as good once nothing has loaded for this long and the process still lives."""

_LONGEST_LOAD_S = 900.0
"""Seconds a model may take to load before the watchdog calls it stuck."""

_TICK_S = 1.0
_NO_WATCHDOG_S = 60.0
_LOOKS_AFTER_CHANGE = 5

T = TypeVar("T")
MakeEngine = Callable[[Config], Engine]


@dataclass(frozen=True)
class ServeOptions:
    """What ``appliance serve`` was told beside the configuration file.

    ``safe`` starts without models; ``safe_after`` does so after that many starts in a row that were
    killed before the box was steady (0: never).
    """

    data: Path
    port: int | None = None
    ready_file: Path | None = None
    debug: bool = False
    lang: Lang = "en"
    safe: bool = False
    safe_after: int = 0


@dataclass(frozen=True)
class Box:
    """The running parts."""

    config: Config
    core: Core
    http: HttpFrontend


class Parts:
    """Started parts, stopped in reverse order, each within its deadline."""

    def __init__(self) -> None:
        self._stops: list[tuple[str, Callable[[], None]]] = []
        self.late: list[str] = []

    def started(self, name: str, part: T, stop: Callable[[], None]) -> T:
        """Note a part with the call that stops it."""
        self._stops.append((name, stop))
        return part

    def stop_all(self) -> None:
        """Stop everything; a part that fails or is late does not keep the others from stopping."""
        while self._stops:
            name, stop = self._stops.pop()
            stopper = threading.Thread(target=_stop_one, args=(name, stop), name=f"stop-{name}")
            stopper.start()
            stopper.join(STOP_DEADLINES_S[name])
            if stopper.is_alive():
                _log.error("%s did not stop within %.0f s", name, STOP_DEADLINES_S[name])
                self.late.append(name)


def _stop_one(name: str, stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception:  # noqa: BLE001 - the parts below it must still be stopped
        _log.exception("%s failed while stopping", name)


@contextlib.contextmanager
def open_box(
    config: Config, clock: Clock, make_engine: MakeEngine, lang: Lang = "en"
) -> Iterator[Box]:
    """Start every part, and stop them all when left.

    Args:
        config: what is in force.
        clock: time for every part.
        make_engine: returns the engine, which may still load.
        lang: language of sentences for clients that name none.

    Raises:
        ConfigError: the address needs a key.
        StoreError: the store is locked, damaged, too new, or its disk is full.
        FrontendError: the port is taken, or the data folder cannot be used.
    """
    parts = Parts()
    try:
        _make_folders(config)
        store = Store.open(config.database)
        parts.started("store", store, store.close)
        engine = make_engine(config)
        parts.started("engine", engine, engine.close)
        ingest = IngestWorker(config, store, engine, clock)
        core = Core(config, store, engine, ingest, clock)
        parts.started("selftest", core.selftest, core.selftest.cancel)
        ingest.start()
        parts.started("ingest", ingest, ingest.stop)
        inbox = Inbox(core, clock)
        inbox.start()
        parts.started("inbox", inbox, inbox.stop)
        http = HttpFrontend(core, clock, default_lang=lang, rescan=inbox.rescan)
        parts.started("http", http, http.stop)
        if config.serial.ports:
            from appliance.frontends.serial.frontend import SerialFrontend

            key = read_api_key(config.http)
            serial = SerialFrontend(core, clock, url=http.url, api_key=key)
            serial.start()
            parts.started("serial", serial, serial.stop)
        yield Box(config, core, http)
    finally:
        parts.stop_all()
        if parts.late:
            # Their threads would keep the interpreter from ending; the store survives a kill.
            logging.shutdown()
            os._exit(EXIT_FAILED)


def make_engine(config: Config) -> Engine:
    """Return the engine for the configured models and servers.

    A missing model is the engine's problem, not ours.

    Raises:
        ConfigError: a server's key file cannot be used.
    """
    asks, embeds = config.engine.kind == "llama", config.engine.embedding_kind == "llama"
    if asks and embeds:
        return _local_engine(config)
    from appliance.engine.joined import JoinedEngine
    from appliance.engine.remote import RemoteAnswers
    from appliance.engine.remote_embedder import RemoteEmbedder

    vectors: Engine | RemoteEmbedder
    if embeds:
        vectors = _local_engine(config, asks=False)
    else:
        vectors = RemoteEmbedder(config.remote_embedding)
    if asks:
        return JoinedEngine(_local_engine(config, embeds=False), vectors)
    engine = config.engine
    try:
        answers = RemoteAnswers(config.remote, n_ctx=engine.n_ctx, max_queue=engine.max_queue)
    except ConfigError:
        vectors.close()
        raise
    return JoinedEngine(answers, vectors)


def _local_engine(config: Config, *, asks: bool = True, embeds: bool = True) -> LlamaEngine:
    """Return the engine on this machine, with what a server does for it left out."""
    engine_class = _engine_class()
    models = ModelStore(models_dir(config))
    elsewhere = EngineError("done_by_server")
    generation, generation_problem = (
        _model(models, config.models.generation) if asks else (None, elsewhere)
    )
    embedding, embedding_problem = (
        _model(models, config.models.embedding) if embeds else (None, elsewhere)
    )
    engine = config.engine
    plan = read_plan(config.data, config.models.generation)
    device, n_threads = engine.device, engine.n_threads
    if plan is not None:
        # The bench of this box decides only what the owner has left open.
        device = plan.device if device == "auto" and plan.device == "cpu" else device
        n_threads = n_threads or plan.n_threads
    return engine_class(
        generation,
        embedding,
        n_ctx=engine.n_ctx,
        n_slots=engine.n_slots if asks else 1,
        n_threads=n_threads or None,
        n_batch=engine.n_batch,
        max_queue=engine.max_queue,
        unload_after_s=engine.unload_after_s,
        saved_prompts=SavedPrompts(config.data / "cache" / "prompts", engine.prompt_cache_bytes),
        device=device,
        plugin_path=plugin_path(config),
        device_settings=config.device,
        model_problem=generation_problem,
        embedder_problem=embedding_problem,
    )


def make_safe_engine(config: Config, n_failed: int) -> Engine:
    """Return an engine without models: what may have crashed is not touched."""
    problem = EngineError("safe_mode", n_failed=n_failed)
    return _engine_class()(
        None,
        None,
        n_ctx=config.engine.n_ctx,
        n_slots=1,
        n_batch=config.engine.n_batch,
        max_queue=config.engine.max_queue,
        device="cpu",
        model_problem=problem,
        embedder_problem=problem,
    )


def _engine_class() -> type[LlamaEngine]:
    """Return the engine, whose import loads llama.cpp: a third of a second, if it can be loaded."""
    try:
        from appliance.engine.llama import LlamaEngine
    except (ImportError, OSError, RuntimeError) as error:
        # llama_cpp raises RuntimeError for a shared library the system's loader refuses.
        raise EngineError("engine_unloadable", cause=str(error)) from error
    return LlamaEngine


def _model(models: ModelStore, name: str) -> tuple[Path | None, ApplianceError | None]:
    try:
        return models.path(name), None
    except ApplianceError as error:
        return None, error


def _make_folders(config: Config) -> None:
    try:
        config.data.mkdir(parents=True, exist_ok=True)
        config.runtime_file.parent.mkdir(exist_ok=True)
    except OSError as error:
        cause = error.strerror or str(error)
        raise FrontendError("data_unusable", path=str(config.data), cause=cause) from error
    # An inbox that cannot be made (read-only stick) is reported by the inbox itself.
    with contextlib.suppress(OSError):
        config.inbox_dir.mkdir(parents=True, exist_ok=True)


# --------------------------------------------------------------------------------------------------
# running


def run(
    options: ServeOptions,
    environ: Mapping[str, str],
    clock: Clock | None = None,
    engine: MakeEngine = make_engine,
    on_ready: Callable[[Box], None] = lambda _box: None,
) -> int:
    """Serve until told to stop; returns the exit status.

    ``on_ready`` is called whenever the box begins to answer, also after a reload.

    Raises:
        ApplianceError: the box could not be started.
    """
    clock = clock or Clock()
    memory.prefer_small_heap()
    files.allow_many_open()
    config = _configured(options)
    log.set_up(config.log.level, debug=options.debug, environ=environ)
    notifier = Notifier(environ)
    _make_folders(config)
    starts = Starts(config.runtime_file.parent / "start.json", boot_id())
    n_failed = _begin(starts)
    if options.safe or 0 < options.safe_after <= n_failed:
        _log.error("starting in safe mode after %d failed starts", n_failed)
        # The next start tries everything again.
        starts.finish()
        engine = partial(make_safe_engine, n_failed=n_failed)
    try:
        return _run(config, options, notifier, clock, engine, on_ready, starts)
    except ApplianceError as error:
        # A refusal is told to the owner and would be the same in safe mode; a crash is not told.
        if error.code != "thread_ended":
            starts.finish()
        raise


def _begin(starts: Starts) -> int:
    try:
        return starts.begin()
    except OSError as error:
        # A full disk must not keep the box from answering.
        _log.warning("the start could not be noted: %s", error)
        return 0


def _run(
    config: Config,
    options: ServeOptions,
    notifier: Notifier,
    clock: Clock,
    engine: MakeEngine,
    on_ready: Callable[[Box], None],
    starts: Starts,
) -> int:
    with _Signals() as signals:
        while True:
            with open_box(config, clock, engine, options.lang) as box:
                try:
                    announce(box, *([options.ready_file] if options.ready_file else []))
                    _log.info("listening on %s, data in %s", box.http.url, box.config.data)
                    notifier.ready(_status_line(box.core))
                    on_ready(box)
                    config = _serve(box, options, signals, notifier, clock, starts)
                finally:
                    notifier.stopping()
                    box.config.runtime_file.unlink(missing_ok=True)
            if config is box.config:
                starts.finish()
                _log.info("stopped")
                return EXIT_DONE
            # A rebuilt box keeps the port that clients know.
            if config.http.port == 0:
                config = replace(config, http=replace(config.http, port=box.http.port))


def _serve(
    box: Box,
    options: ServeOptions,
    signals: _Signals,
    notifier: Notifier,
    clock: Clock,
    starts: Starts,
) -> Config:
    """Run until a stop, then return the same configuration; or, on a reload, the new one."""
    beat = Heartbeat(notifier.watchdog_s or _NO_WATCHDOG_S)
    steady_since: float | None = clock.monotonic()
    loading_since: float | None = None
    shown, n_looks = "", 0
    while True:
        received = signals.next(_TICK_S)
        if isinstance(received, _Broken):
            raise ApplianceError("thread_ended", thread=received.thread, cause=received.cause)
        if received is signal.SIGTERM or received is signal.SIGINT:
            _log.info("stopping on %s", received.name)
            return box.config
        if received is signal.SIGHUP:
            changed = _reloaded(box, options)
            if changed is not None:
                notifier.reloading()
                return changed
        now = clock.monotonic()
        engine_steps, ingest_steps = box.core.steps()
        if box.core.engine_status().state == "loading":
            steady_since = now
            # A load is one long native call: minutes from a worn card. It counts as progress, but
            # not for ever.
            loading_since = now if loading_since is None else loading_since
            engine_steps += int(min(now - loading_since, _LONGEST_LOAD_S))
        else:
            loading_since = None
        if steady_since is not None and now - steady_since >= _STEADY_S:
            steady_since = None
            starts.finish()
        if beat.is_due((engine_steps, ingest_steps), now) and notifier.watchdog_s is not None:
            notifier.watchdog()
        line = _status_line(box.core)
        if line != shown:
            notifier.status(line)
            shown, n_looks = line, 0
        # Something began or ended; what it freed meanwhile is given back before the box sits idle.
        n_looks += 1
        if n_looks <= _LOOKS_AFTER_CHANGE:
            memory.release_unused()


def _reloaded(box: Box, options: ServeOptions) -> Config | None:
    """Return the configuration if it is good and differs from the one in force."""
    try:
        found = _configured(options)
    except ApplianceError as error:
        _log.warning("reload: %s", error)
        box.core.report("reload", "reload_refused", {"cause": str(explain(error, options.lang))})
        return None
    box.core.report("reload", None)
    is_same = found == replace(box.config, http=replace(box.config.http, port=found.http.port))
    is_same = is_same and found.http.port in (0, box.http.port)
    _log.info("reload: %s", "nothing changed" if is_same else "restarting the parts")
    return None if is_same else found


def _configured(options: ServeOptions) -> Config:
    config = configuration.load(options.data)
    if options.port is not None:
        config = replace(config, http=replace(config.http, port=options.port))
    return config


def announce(box: Box, *extra: Path) -> None:
    """Write where the box is to its run folder and to each of ``extra``.

    Raises:
        FrontendError: a file cannot be written.
    """
    where = json.dumps({"url": box.http.url, "pid": os.getpid()}).encode() + b"\n"
    for path in (box.config.runtime_file, *extra):
        _write(path, where)


def _write(path: Path, content: bytes) -> None:
    try:
        files.write_whole(path, content)
    except OSError as error:
        cause = error.strerror or str(error)
        raise FrontendError("file_unwritable", path=str(path), cause=cause) from error


def _status_line(core: Core) -> str:
    """Return what ``systemctl status`` shows."""
    engine, progress = core.engine_status(), core.progress()
    line = f"model {engine.state}, {engine.n_running} running, {engine.n_waiting} waiting"
    n_left = progress.n_files_waiting + progress.n_passages_waiting
    return f"{line}, reading documents" if n_left else line


@dataclass(frozen=True)
class _Broken:
    """A thread of the box that ended by an exception nobody expected."""

    thread: str
    cause: str


class _Signals:
    """Signals, and threads that broke, as items of a queue; handlers only put them there.

    After the first request to stop, a second one ends the process at once: the store survives that
    as it survives a power cut. A thread that ended by an exception stops the box the same way as a
    signal, so that the service manager starts a whole one.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[signal.Signals | _Broken] = queue.SimpleQueue()
        self._is_stopping = False
        self._old: dict[signal.Signals, object] = {}
        self._old_hook = threading.excepthook

    def __enter__(self) -> _Signals:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._old[number] = signal.signal(number, self._handle)
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
        threading.excepthook = self._thread_broke
        return self

    def __exit__(self, *_exc: object) -> None:
        threading.excepthook = self._old_hook
        faulthandler.unregister(signal.SIGUSR1)
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def next(self, timeout_s: float) -> signal.Signals | _Broken | None:
        """Return what came next, None after ``timeout_s`` without anything."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _thread_broke(self, what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread is not None else "?"
        cause = f"{what.exc_type.__name__}: {what.exc_value}"
        error = what.exc_value or what.exc_type()
        _log.error("thread %s ended", name, exc_info=(what.exc_type, error, what.exc_traceback))
        self._queue.put(_Broken(name, cause))

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        found = signal.Signals(number)
        if found is not signal.SIGHUP:
            if self._is_stopping:
                os._exit(EXIT_FAILED)
            self._is_stopping = True
        self._queue.put(found)
