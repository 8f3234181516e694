"""``appliance selftest``: how well the box answers from its own documents."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.client import RemoteError
from appliance.errors import EXIT_DONE

_POLL_S = 0.5


def selftest(arguments: Namespace, output: Output) -> int:
    """Run the test, show how far it is, and print the figures; Ctrl-C ends it."""
    client = connect(arguments, output)
    state = client.post("/api/selftest", {"questions": arguments.questions})
    try:
        with output.progress() as line:
            while state["is_running"]:
                done, total = state["done"], state["total"]
                line.show(output.label("selftest_progress", done=done, total=total))
                time.sleep(_POLL_S)
                state = client.get("/api/selftest")
    except BaseException:
        client.delete("/api/selftest")
        raise
    if state["error"] is not None:
        raise RemoteError(state["error"])
    if output.is_json:
        output.json(state)
        return EXIT_DONE
    _show(state["report"], output)
    if state["before"] is not None:
        output.say("selftest_before")
        _show(state["before"], output)
        if state["before"]["asked_of"] != state["report"]["asked_of"]:
            output.say("selftest_changed")
    return EXIT_DONE


def _show(report: Mapping[str, Any], output: Output) -> None:
    for lang, tally in report["by_lang"].items():
        output.say("selftest_lang", lang=lang, **tally)
