"""Whole transcripts of a chat with a box in this process."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from appliance.frontends.terminal.chat import Chat, Screen
from appliance.frontends.terminal.flow import Flow
from appliance.frontends.terminal.frontend import converse
from appliance.frontends.terminal.reading import PlainReader, read_message
from appliance.messages.screen import say
from tests.conftest import Inside

LIBRARY = "图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。\n"
MANUAL = "# Warranty\n\nThe RiverBoard 310 has a warranty of 24 months.\n"


def transcript(inside: Inside, typed: str, *, lang: str = "zh", remember: bool = True) -> str:
    out = io.StringIO()
    chat = Chat(
        inside.client,
        Screen(out.write, lambda _text: None, lambda: None, lambda: Flow(None, is_plain=True)),
        lang=lang,
        inbox="/box/inbox",
        remember=remember,
    )
    reader = PlainReader(io.StringIO(typed), out)
    converse(chat, reader, lambda code: out.write(say(code, lang) + "\n") and None)
    return out.getvalue()


def test_question_shows_evidence_then_answer_then_sources(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]

    said = transcript(inside, "图书馆周末几点关门？\n")

    assert said == (
        "请就您的文档提问。/帮助 查看命令，Ctrl-C 停止回答，Ctrl-D 离开。\n"
        "正在阅读 1 个段落：\n"
        "  [1] 图书馆.txt, 第 1 行\n"
        "\n"
        "下午五点关门[1]。\n"
        "\n"
        "来源：\n"
        "  [1] 图书馆.txt, 第 1 行\n"
        "      “图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。”\n"
        "再见。\n"
    )


def test_open_shows_the_cited_passage(inside: Inside) -> None:
    inside.put("manual.md", MANUAL)
    inside.engine.answers = ["24 months [1]."]

    said = transcript(inside, "What is the warranty?\n/open 1\n/open 9\n", lang="en")

    assert "--- manual.md, Warranty\nThe RiverBoard 310 has a warranty of 24 months.\n---" in said
    assert "There is no source [9] in the last answer." in said


def test_follow_up_goes_on_with_the_conversation(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)

    transcript(inside, "图书馆周末几点关门？\n那周五呢？\n")

    assert len(inside.client.get("/api/conversations")["conversations"]) == 1
    assert "图书馆周末几点关门" in inside.engine.prompts[-1]


def test_privacy_forgets_the_conversation(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)

    said = transcript(inside, "图书馆周末几点关门？\n／隐私\n/来源\n")

    assert "本次对话已清除。" in said
    assert "上一个回答没有来源。" in said
    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_chat_without_history_keeps_nothing(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)

    transcript(inside, "图书馆周末几点关门？\n", remember=False)

    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_use_answers_from_one_collection(inside: Inside) -> None:
    inside.put("school/图书馆.txt", LIBRARY)
    inside.put("other/manual.md", MANUAL)

    said = transcript(inside, "/use nope\n/use other\nWhat is the warranty?\n/use\n", lang="en")

    assert "There is no collection 'nope'." in said
    assert "Answers come from the collection 'other'." in said
    assert "[1] other/manual.md, Warranty" in said
    assert "school/" not in said
    assert "Answers come from all documents." in said


def test_open_mode_asks_the_model_without_documents(inside: Inside) -> None:
    said = transcript(inside, "/strict off\nhello\n/strict on\nhello\n", lang="en")

    assert len(inside.engine.requests) == 1
    assert "Open: the model may add what it knows" in said
    assert "There are no documents yet" in said


def test_language_of_answers_can_be_set(inside: Inside) -> None:
    said = transcript(inside, "/lang zh\nWhat is this?\n/lang x\n/lang auto\n", lang="en")

    assert "还没有任何文档" in said
    assert "zh, en, auto" in said
    assert "Answers in: auto" in said


def test_help_fits_24_lines_of_80_columns(inside: Inside) -> None:
    for lang in ("zh", "en"):
        lines = transcript(inside, "/help\n", lang=lang).splitlines()[1:-1]

        assert len(lines) <= 22
        assert max(map(len, lines)) <= 80


def test_retry_why_verbose_docs_status(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["五点[1]。", "下午五点[1]。"]

    typed = "/retry\n/verbose\n图书馆周末几点关门？\n/retry\n/why\n/docs\n/status\n"
    said = transcript(inside, typed, lang="en")

    assert "Nothing was asked yet." in said
    assert "下午五点[1]。" in said
    assert "tok/s" in said
    assert "keyword #1" in said
    assert "ready  -      1         图书馆.txt" in said
    assert "Ready.\n" in said


def test_error_of_the_daemon_is_one_sentence_and_the_chat_goes_on(inside: Inside) -> None:
    from appliance.errors import DeviceLostError

    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = [DeviceLostError(cause="test"), "五点[1]。"]

    said = transcript(inside, "图书馆周末几点关门？\n/retry\n")

    assert "NPU 在回答过程中出错：test。" in said
    assert "五点[1]。" in said


def test_three_quotes_hold_several_lines_together() -> None:
    reader = PlainReader(io.StringIO('"""第一行\n第二行\n"""\nnext\n'), io.StringIO())

    assert read_message(reader) == "第一行\n第二行"
    assert read_message(reader) == "next"
    with pytest.raises(EOFError):
        read_message(reader)


# --------------------------------------------------------------------------------------------------
# a person at a terminal


@pytest.fixture
def console(inside: Inside) -> Iterator[pexpect.spawn]:
    environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "appliance", "chat", "--lang", "zh", "--data", str(inside.data)],
        env=environ,
        encoding="utf-8",
        timeout=20,
        dimensions=(24, 80),
    )
    yield child
    child.close(force=True)


def test_person_types_chinese_with_backspace_and_gets_a_cited_answer(
    inside: Inside, console: pexpect.spawn
) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]
    console.expect(">>> ")

    console.send("图书馆周末几点开门")
    console.send("\x7f\x7f关门？\r")

    console.expect("下午五点关门")
    console.expect("来源：")
    console.expect(">>> ")
    console.sendeof()
    console.expect("再见。")
    console.expect(pexpect.EOF)
    console.wait()
    assert console.exitstatus == 0
    kept = inside.client.get("/api/conversations")["conversations"]
    assert kept[0]["title"] == "图书馆周末几点关门？"


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(
    inside: Inside, console: pexpect.spawn
) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.token_delay_s = 0.05
    inside.engine.answers = ["很" * 2000]
    console.expect(">>> ")
    console.send("图书馆周末几点关门？\r")
    console.expect("很很很很")

    console.sendintr()

    console.expect("（已停止）")
    console.expect(">>> ")
    assert inside.engine.tokens_decoded < 400
    console.sendintr()
    console.expect("按 Ctrl-D 或输入 /退出 离开")
    console.send("／退出\r")
    console.expect("再见。")
    console.expect(pexpect.EOF)


def test_answer_is_wrapped_and_its_marks_are_shown(inside: Inside, console: pexpect.spawn) -> None:
    inside.engine.answers = ["**注意** " + "wordful " * 14]
    console.expect(">>> ")
    console.send("/严格 关\r")
    console.expect(">>> ")
    console.send("讲个故事吧\r")

    console.expect_exact("\x1b[1m注意\x1b[22m")
    console.expect_exact("wordful \r\nwordful")
    console.expect(">>> ")


def test_tab_completes_commands_and_collections(inside: Inside, console: pexpect.spawn) -> None:
    inside.put("三年级/图书馆.txt", LIBRARY)
    console.expect(">>> ")
    console.send("/us\t")
    console.expect_exact("/use")
    console.send(" 三\t")
    console.expect_exact("年级")
    console.send("\r")
    console.expect_exact(say("chat_using", "zh", name="三年级"))


def test_strangers_bytes_reach_no_terminal(inside: Inside) -> None:
    bad = "\x1b]0;owned\x07\x9b2J\x1b[31m\u202e"
    cell = {"cell_type": "markdown", "metadata": {}, "source": f"# 关门{bad}\n\n{LIBRARY}{bad}\n"}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    inside.put(f"图书馆{bad}.ipynb", json.dumps(notebook))
    inside.engine.answers = [f"五点{bad}关门[1]。"]

    typed = "图书馆周末几点关门？\n/open 1\n/why\n/docs\n/use a\x1b[2J\n/x\x1b[2J\n"
    said = transcript(inside, typed)

    assert "五点" in said
    assert "--- 图书馆" in said
    assert not set("\x1b\x07\x9b\u202e") & set(said)


def test_dumb_terminal_gets_plain_lines(inside: Inside) -> None:
    environ = {**os.environ, "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "appliance", "chat", "--lang", "en", "--data", str(inside.data)],
        env=environ,
        encoding="utf-8",
        timeout=20,
    )
    child.expect(">>> ")
    child.sendline("/bye")
    child.expect("Bye.")
    child.expect(pexpect.EOF)
    assert "\x1b" not in (child.before or "")
    child.close()


def test_typed_lines_are_kept_for_their_owner_only(inside: Inside, console: pexpect.spawn) -> None:
    console.expect(">>> ")
    console.send("/状态\r")
    console.expect(">>> ")
    console.sendeof()
    console.expect(pexpect.EOF)

    kept = Path(inside.data / "run" / "chat-lines")
    assert "/状态" in kept.read_text(encoding="utf-8")
    assert kept.stat().st_mode & 0o777 == 0o600
