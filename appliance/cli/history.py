"""``appliance history``: the conversations that the store keeps."""

from __future__ import annotations

import datetime
from argparse import Namespace

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE
from appliance.frontends.terminal.layout import clean, table


def list_conversations(arguments: Namespace, output: Output) -> int:
    """Print the conversations, the newest first."""
    found = connect(arguments, output).get("/api/conversations")
    if output.is_json:
        output.json(found)
        return EXIT_DONE
    rows = [
        [row["id"], _local(row["updated_at"]), str(row["n_turns"]), clean(row["title"])]
        for row in found["conversations"]
    ]
    if not rows:
        output.say("history_none")
    for line in table(rows):
        output.line(line)
    return EXIT_DONE


def show(arguments: Namespace, output: Output) -> int:
    """Print the questions and answers of one conversation."""
    found = connect(arguments, output).get(f"/api/conversations/{arguments.conversation}")
    if output.is_json:
        output.json(found)
        return EXIT_DONE
    for turn in found["turns"]:
        output.line(f">>> {clean(turn['question'])}")
        output.line(clean(turn["answer"]))
        output.line()
    return EXIT_DONE


def forget(arguments: Namespace, output: Output) -> int:
    """Delete conversations."""
    path = "" if arguments.all else f"/{arguments.conversation}"
    found = connect(arguments, output).delete(f"/api/conversations{path}")
    if output.is_json:
        output.json(found)
    else:
        output.say("history_forgotten", n=found["forgotten"])
    return EXIT_DONE


def _local(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds).astimezone()
    return moment.isoformat(sep=" ", timespec="minutes")[:16]
