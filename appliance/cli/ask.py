"""``appliance ask``: one question, one cited answer."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE


def ask(arguments: Namespace, output: Output) -> int:
    """Ask, stream the answer, then print its sources. Ctrl-C stops the answer in the daemon too."""
    from appliance.frontends.terminal.turn import run_turn

    question = sys.stdin.read() if arguments.question == "-" else arguments.question
    client = connect(arguments, output)
    options: dict[str, str | bool | None] = {
        "collection": arguments.collection,
        "mode": arguments.mode,
        "conversation": arguments.conversation,
        "remember": not arguments.no_history,
        "client": "ask",
    }
    with output.progress() as progress:
        answer = run_turn(
            client,
            question,
            options,
            lang=output.lang,
            show=progress.show,
            piece=_hidden if output.is_json else _after(progress.clear, output.piece),
        )
    if output.is_json:
        output.json(_contract(answer))
        return EXIT_DONE
    output.line()
    from appliance.frontends.terminal import screens

    for notice in answer["notices"]:
        output.note(notice["text"])
    if answer["citations"]:
        output.line()
        output.line(screens.citations_screen(answer["citations"], output.lang))
    if arguments.verbose:
        output.note(screens.stats_line(answer, output.lang))
    return EXIT_DONE


def _contract(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "type"}


def _hidden(_text: str) -> None:
    """JSON comes whole at the end."""


def _after(first: Any, then: Any) -> Any:  # noqa: ANN401 - two plain callables
    def both(text: str) -> None:
        first()
        then(text)

    return both
