"""Every command explains itself."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

import pytest

from appliance.cli.parser import build_parser


def leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from leaves(child, (*path, name))


COMMANDS = dict(leaves(build_parser()))


def test_the_commands_of_the_contract_exist() -> None:
    names = {" ".join(path) for path in COMMANDS}

    assert names >= {
        "serve",
        "ask",
        "chat",
        "status",
        *(f"kb {name}" for name in ("list", "show", "search", "remove", "reindex", "stats")),
        *(f"kb {name}" for name in ("wait", "check", "vacuum", "import")),
        *(f"models {name}" for name in ("list", "pull", "verify", "import", "remove")),
        *(f"config {name}" for name in ("check", "show", "reference")),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_has_help_an_example_of_itself_and_a_function(path: tuple[str, ...]) -> None:
    parser = COMMANDS[path]

    text = parser.format_help()

    assert f"examples:\n  appliance {' '.join(path)}" in text
    assert parser.description
    for action in parser._actions:
        assert action.help, f"{action.dest} has no help"
    module, _, function = parser.get_default("command").partition(":")
    assert callable(getattr(importlib.import_module(f"appliance.cli.{module}"), function))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_data_folder_is_taken_before_and_after_the_command(path: tuple[str, ...]) -> None:
    required = {
        "ask": ["q"],
        "kb show": ["d"],
        "kb search": ["q"],
        "kb remove": ["d"],
        "kb import": ["d"],
    }
    required |= {
        "kb reindex": ["--all"],
        "models import": ["f"],
        "models remove": ["m"],
        "models use": ["m"],
    }
    required |= {"backup verify": ["f"], "backup restore": ["f"]}
    required |= {"history show": ["c"], "history forget": ["--all"]}
    rest = [*path, *required.get(" ".join(path), [])]

    before = build_parser().parse_args(["--data", "/a", "--lang", "zh", *rest])
    after = build_parser().parse_args([*rest, "--data", "/a", "--lang", "zh"])

    assert str(before.data) == str(after.data) == "/a"
    assert before.lang == after.lang == "zh"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["ask"],
        ["kb"],
        ["kb", "search", "-k", "0", "x"],
        ["serve", "--port", "x"],
        ["kb", "reindex"],
        ["ask", "--strict", "--open", "x"],
        ["kb", "wait", "--timeout", "-1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args(argv)

    assert stopped.value.code == 2
    assert "usage: appliance" in capsys.readouterr().err
