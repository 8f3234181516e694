"""Every code used in the package has a sentence in both languages, with the same facts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from appliance import errors
from appliance.errors import ApplianceError, ConfigError
from appliance.messages import SENTENCES, explain, fields_of, sentence
from appliance.messages.screen import LABELS

PACKAGE = Path(__file__).parent.parent / "appliance"
TREES = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}

ERROR_CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, ApplianceError)
} | {"RemoteError"}

# What takes a code as its first (or, for report and fail_file, second) argument.
FIRST = {"sentence", "_notice"} | ERROR_CLASSES
SECOND = {"report", "fail_file"}


def called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def texts_of(argument: ast.expr) -> list[str]:
    """Return the texts an argument may be: a constant, both arms of a choice, a prefix."""
    if isinstance(argument, ast.IfExp):
        return texts_of(argument.body) + texts_of(argument.orelse)
    if isinstance(argument, ast.JoinedStr):
        return texts_of(argument.values[0])
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    return []


def codes_used() -> dict[str, str]:
    found: dict[str, str] = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = called(node)
            index = 0 if name in FIRST else 1 if name in SECOND else None
            if index is None or len(node.args) <= index:
                continue
            for text in texts_of(node.args[index]):
                found[text] = f"{path.relative_to(PACKAGE)}:{node.lineno}"
    for name in ERROR_CLASSES - {"RemoteError"}:
        found.setdefault(getattr(errors, name).default_code, f"errors.py:{name}")
    return found


def labels_used() -> dict[str, str]:
    found: dict[str, str] = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) in ("say", "_say", "label", "tell"):
                for text in texts_of(node.args[0]) if node.args else []:
                    found[text] = f"{path.relative_to(PACKAGE)}:{node.lineno}"
    return found


def test_every_code_used_has_a_sentence() -> None:
    used = codes_used()

    missing = {code: where for code, where in used.items() if code not in SENTENCES}

    assert len(used) > 60
    assert missing == {}


@pytest.mark.parametrize("code", sorted(SENTENCES))
def test_both_languages_say_the_same_facts(code: str) -> None:
    entry = SENTENCES[code]

    assert entry.en
    assert re.search(r"[\u4e00-\u9fff]", entry.zh)
    assert bool(entry.en_next) == bool(entry.zh_next)
    assert fields_of(entry.en) == fields_of(entry.zh)
    assert fields_of(entry.en_next) == fields_of(entry.zh_next)


@pytest.mark.parametrize("code", sorted(LABELS))
def test_both_languages_of_a_label_use_the_same_fields(code: str) -> None:
    english, chinese = LABELS[code]

    assert english
    assert chinese
    assert {name.split(":")[0] for name in fields_of(english)} == fields_of(chinese)


def test_every_label_used_exists() -> None:
    used = labels_used()

    # Labels put together from a word ("file_" + state) are checked by their prefix.
    missing = {
        code: where
        for code, where in used.items()
        if code not in LABELS and not any(label.startswith(code) for label in LABELS)
    }

    assert len(used) > 60
    assert missing == {}


def test_every_label_is_used() -> None:
    used = labels_used()
    prefixes = tuple(code for code in used if code.endswith("_"))
    source = "".join(path.read_text("utf-8") for path in TREES if path.name != "screen.py")

    unused = [
        code
        for code in LABELS
        if code not in used and not code.startswith(prefixes) and f'"{code}"' not in source
    ]

    assert unused == []


def test_fact_that_is_missing_does_not_hide_the_sentence() -> None:
    assert "?" in sentence("port_in_use", "en", {"host": "127.0.0.1"}).message


def test_unknown_code_says_so() -> None:
    assert "no_such_code" in sentence("no_such_code", "zh").message


def test_config_error_lists_every_problem() -> None:
    error = ConfigError(
        path="a.yaml",
        problems=(
            ConfigError("config_duplicate_key", line=3, key="http.port"),
            ConfigError("config_syntax", line=9, cause="x"),
        ),
    )

    message = explain(error, "zh").message

    assert "第 3 行" in message
    assert "第 9 行" in message
