"""``appliance chat``: talk with the running daemon."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE


def chat(arguments: Namespace, output: Output) -> int:
    """Chat until goodbye."""
    from appliance.frontends.terminal.chat import Chat, Screen
    from appliance.frontends.terminal.frontend import converse
    from appliance.frontends.terminal.reading import make_reader

    client = connect(arguments, output)
    progress = output.progress()
    remember = not arguments.no_history
    talk = Chat(
        client,
        Screen(output.piece, progress.show, progress.clear, output.flow),
        lang=output.lang,
        inbox=str(arguments.data / "inbox"),
        remember=remember,
    )
    reader = make_reader(
        placeholder=output.label("chat_placeholder"),
        history=_history_file(arguments.data) if remember else None,
        completions=talk.completions,
        environ=os.environ,
    )
    converse(talk, reader, output.say)
    return EXIT_DONE


def _history_file(data: Path) -> Path | None:
    """Return where typed lines are kept: beside the store, None when that is not ours to write."""
    folder = data / "run"
    return folder / "chat-lines" if os.access(folder, os.W_OK) else None
