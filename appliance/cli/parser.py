"""Every command with its options, help and examples; ``command`` names what runs it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias

import appliance

DEFAULT_DATA = "~/appliance"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    shared = _shared(suppress=True)
    parser = argparse.ArgumentParser(
        prog="appliance",
        description="Offline chat and cited answers from your own documents.",
        epilog=_examples("appliance serve --data ~/box", 'appliance ask "图书馆周末几点关门？"'),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_shared(suppress=False)],
    )
    parser.add_argument("--version", action="version", version=f"appliance {appliance.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_main(commands, shared)
    _add_kb(_group(commands, "kb", "the knowledge base: list, search, remove, ...", shared), shared)
    _add_models(
        _group(commands, "models", "the model files: list, pull, import, ...", shared), shared
    )
    _add_config(_group(commands, "config", "check and show the configuration", shared), shared)
    _add_backup(
        _group(commands, "backup", "save the box into one file, check it, put it back", shared),
        shared,
    )
    _add_history(_group(commands, "history", "conversations that are kept", shared), shared)
    return parser


def _add_main(commands: Commands, shared: argparse.ArgumentParser) -> None:
    serve = _command(
        commands,
        "serve",
        "run the daemon until it is told to stop",
        "serve:serve",
        shared,
        "appliance serve --data ~/box",
        "appliance serve --data /tmp/box --port 0 --ready-file /tmp/box.json",
    )
    serve.add_argument("--port", type=_port, help="port instead of the configured one; 0: any free")
    serve.add_argument(
        "--ready-file", type=Path, metavar="FILE", help='write {"url", "pid"} there when ready'
    )
    serve.add_argument(
        "--safe", action="store_true", help="start without models: front ends and search alone"
    )
    serve.add_argument(
        "--safe-after",
        type=int,
        default=0,
        metavar="N",
        help="do so after N starts in a row that were killed before the box was steady; 0: never",
    )

    ask = _command(
        commands,
        "ask",
        "ask one question and print the cited answer",
        "ask:ask",
        shared,
        'appliance ask "How long is the warranty?"',
        'appliance ask --json --collection school "校服什么时候穿？"',
    )
    ask.add_argument("question", metavar="QUESTION", help="the question; - reads it from the input")
    ask.add_argument("--collection", metavar="C", help="answer from this folder of the inbox alone")
    mode = ask.add_mutually_exclusive_group()
    mode.add_argument(
        "--strict", dest="mode", action="store_const", const="strict", help="only from documents"
    )
    mode.add_argument(
        "--open", dest="mode", action="store_const", const="open", help="the model may add its own"
    )
    ask.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    ask.add_argument("--no-history", action="store_true", help="keep nothing of this question")
    ask.add_argument("--verbose", action="store_true", help="print figures below the answer")
    _json(ask)

    chat = _command(
        commands,
        "chat",
        "talk with the box; /help lists the commands inside",
        "chat:chat",
        shared,
        "appliance chat --data ~/box",
        "appliance chat --no-history",
    )
    chat.add_argument("--no-history", action="store_true", help="keep nothing of this chat")

    selftest = _command(
        commands,
        "selftest",
        "question the box about its own documents: found, refused, invented",
        "selftest:selftest",
        shared,
        "appliance selftest",
        "appliance selftest --questions 50 --json",
    )
    selftest.add_argument(
        "--questions", type=_count, default=20, metavar="N", help="of each kind (20)"
    )
    _json(selftest)

    status = _command(
        commands,
        "status",
        "one screen: state, models, device, memory, queue",
        "status:status",
        shared,
        "appliance status",
        "appliance status --json",
        "appliance status --watch",
    )
    status.add_argument("--watch", action="store_true", help="show it again every two seconds")
    _json(status)

    bench = _command(
        commands,
        "bench",
        "measure this box: first token, tokens/s, embedding, search; the box must be stopped",
        "bench:bench",
        shared,
        "appliance bench",
        "appliance bench --quick --no-keep",
    )
    bench.add_argument("--quick", action="store_true", help="leave out the F16 comparison")
    bench.add_argument(
        "--no-keep", action="store_true", help="keep the old baseline and the old plan"
    )
    _json(bench)

    doctor = _command(
        commands,
        "doctor",
        "check the box; says what is wrong and what to do about it",
        "doctor:doctor",
        shared,
        "appliance doctor",
        "appliance doctor --full --bundle support.tar.gz",
    )
    doctor.add_argument("--full", action="store_true", help="also read every byte of the models")
    doctor.add_argument("--verbose", action="store_true", help="also show checks that do not apply")
    doctor.add_argument(
        "--bundle",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a support file without documents, questions or keys",
    )
    _json(doctor)


def _add_kb(commands: Commands, shared: argparse.ArgumentParser) -> None:
    listing = _command(
        commands,
        "list",
        "every file with its state, and why it failed",
        "kb:list_files",
        shared,
        "appliance kb list",
    )
    _json(listing)

    show = _command(
        commands, "show", "the text of one document", "kb:show", shared, "appliance kb show faq.txt"
    )
    show.add_argument("document", metavar="DOCUMENT", help="its path as listed, name, or number")
    _json(show)

    search = _command(
        commands,
        "search",
        "find passages without asking the model",
        "kb:search",
        shared,
        'appliance kb search "GB/T 7714-2015"',
        "appliance kb search --json -k 3 教案",
        "appliance kb search jiaoan --type pdf,docx --since 2026-09-01 --explain",
    )
    search.add_argument("query", metavar="QUERY", help="words, codes or a question")
    search.add_argument("-k", type=_count, default=8, metavar="N", help="passages to show (8)")
    search.add_argument("--collection", metavar="C", help="search this folder of the inbox alone")
    search.add_argument("--type", metavar="T", help="only these formats, e.g. pdf,docx")
    search.add_argument("--path", metavar="P", help="only paths with this in them, or like 'a/*'")
    search.add_argument("--since", metavar="DAY", help="only files changed on that day or later")
    search.add_argument("--until", metavar="DAY", help="only files changed on that day or earlier")
    search.add_argument(
        "--explain", action="store_true", help="show terms, weights, and each arm's rank and score"
    )
    _json(search)

    remove = _command(
        commands,
        "remove",
        "forget a document's text; the file stays in the folder",
        "kb:remove",
        shared,
        "appliance kb remove old/manual.pdf",
    )
    remove.add_argument("document", metavar="DOCUMENT", help="its path as listed, name, or number")
    _json(remove)

    reindex = _command(
        commands,
        "reindex",
        "read a document again, or all",
        "kb:reindex",
        shared,
        "appliance kb reindex manual.pdf",
        "appliance kb reindex --all",
    )
    which = reindex.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "document", metavar="DOCUMENT", nargs="?", help="its path as listed, or name"
    )
    which.add_argument("--all", action="store_true", help="every file, with new vectors")
    which.add_argument(
        "--vectors", action="store_true", help="new vectors alone, after a change of the embedder"
    )
    _json(reindex)

    stats = _command(
        commands, "stats", "counts, states and failures", "kb:stats", shared, "appliance kb stats"
    )
    _json(stats)

    wait = _command(
        commands,
        "wait",
        "wait until every document is read",
        "kb:wait",
        shared,
        "appliance kb wait --timeout 600",
    )
    wait.add_argument("--timeout", type=_seconds, metavar="S", help="fail after S seconds")
    _json(wait)

    vacuum = _command(
        commands,
        "vacuum",
        "give the space of deleted documents back to the disk",
        "kb:vacuum",
        shared,
        "appliance kb vacuum",
    )
    _json(vacuum)

    importing = _command(
        commands,
        "import",
        "copy the documents of a stick or folder into the inbox",
        "kb:import_folder",
        shared,
        "appliance kb import /media/usb",
        "appliance kb import /media/usb/lessons --max-files 20000",
    )
    importing.add_argument("folder", type=Path, metavar="DIR", help="it is only read")
    importing.add_argument(
        "--max-files", type=int, default=5000, metavar="N", help="refuse more documents (5000)"
    )
    _json(importing)

    check = _command(
        commands,
        "check",
        "look for inconsistencies in the store",
        "kb:check",
        shared,
        "appliance kb check",
    )
    _json(check)


def _add_models(commands: Commands, shared: argparse.ArgumentParser) -> None:
    listing = _command(
        commands,
        "list",
        "what is here and what can be pulled",
        "models:list_models",
        shared,
        "appliance models list",
    )
    _json(listing)

    pull = _command(
        commands,
        "pull",
        "fetch models of the catalogue; goes on where it was stopped",
        "models:pull",
        shared,
        "appliance models pull qwen2.5-coder-0.5b-instruct",
        "appliance models pull --starter",
    )
    pull.add_argument("names", metavar="NAME", nargs="*", help="catalogue names")
    pull.add_argument(
        "--starter", "--starters", action="store_true", help="the models a fresh box starts with"
    )
    pull.add_argument(
        "--source", choices=("hub", "modelscope", "index"), help="try this kind of source alone"
    )
    _json(pull)

    verify = _command(
        commands,
        "verify",
        "read a model's file whole and compare its SHA-256",
        "models:verify",
        shared,
        "appliance models verify",
        "appliance models verify multilingual-e5-small",
    )
    verify.add_argument(
        "names", metavar="NAME", nargs="*", help="models; all that are here if none"
    )
    _json(verify)

    importing = _command(
        commands,
        "import",
        "take in a GGUF file after checking it",
        "models:import_model",
        shared,
        "appliance models import /media/usb/model.gguf",
        "appliance models import model.gguf --name my-model",
    )
    importing.add_argument("file", type=Path, metavar="FILE", help="a .gguf file")
    importing.add_argument("--name", help="what to call it")
    _json(importing)

    use = _command(
        commands,
        "use",
        "answer with another model, also while the box runs",
        "models:use",
        shared,
        "appliance models use smollm2-135m-instruct",
    )
    use.add_argument("name", metavar="NAME", help="a model that is here, or the path of a GGUF")
    _json(use)

    remove = _command(
        commands,
        "remove",
        "delete a model's file",
        "models:remove",
        shared,
        "appliance models remove smollm2-135m-instruct",
    )
    remove.add_argument("names", metavar="NAME", nargs="+", help="models to delete")
    _json(remove)


def _add_config(commands: Commands, shared: argparse.ArgumentParser) -> None:
    check = _command(
        commands,
        "check",
        "read the configuration and report every mistake",
        "config:check",
        shared,
        "appliance config check --data ~/box",
    )
    _json(check)
    show = _command(
        commands,
        "show",
        "print what is in force, secrets masked",
        "config:show",
        shared,
        "appliance config show",
        "appliance config show --defaults",
    )
    show.add_argument("--defaults", action="store_true", help="print the built-in defaults")
    _command(
        commands,
        "reference",
        "print every key with its meaning, as Markdown",
        "config:reference",
        shared,
        "appliance config reference > docs/configuration.md",
    )


def _add_backup(commands: Commands, shared: argparse.ArgumentParser) -> None:
    create = _command(
        commands,
        "create",
        "save store, configuration and documents; the box may run meanwhile",
        "backup:create",
        shared,
        "appliance backup create",
        "appliance backup create --to /media/usb --keep 3",
    )
    create.add_argument("--to", type=Path, metavar="DIR", help="folder or stick (DATA/backups)")
    create.add_argument(
        "--without-documents", action="store_true", help="leave the inbox out: store and settings"
    )
    create.add_argument(
        "--keep", type=int, default=7, metavar="N", help="backups to keep there (7); 0: all"
    )
    _json(create)
    listing = _command(
        commands,
        "list",
        "the backups that are here",
        "backup:list_backups",
        shared,
        "appliance backup list --from /media/usb",
    )
    listing.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="another folder")
    _json(listing)
    verify = _command(
        commands,
        "verify",
        "read a backup whole and compare every digest",
        "backup:verify",
        shared,
        "appliance backup verify /media/usb/appliance-20270105-120000.tar",
    )
    verify.add_argument("file", type=Path, metavar="FILE", help="the backup")
    _json(verify)
    restore = _command(
        commands,
        "restore",
        "put a backup in place, also on another board; the box must be stopped",
        "backup:restore",
        shared,
        "appliance backup restore /media/usb/appliance-20270105-120000.tar",
        "appliance backup restore --replace FILE",
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="the backup")
    restore.add_argument(
        "--replace", action="store_true", help="move what is there aside and restore"
    )
    _json(restore)


def _add_history(commands: Commands, shared: argparse.ArgumentParser) -> None:
    listing = _command(
        commands,
        "list",
        "the conversations that are kept",
        "history:list_conversations",
        shared,
        "appliance history list",
    )
    _json(listing)
    show = _command(
        commands,
        "show",
        "the questions and answers of one conversation",
        "history:show",
        shared,
        "appliance history show 3f2c...",
    )
    show.add_argument("conversation", metavar="ID", help="its number as listed")
    _json(show)
    forget = _command(
        commands,
        "forget",
        "delete a conversation, or all",
        "history:forget",
        shared,
        "appliance history forget --all",
    )
    which = forget.add_mutually_exclusive_group(required=True)
    which.add_argument("conversation", metavar="ID", nargs="?", help="its number as listed")
    which.add_argument("--all", action="store_true", help="every conversation")
    _json(forget)


# --------------------------------------------------------------------------------------------------
# pieces


def _shared(*, suppress: bool) -> argparse.ArgumentParser:
    """Return the options that every command takes, before or after its name."""
    shared = argparse.ArgumentParser(add_help=False)

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    shared.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=default(Path(os.environ.get("APPLIANCE_DATA") or DEFAULT_DATA).expanduser()),
        help=f"data folder ($APPLIANCE_DATA, else {DEFAULT_DATA})",
    )
    shared.add_argument(
        "--lang", choices=("zh", "en"), default=default(None), help="language of messages"
    )
    shared.add_argument(
        "--debug", action="store_true", default=default(value=False), help="show tracebacks"
    )
    return shared


def _group(
    commands: Commands, name: str, help_text: str, shared: argparse.ArgumentParser
) -> Commands:
    group = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=f"appliance {name} COMMAND --help shows options and examples.",
        parents=[shared],
    )
    return group.add_subparsers(metavar="COMMAND", required=True)


def _command(
    commands: Commands,
    name: str,
    help_text: str,
    function: str,
    shared: argparse.ArgumentParser,
    *examples: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=_examples(*examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    parser.set_defaults(command=function)
    return parser


def _examples(*lines: str) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is 0 to 65535")
    return port


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 100:
        raise argparse.ArgumentTypeError("1 to 100")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError("0 or more seconds")
    return seconds
