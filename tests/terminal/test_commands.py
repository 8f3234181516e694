from __future__ import annotations

import pytest

from appliance.frontends.terminal.commands import (
    COMMANDS,
    Ask,
    Command,
    Unknown,
    completions,
    parse,
    shown,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", None),
        ("   ", None),
        ("图书馆几点关门？", Ask("图书馆几点关门？")),
        ("/help", Command("help", "")),
        ("/HELP", Command("help", "")),
        ("／帮助", Command("help", "")),
        ("/帮助", Command("help", "")),
        ("/?", Command("help", "")),
        ("/use school", Command("use", "school")),
        ("／使用\u3000三年级 语文", Command("use", "三年级 语文")),
        ("/open 2", Command("open", "2")),
        ("/打开2", Command("open", "2")),
        ("/退出", Command("bye", "")),
        ("/quit", Command("bye", "")),
        ("/etc/fstab is what?", Ask("/etc/fstab is what?")),
        ("/3 of it", Ask("/3 of it")),
        ("/ what", Ask("/ what")),
        ("/hlep", Unknown("/hlep", "/help")),
        ("/帮我", Unknown("/帮我", "/帮助")),
        ("/zzzz", Unknown("/zzzz", "/help")),
    ],
)
def test_parse(line: str, expected: object) -> None:
    assert parse(line) == expected


def test_every_command_has_a_chinese_name() -> None:
    for name, aliases in COMMANDS.items():
        assert not aliases[0].isascii()
        assert shown(name, "zh").startswith(f"/{aliases[0]}")
        assert shown(name, "en").startswith(f"/{name}")


def test_no_two_commands_share_a_name() -> None:
    names = [alias for name, aliases in COMMANDS.items() for alias in (name, *aliases)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/ver", ["/verbose"]),
        ("／帮", ["／帮助"]),
        ("/ST", ["/strict", "/status"]),
        ("/use ", ["/use 三年级 语文", "/use school"]),
        ("/使用 三", ["/使用 三年级 语文"]),
        ("/use x", []),
        ("/open s", []),
        ("school", []),
        ("", []),
    ],
)
def test_completions(text: str, lines: list[str]) -> None:
    assert completions(text, lambda: ["三年级 语文", "school"]) == lines


def test_collections_are_asked_for_only_after_use() -> None:
    def fail() -> list[str]:
        raise AssertionError

    assert completions("/us", fail) == ["/use"]
    assert completions("/open 1", fail) == []
