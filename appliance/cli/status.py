"""``appliance status``."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import Any

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.client import Client
from appliance.errors import EXIT_DONE, ApplianceError, BadRequestError

WATCH_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def status(arguments: Namespace, output: Output) -> int:
    """Print the state of the box, once or until Ctrl-C."""
    if arguments.watch and output.is_json:
        raise BadRequestError(field="--watch", allowed="without --json")
    if arguments.watch:
        return _watch(arguments, output)
    client = connect(arguments, output)
    found = client.get("/api/status")
    if output.is_json:
        output.json({**found, "url": client.url})
    else:
        output.line(_screen(found, output, client))
    return EXIT_DONE


def _watch(arguments: Namespace, output: Output) -> int:
    """Show the screen again and again; a box that restarts meanwhile is waited for."""
    is_terminal = sys.stdout.isatty()
    try:
        while True:
            try:
                client = connect(arguments, output)
                shown = _screen(client.get("/api/status"), output, client)
            except ApplianceError as error:
                from appliance.messages import explain

                shown = str(explain(error, "zh" if output.lang == "zh" else "en"))
            output.piece((_CLEAR if is_terminal else "") + shown + "\n")
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return EXIT_DONE


def _screen(found: dict[str, Any], output: Output, client: Client) -> str:
    from appliance.frontends.terminal.screens import status_screen

    return status_screen(found, output.lang, client.url)
