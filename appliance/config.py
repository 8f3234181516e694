"""Typed configuration: one YAML file, one frozen dataclass per section, defaults in code.

Every mistake in the file is reported at once, with its line, what is allowed and a suggestion.
``reference_markdown`` prints every key with its default and meaning; docs/configuration.md is that
text, and a test compares them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import yaml

from appliance.errors import ApplianceError, ConfigError
from appliance.system import files
from appliance.units import GIB, MIB

_log = logging.getLogger(__name__)

CONFIG_NAME = "appliance.yaml"
CHOICE_NAME = "model.json"
"""In the data folder: the model that ``appliance models use`` chose, and what it replaced."""

PLUGIN_NAME = "libggml-cann310b.so"


def _key(
    default: Any,  # noqa: ANN401 - a field default may be of any key type
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
) -> Any:  # noqa: ANN401 - dataclasses.field is typed as its default
    meta = {"doc": doc, "low": low, "high": high, "secret": secret}
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class ModelsConfig:
    """Which models answer and embed."""

    generation: str = _key(
        "qwen2.5-coder-0.5b-instruct",
        "Catalogue name or path of the GGUF that answers. `appliance models use` chooses another "
        "while the box runs; that choice holds until this key is changed.",
    )
    embedding: str = _key(
        "multilingual-e5-small", "Catalogue name or path of the GGUF that embeds passages."
    )
    directory: str | None = _key(
        None,
        "Where model files are kept; null means $APPLIANCE_MODELS, else ~/.cache/appliance/models.",
    )


@dataclass(frozen=True)
class EngineConfig:
    """How the models are run."""

    kind: Literal["llama", "openai"] = _key(
        "llama",
        "Who answers: llama runs the model here, openai asks the server of section 'remote'.",
    )
    embedding_kind: Literal["llama", "openai"] = _key(
        "llama", "Who embeds: llama, or openai for the server of section 'remote_embedding'."
    )
    device: Literal["auto", "cpu", "cann"] = _key(
        "auto", "auto uses the NPU when the plugin finds one and says in status why it did not."
    )
    plugin: str | None = _key(
        None,
        "Path of libggml-cann310b.so; null means the one beside the package, else below the "
        "installation's lib/appliance, else build/native of a source tree.",
    )
    n_ctx: int = _key(8192, "Context of one answer, in tokens.", low=512, high=131072)
    n_slots: int = _key(2, "Answers generated at the same time.", low=1, high=64)
    n_threads: int = _key(0, "CPU threads; 0 means one per core.", low=0, high=256)
    n_batch: int = _key(512, "Most tokens read in one engine step.", low=32, high=4096)
    max_queue: int = _key(32, "Questions that may wait; more are refused with a hint.", low=1)
    unload_after_s: float = _key(
        0.0,
        "Seconds without a question after which the memory of the model is given back; the next "
        "question waits until it is loaded again. 0 keeps it loaded.",
        low=0,
    )
    prompt_cache_bytes: int = _key(
        256 * MIB,
        "Most bytes in DATA/cache/prompts, where system messages that were read are kept across "
        "restarts; 0 keeps none.",
        low=0,
    )


@dataclass(frozen=True)
class RemoteConfig:
    """The OpenAI-compatible server that answers (vLLM, llama-server, another box)."""

    url: str | None = _key(
        None, "Its base, as OpenAI's clients take it: http://192.168.1.20:8000/v1"
    )
    model: str | None = _key(None, "Model to ask for; null takes the first that the server lists.")
    api_key_file: str | None = _key(None, "File with the key the server wants.")
    n_ctx: int | None = _key(
        None,
        "Its context, in tokens; null asks the server and else takes engine.n_ctx.",
        low=512,
        high=10_000_000,
    )
    n_parallel: int = _key(8, "Answers asked for at the same time.", low=1, high=1024)
    extensions: bool = _key(
        default=True,
        doc="Send fields that llama-server and vLLM know beyond OpenAI's; false for servers that "
        "refuse what they do not know.",
    )
    connect_timeout_s: float = _key(5.0, "Longest time to connect.", low=0.1, high=300)
    silence_timeout_s: float = _key(
        120.0, "Longest silence of the server, also before its first word.", low=1, high=3600
    )
    retry_s: float = _key(
        30.0,
        "How long a request goes on trying while the server is away or too busy; never once a word "
        "of the answer was shown.",
        low=0,
        high=3600,
    )


@dataclass(frozen=True)
class RemoteEmbeddingConfig:
    """The OpenAI-compatible server that embeds."""

    url: str | None = _key(None, "Its base; see remote.url.")
    model: str | None = _key(
        None, "Model to ask for; needed, because the vectors in the store belong to it."
    )
    api_key_file: str | None = _key(None, "File with the key the server wants.")
    query_prefix: str | None = _key(
        None, "Put before a question; many embedders want one ('query: ')."
    )
    passage_prefix: str | None = _key(None, "Put before a passage ('passage: ').")
    max_tokens: int = _key(512, "Longest text the model takes, in tokens.", low=64, high=1_000_000)
    batch: int = _key(32, "Texts sent in one request.", low=1, high=2048)
    connect_timeout_s: float = _key(5.0, "Longest time to connect.", low=0.1, high=300)
    silence_timeout_s: float = _key(60.0, "Longest silence of the server.", low=1, high=3600)
    retry_s: float = _key(
        10.0, "How long a request goes on trying while the server is away.", low=0, high=3600
    )


@dataclass(frozen=True)
class DeviceConfig:
    """How the NPU is used, and what helps to find out why something went wrong on it."""

    layout: Literal["auto", "dual", "nd"] = _key(
        "auto",
        "How weights lie in device memory: dual keeps a second copy that decodes faster, nd only "
        "one, auto takes dual when memory allows; status says which and why.",
    )
    timeout_s: float = _key(
        40.0,
        "Longest time the NPU may take for one step before it counts as lost; keep it below the "
        "service's WatchdogSec.",
        low=1,
        high=3600,
    )
    retry_s: float = _key(
        300.0,
        "After the NPU failed and the CPU took over, the NPU is tried again when the box is idle: "
        "after this many seconds, then after twice as many, and so on; 0 means never.",
        low=0,
        high=86400,
    )
    acl_log: Literal["off", "error", "warning", "info", "debug"] = _key(
        "off",
        "Least level of the vendor library's own log, on standard output; needs a restart.",
    )
    graph_dump: str | None = _key(
        None, "File that every new graph is appended to: name, operator, types and shapes."
    )
    sync_each_op: bool = _key(
        default=False,
        doc="Wait after each operator, so that a fault names the one that caused it; slow.",
    )


@dataclass(frozen=True)
class InboxConfig:
    """The folder that documents are dropped into."""

    directory: str | None = _key(None, "The inbox folder; null means DATA/inbox.")
    settle_s: float = _key(
        1.0, "A file is read after its size and time stood still this long.", low=0.0, high=600.0
    )
    rescan_s: float = _key(
        30.0, "Seconds between full comparisons of folder and store.", low=1.0, high=86400.0
    )


@dataclass(frozen=True)
class IngestConfig:
    """Limits for one document, so that a hostile or broken file costs only itself."""

    max_file_bytes: int = _key(200 * MIB, "Largest file that is read.", low=1)
    max_seconds: float = _key(300.0, "Longest time one file may take to parse.", low=1.0)
    max_memory_bytes: int = _key(GIB, "Most memory the parsing child may use.", low=64 * MIB)
    max_pages: int = _key(5000, "Most pages in one document.", low=1)
    max_inflated_bytes: int = _key(
        512 * MIB, "Most bytes an archive-like file may unpack to.", low=MIB
    )
    ocr: Literal["auto", "off"] = _key(
        "auto", "auto reads the text in pictures and scans when the extra 'ocr' is installed."
    )
    chunk_tokens: int = _key(
        256, "Aimed size of a passage in tokens of the embedder.", low=32, high=480
    )


@dataclass(frozen=True)
class AssistantConfig:
    """How questions are answered."""

    language: Literal["auto", "zh", "en"] = _key(
        "auto", "Language of answers; auto follows the question."
    )
    mode: Literal["strict", "open"] = _key(
        "strict", "strict answers only from documents; open may use the model's own knowledge."
    )
    evidence_tokens: int = _key(
        800, "Most tokens of passages put into one prompt.", low=100, high=8192
    )
    max_answer_tokens: int = _key(512, "Longest answer, in tokens.", low=16, high=8192)
    temperature: float = _key(0.1, "Sampling temperature; 0 always takes the best.", low=0, high=2)
    keep_history: bool = _key(
        default=True,
        doc="Keep conversations in the store; false keeps none beyond the open connection.",
    )


@dataclass(frozen=True)
class SearchConfig:
    """How passages are found."""

    rrf_k: int = _key(10, "Constant of reciprocal rank fusion.", low=1, high=1000)
    keyword_weight: float = _key(1.0, "Weight of the keyword arm.", low=0.0, high=10.0)
    dense_weight: float = _key(1.0, "Weight of the vector arm.", low=0.0, high=10.0)


@dataclass(frozen=True)
class HttpConfig:
    """The HTTP front end."""

    host: str = _key("127.0.0.1", "Address to listen on; any other than loopback needs a key.")
    port: int = _key(8080, "Port; 0 picks a free one.", low=0, high=65535)
    api_key_file: str | None = _key(None, "File with the key that API clients must send.")
    max_upload_bytes: int = _key(200 * MIB, "Largest upload.", low=1)


@dataclass(frozen=True)
class SerialConfig:
    """Serial lines for people and machines (docs/serial-protocol.md)."""

    ports: tuple[str, ...] = _key(
        (), "Lines to serve, e.g. [ttyS1, ttyUSB0@9600]: names in /dev, @BAUD if it is another."
    )
    baud: int = _key(115200, "Bits per second of a line.", low=1200, high=3000000)
    flow: Literal["none", "rtscts", "xonxoff"] = _key("none", "Flow control.")
    encoding: Literal["auto", "utf-8", "gb18030"] = _key(
        "auto", "Encoding of terminals; auto begins with UTF-8 and follows what is typed."
    )
    language: Literal["zh", "en"] = _key("zh", "Language of the screen.")
    pin: str | None = _key(
        None, "What a person must type, and a machine send with hello, first.", secret=True
    )
    idle_s: float = _key(
        300.0, "A person's chat is forgotten after this long without a key.", low=5.0, high=86400.0
    )


@dataclass(frozen=True)
class KioskConfig:
    """The page at ``/``."""

    idle_s: float = _key(
        90.0,
        "Seconds without a touch after which the page asks whether the visitor is still there; "
        "0 means never.",
        low=0.0,
        high=86400.0,
    )
    notice_s: float = _key(
        15.0, "Seconds that the question stays before everything is wiped.", low=1.0, high=600.0
    )


@dataclass(frozen=True)
class LogConfig:
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = _key("info", "Least level written.")
    language: Literal["auto", "zh", "en"] = _key(
        "auto", "Language of messages to the owner; auto follows the locale."
    )


@dataclass(frozen=True)
class Config:
    """Everything the daemon is told; ``data`` is the folder it lives in."""

    data: Path
    models: ModelsConfig = field(default_factory=ModelsConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    remote_embedding: RemoteEmbeddingConfig = field(default_factory=RemoteEmbeddingConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    inbox: InboxConfig = field(default_factory=InboxConfig)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    assistant: AssistantConfig = field(default_factory=AssistantConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    serial: SerialConfig = field(default_factory=SerialConfig)
    kiosk: KioskConfig = field(default_factory=KioskConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def database(self) -> Path:
        """The one SQLite file."""
        return self.data / "appliance.db"

    @property
    def inbox_dir(self) -> Path:
        """The folder that is watched."""
        return (
            Path(self.inbox.directory).expanduser() if self.inbox.directory else self.data / "inbox"
        )

    @property
    def runtime_file(self) -> Path:
        """Where a running daemon says how to reach it; removed at a clean stop."""
        return self.data / "run" / "daemon.json"


SECTIONS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Config) if f.name != "data")


def models_dir(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the model cache: the configured one, else ``$APPLIANCE_MODELS``, else the user's."""
    chosen = config.models.directory or environ.get("APPLIANCE_MODELS")
    return Path(chosen).expanduser() if chosen else Path("~/.cache/appliance/models").expanduser()


def plugin_path(config: Config) -> Path | None:
    """Return the NPU plugin's library, None when there is none.

    The configured one, else the first of: beside the package, below the installation's
    ``lib/appliance``, where ``make native`` leaves it in a source tree.
    """
    if config.engine.plugin is not None:
        return Path(config.engine.plugin).expanduser()
    package = Path(__file__).resolve().parent
    places = [
        package / PLUGIN_NAME,
        Path(sys.prefix) / "lib" / "appliance" / PLUGIN_NAME,
        package.parent / "build" / "native" / PLUGIN_NAME,
    ]
    return next((place for place in places if place.is_file()), None)


def load(data: Path) -> Config:
    """Read ``DATA/appliance.yaml``; a missing file means all defaults.

    A model chosen with ``choose_model`` takes the place of ``models.generation``, until that key
    is changed in the file.

    Raises:
        ConfigError: with every problem found in the file.
    """
    written = _written(data)
    chosen = _chosen(data, written.models.generation)
    return replace(written, models=replace(written.models, generation=chosen))


def choose_model(data: Path, name: str) -> None:
    """Answer with ``name`` from the next start on, whatever ``DATA/appliance.yaml`` says now.

    Raises:
        ConfigError: see ``load``; or the choice cannot be written.
    """
    path = data / CHOICE_NAME
    instead_of = _written(data).models.generation
    try:
        data.mkdir(parents=True, exist_ok=True)
        files.write_whole(path, json.dumps({"generation": name, "instead_of": instead_of}).encode())
    except OSError as error:
        cause = error.strerror or str(error)
        raise ConfigError("file_unwritable", path=str(path), cause=cause) from error


def _chosen(data: Path, written: str) -> str:
    """Return the model that answers: the one chosen instead of what is written, if any."""
    path = data / CHOICE_NAME
    try:
        said = json.loads(path.read_bytes())
        return str(said["generation"]) if said["instead_of"] == written else written
    except FileNotFoundError:
        return written
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s is not used: %s", path, error)
        return written


def _written(data: Path) -> Config:
    path = data / CONFIG_NAME
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Config(data=data)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("config_unreadable", path=str(path), cause=str(error)) from error
    return parse(text, data)


def parse(text: str, data: Path) -> Config:
    """Return the configuration written in ``text``.

    Raises:
        ConfigError: see ``load``.
    """
    path = str(data / CONFIG_NAME)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = ConfigError(
            "config_syntax",
            line=mark.line + 1 if mark else 1,
            cause=str(getattr(error, "problem", None) or error).splitlines()[0],
        )
        raise ConfigError(problems=(problem,), path=path) from error
    problems: list[ApplianceError] = []
    sections: dict[str, Any] = {}
    for key, key_line, node in _entries(root, "", problems):
        if key not in SECTIONS:
            problems.append(_unknown(key, SECTIONS, key_line))
            continue
        section_type = get_type_hints(Config)[key]
        sections[key] = _section(section_type, key, node, problems)
    config = Config(data=data, **sections)
    problems += _missing_servers(config)
    if problems:
        raise ConfigError(problems=tuple(problems), path=path)
    return config


def _missing_servers(config: Config) -> list[ApplianceError]:
    """Return what the configuration wants to ask a server for without saying which."""
    needed = {
        "remote.url": (config.engine.kind, config.remote.url),
        "remote_embedding.url": (config.engine.embedding_kind, config.remote_embedding.url),
        "remote_embedding.model": (config.engine.embedding_kind, config.remote_embedding.model),
    }
    problems: list[ApplianceError] = [
        ConfigError("config_server_missing", key=key)
        for key, (kind, value) in needed.items()
        if kind == "openai" and value is None
    ]
    problems += [
        ConfigError("config_bad_url", key=f"{name}.url", value=url)
        for name, url in (
            ("remote", config.remote.url),
            ("remote_embedding", config.remote_embedding.url),
        )
        if url is not None and not is_server_url(url)
    ]
    return problems


def is_server_url(url: str) -> bool:
    """Whether ``url`` is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _section(
    section_type: type, name: str, node: yaml.Node, problems: list[ApplianceError]
) -> object:
    hints = get_type_hints(section_type)
    fields = {f.name: f for f in dataclasses.fields(section_type)}
    values: dict[str, Any] = {}
    for key, line, value_node in _entries(node, name, problems):
        if key not in fields:
            problems.append(_unknown(f"{name}.{key}", [f"{name}.{k}" for k in fields], line))
            continue
        value = _construct(value_node)
        checked = _check(value, hints[key], fields[key])
        if checked is _BAD:
            problems.append(
                ConfigError(
                    "config_bad_value",
                    line=value_node.start_mark.line + 1,
                    key=f"{name}.{key}",
                    value=repr(value),
                    allowed=describe(hints[key], fields[key]),
                )
            )
        else:
            values[key] = checked
    return section_type(**values)


def _entries(
    node: yaml.Node | None, name: str, problems: list[ApplianceError]
) -> list[tuple[str, int, yaml.Node]]:
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
        return []
    if not isinstance(node, yaml.MappingNode):
        problems.append(
            ConfigError(
                "config_bad_value",
                line=node.start_mark.line + 1,
                key=name or CONFIG_NAME,
                value=repr(_construct(node)),
                allowed="key: value",
            )
        )
        return []
    seen: set[str] = set()
    found: list[tuple[str, int, yaml.Node]] = []
    for key_node, value_node in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        full = f"{name}.{key}" if name else key
        if key in seen:
            problems.append(ConfigError("config_duplicate_key", line=line, key=full))
            continue
        seen.add(key)
        found.append((key, line, value_node))
    return found


def _construct(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError:
        return getattr(node, "value", None)
    finally:
        loader.dispose()


_BAD = object()


def _check(value: object, hint: Any, spec: dataclasses.Field[Any]) -> object:  # noqa: ANN401
    options = _options(hint)
    for option in options:
        if get_origin(option) is Literal:
            if value in get_args(option) and not isinstance(value, bool):
                return value
        elif option is type(None):
            if value is None:
                return None
        elif option is bool:
            if isinstance(value, bool):
                return value
        elif option is float:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                number = float(value)
                return number if _in_range(number, spec) else _BAD
        elif option is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return value if _in_range(value, spec) else _BAD
        elif option is str and isinstance(value, str) and value:
            return value
        elif get_origin(option) is tuple and isinstance(value, list):
            # The one kind of list there is: texts.
            is_sound = all(isinstance(item, str) and item for item in value)
            return tuple(value) if is_sound else _BAD
    return _BAD


def _in_range(value: float, spec: dataclasses.Field[Any]) -> bool:
    low, high = spec.metadata.get("low"), spec.metadata.get("high")
    # Written so that NaN, which compares false with everything, is out of range.
    return (low is None or value >= low) and (high is None or value <= high) and value == value


def _options(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def describe(hint: Any, spec: dataclasses.Field[Any]) -> str:  # noqa: ANN401
    """Return what a key allows, e.g. ``a whole number from 1 to 64``."""
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    words = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            words.append(", ".join(str(v) for v in get_args(option)))
        elif option is type(None):
            words.append("null")
        elif get_origin(option) is tuple:
            words.append("a list of texts")
        else:
            words.append(names[option])
    text = " or ".join(words)
    low, high = spec.metadata.get("low"), spec.metadata.get("high")
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    if low is not None:
        return f"{text}, {low} or more"
    return text


def _unknown(key: str, allowed: tuple[str, ...] | list[str], line: int) -> ConfigError:
    close = difflib.get_close_matches(key, allowed, n=1, cutoff=0.4)
    return ConfigError(
        "config_unknown_key",
        line=line,
        key=key,
        allowed=", ".join(allowed),
        suggestion=close[0] if close else allowed[0],
    )


def to_yaml(config: Config, *, defaults: bool = False) -> str:
    """Return the configuration in force as YAML, secrets masked.

    Args:
        config: what to print.
        defaults: print the built-in defaults instead.
    """
    shown = Config(data=config.data) if defaults else config
    tree: dict[str, dict[str, object]] = {}
    for name in SECTIONS:
        section = getattr(shown, name)
        tree[name] = {
            f.name: "***"
            if f.metadata["secret"] and getattr(section, f.name)
            else getattr(section, f.name)
            for f in dataclasses.fields(section)
        }
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def reference_markdown() -> str:
    """Return docs/configuration.md: every key, what it allows, its default and meaning."""
    lines = [
        "# Configuration",
        "",
        f"`{CONFIG_NAME}` in the data folder; every key is optional. `appliance config check`",
        "reads it, `appliance config show` prints what is in force. This page is made from code by",
        "`appliance config reference`; a test compares them.",
    ]
    hints = get_type_hints(Config)
    for name in SECTIONS:
        section = hints[name]
        lines += ["", f"## {name}", "", str(section.__doc__).strip(), ""]
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        section_hints = get_type_hints(section)
        for f in dataclasses.fields(section):
            default = (
                "null"
                if f.default is None
                else str(f.default).lower()
                if isinstance(f.default, bool)
                else str(f.default)
            )
            lines.append(
                f"| `{name}.{f.name}` | `{default}` | {describe(section_hints[f.name], f)} "
                f"| {f.metadata['doc']} |"
            )
    return "\n".join(lines) + "\n"
