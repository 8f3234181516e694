"""``appliance status``."""

from __future__ import annotations

from argparse import Namespace

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE


def status(arguments: Namespace, output: Output) -> int:
    """Print the state of the box."""
    client = connect(arguments, output)
    found = client.get("/api/status")
    if output.is_json:
        output.json({**found, "url": client.url})
    else:
        from appliance.frontends.terminal.screens import status_screen

        output.line(status_screen(found, output.lang, client.url))
    return EXIT_DONE
