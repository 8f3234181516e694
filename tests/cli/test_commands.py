"""Commands against a whole box in this process: what they print, and with which exit status."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from appliance.cli import run_command
from appliance.config import InboxConfig, reference_markdown
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine

LIBRARY = "图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。\n"
MANUAL = "# Warranty\n\nThe RiverBoard 310 has a warranty of 24 months.\n"

Capture = pytest.CaptureFixture[str]


def run(inside: Inside, *argv: str) -> int:
    return run_command([*argv, "--data", str(inside.data)], {"LANG": "C"})


def printed(inside: Inside, capsys: Capture, *argv: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(inside, *argv, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_ask_prints_the_answer_then_its_sources(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]
    capsys.readouterr()

    status = run(inside, "ask", "图书馆周末几点关门？")

    out = capsys.readouterr().out
    assert status == 0
    assert out.startswith("下午五点关门[1]。\n\nSources:\n  [1] 图书馆.txt, line 1\n")
    assert "周末下午五点关门" in out


def test_ask_json_is_the_contract(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]

    found = printed(inside, capsys, "ask", "图书馆周末几点关门？", "--strict")

    assert set(found) >= {"answer", "refused", "reason", "citations", "usage", "timings", "model"}
    assert set(found["citations"][0]) == {
        *(
            "n",
            "document",
            "path",
            "page",
            "heading",
            "line_from",
            "line_to",
            "place",
            "passage",
            "quote",
        )
    }
    assert set(found["usage"]) == {"prompt_tokens", "completion_tokens", "cached_tokens"}
    assert set(found["timings"]) == {"queue_s", "search_s", "ttft_s", "total_s"}
    assert found["answer"] == "下午五点关门[1]。"


def test_ask_refusal_says_which_case_it_is(inside: Inside, capsys: Capture) -> None:
    none = printed(inside, capsys, "ask", "图书馆几点关门？")
    inside.put("manual.md", MANUAL)
    irrelevant = printed(inside, capsys, "ask", "量子纠缠是什么意思？")

    assert (none["refused"], none["reason"]) == (True, "no_documents")
    assert (irrelevant["refused"], irrelevant["reason"]) == (True, "nothing_relevant")
    assert inside.engine.requests == []


def test_ask_in_a_collection_finds_only_what_is_there(inside: Inside, capsys: Capture) -> None:
    inside.put("school/图书馆.txt", LIBRARY)
    inside.put("other/manual.md", MANUAL)

    found = printed(inside, capsys, "ask", "--collection", "other", "What is the warranty?")

    assert {c["path"] for c in found["citations"]} <= {"other/manual.md"}
    assert run(inside, "ask", "--collection", "nope", "x") == 1
    assert "nope" in capsys.readouterr().err


def test_ask_reads_the_question_from_the_input(
    inside: Inside, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.put("图书馆.txt", LIBRARY)
    monkeypatch.setattr(sys, "stdin", io.StringIO("图书馆周末几点关门？\n"))

    found = printed(inside, capsys, "ask", "-")

    assert found["refused"] is False


def test_ask_keeps_nothing_with_no_history(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    run(inside, "ask", "--no-history", "图书馆周末几点关门？")

    assert printed(inside, capsys, "history", "list") == {"conversations": []}


def test_history_shows_and_forgets(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    asked = printed(inside, capsys, "ask", "图书馆周末几点关门？")

    shown = printed(inside, capsys, "history", "show", asked["conversation"])
    forgotten = printed(inside, capsys, "history", "forget", "--all")

    assert shown["turns"][0]["answer"] == asked["answer"]
    assert forgotten == {"forgotten": 1}


def test_search_json_is_the_contract(inside: Inside, capsys: Capture) -> None:
    inside.put("规范.txt", "论文按照 GB/T 7714-2015 著录参考文献。\n")
    inside.put("manual.md", MANUAL)

    found = printed(inside, capsys, "kb", "search", "-k", "3", "GB/T 7714-2015")

    hit = found["hits"][0]
    assert set(hit) == {
        *("rank", "document", "path", "page", "heading", "line_from", "line_to", "place"),
        *("score", "text", "also", "passage", "arms"),
    }
    assert (hit["rank"], hit["path"]) == (1, "规范.txt")


def test_stats_json_is_the_contract(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    (inside.box.config.inbox_dir / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    inside.wait()

    found = printed(inside, capsys, "kb", "stats")

    assert set(found) == {"documents", "passages", "vectors", "by_state", "failed"}
    assert found["documents"] == 1
    assert found["by_state"] == {"ready": 1, "failed": 1}
    assert set(found["failed"][0]) == {"path", "code", "reason"}
    assert found["failed"][0]["path"] == "broken.pdf"


def test_list_shows_why_a_file_failed_below_it(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    (inside.box.config.inbox_dir / "broken.pdf").write_bytes(b"")
    inside.wait()
    capsys.readouterr()

    run(inside, "kb", "list")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["state", "pages", "passages", "file"]
    assert lines[1].split() == ["failed", "-", "-", "broken.pdf"]
    assert lines[2].startswith("    ")
    assert lines[3].split()[-1] == "图书馆.txt"


def test_show_prints_text_by_name_and_by_number(inside: Inside, capsys: Capture) -> None:
    inside.put("manual.md", MANUAL)
    capsys.readouterr()

    assert run(inside, "kb", "show", "manual.md") == 0
    by_name = capsys.readouterr().out
    assert run(inside, "kb", "show", "1") == 0

    assert "warranty of 24 months" in by_name
    assert capsys.readouterr().out == by_name


def test_show_of_an_unknown_document_fails_with_what_to_do(inside: Inside, capsys: Capture) -> None:
    assert run(inside, "kb", "show", "nope.txt") == 1

    assert "appliance kb list" in capsys.readouterr().err


def test_remove_and_reindex(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)

    removed = printed(inside, capsys, "kb", "remove", "图书馆.txt")
    after = printed(inside, capsys, "kb", "stats")
    every = printed(inside, capsys, "kb", "reindex", "--all")
    requeued = printed(inside, capsys, "kb", "reindex", "图书馆.txt")
    inside.wait()

    assert removed == {"paths": ["图书馆.txt"]}
    assert (after["documents"], after["passages"], after["vectors"]) == (0, 0, 0)
    # What was removed comes back by its name alone.
    assert (every["n_files"], requeued["n_files"]) == (0, 1)
    assert printed(inside, capsys, "kb", "stats")["documents"] == 1


def test_check_of_a_healthy_store_is_done(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)

    assert printed(inside, capsys, "kb", "check") == {"problems": []}


def test_wait_fails_when_time_is_up(make_inside: MakeInside, engine: ScriptedEngine) -> None:
    inside = make_inside(engine, inbox=InboxConfig(settle_s=60.0))
    (inside.box.config.inbox_dir / "a.txt").write_text("text\n", encoding="utf-8")

    assert run(inside, "kb", "wait", "--timeout", "0.3") == 1


def test_wait_does_not_hang_when_there_is_no_embedder(
    make_inside: MakeInside, capsys: Capture
) -> None:
    from appliance.errors import ModelMissingError

    class Lame(ScriptedEngine):
        def embed(self, *_args: object) -> NoReturn:
            raise ModelMissingError(model="e5")

        @property
        def embedder_id(self) -> str:
            raise ModelMissingError(model="e5")

    inside = make_inside(Lame(default="x"))
    (inside.box.config.inbox_dir / "a.txt").write_text("图书馆\n", encoding="utf-8")

    assert run(inside, "kb", "wait", "--timeout", "30") == 1

    assert "Keyword search works" in capsys.readouterr().err
    assert printed(inside, capsys, "kb", "search", "图书馆")["hits"][0]["path"] == "a.txt"


def test_status_is_one_screen_in_both_languages(inside: Inside, capsys: Capture) -> None:
    inside.put("图书馆.txt", LIBRARY)
    capsys.readouterr()

    run(inside, "status")
    english = capsys.readouterr().out
    run(inside, "status", "--lang", "zh")
    chinese = capsys.readouterr().out

    assert english.startswith("Ready.\n")
    assert chinese.startswith("就绪。\n")
    assert english.count("\n") == chinese.count("\n") <= 23
    assert inside.box.http.url in english


def test_status_json_names_what_the_contract_asks_for(inside: Inside, capsys: Capture) -> None:
    found = printed(inside, capsys, "status")

    assert set(found) >= {"state", "models", "device", "memory", "queue", "uptime_s", "versions"}


def test_no_daemon_fails_with_the_command_that_starts_it(tmp_path: Path, capsys: Capture) -> None:
    status = run_command(["status", "--json", "--data", str(tmp_path)], {"LANG": "zh_CN.UTF-8"})

    error = json.loads(capsys.readouterr().out)["error"]
    assert status == 1
    assert set(error) == {"code", "message", "next_step", "facts"}
    assert error["code"] == "daemon_unreachable"
    assert f"appliance serve --data {tmp_path}" in error["next_step"]


def test_stale_address_of_a_dead_daemon_is_not_believed(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run").mkdir()
    where = {"url": "http://127.0.0.1:9", "pid": 1}
    (tmp_path / "run" / "daemon.json").write_text(json.dumps(where))

    assert run_command(["status", "--data", str(tmp_path)], {}) == 1
    assert "No daemon is running" in capsys.readouterr().err


def test_config_mistakes_are_all_named_with_status_78(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "appliance.yaml").write_text("http:\n  prot: 1\nengine:\n  n_slots: many\n")

    status = run_command(["config", "check", "--data", str(tmp_path)], {})

    err = capsys.readouterr().err
    assert status == 78
    assert "http.port" in err
    assert "engine.n_slots" in err


def test_config_check_demands_a_key_for_other_addresses(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "appliance.yaml").write_text("http:\n  host: 0.0.0.0\n")

    assert run_command(["config", "check", "--data", str(tmp_path)], {}) == 78
    assert "api_key_file" in capsys.readouterr().err


def test_config_show_prints_what_is_in_force(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "appliance.yaml").write_text("http:\n  port: 9000\n")

    run_command(["config", "show", "--data", str(tmp_path)], {})
    in_force = capsys.readouterr().out
    run_command(["config", "show", "--defaults", "--data", str(tmp_path)], {})

    assert "port: 9000" in in_force
    assert "port: 8080" in capsys.readouterr().out


def test_configuration_page_is_what_the_code_says(capsys: Capture) -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "configuration.md"

    run_command(["config", "reference"], {})

    assert capsys.readouterr().out == reference_markdown() == page.read_text(encoding="utf-8")


def test_unexpected_error_shows_a_traceback_only_with_debug(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance import config

    monkeypatch.setattr(config, "load", lambda _data: 1 / 0)

    plain = run_command(["config", "show", "--data", str(tmp_path)], {})
    without = capsys.readouterr().err
    run_command(["config", "show", "--debug", "--data", str(tmp_path)], {})

    assert plain == 1
    assert "Traceback" not in without
    assert "--debug" in without
    assert "Traceback" in capsys.readouterr().err


def test_name_in_gbk_bytes_is_found_as_it_is_listed(inside: Inside, capsys: Capture) -> None:
    path = inside.box.config.inbox_dir / os.fsdecode("教案.txt".encode("gbk"))
    path.write_bytes(LIBRARY.encode("gb18030"))
    inside.wait()
    capsys.readouterr()

    status = run(inside, "kb", "show", os.fsdecode("教案.txt".encode("gbk")))

    assert status == 0
    assert "周末下午五点关门" in capsys.readouterr().out


def test_escape_sequences_of_a_document_do_not_reach_the_terminal(
    inside: Inside, capsys: Capture
) -> None:
    inside.put("evil.txt", "图书馆\x1b]0;owned\x07周末几点关门？下午五点。\n")
    inside.engine.answers = ["\x1b[2J五点"]
    capsys.readouterr()

    run(inside, "kb", "show", "evil.txt")
    run(inside, "kb", "search", "图书馆")
    run(inside, "ask", "图书馆周末几点关门？")

    assert "\x1b" not in capsys.readouterr().out


def test_reader_that_closes_early_is_no_failure(inside: Inside) -> None:
    for n in range(30):
        (inside.box.config.inbox_dir / f"{n}.txt").write_text("图书馆 " * 2000, encoding="utf-8")
    inside.wait()
    command = f"{sys.executable} -m appliance kb show 1 --data {inside.data}"

    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert done.stderr == ""


def test_interrupted_ask_stops_the_answer_in_the_daemon(inside: Inside) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.token_delay_s = 0.05
    inside.engine.answers = ["很" * 2000]
    command = [sys.executable, "-m", "appliance", "ask", "图书馆周末几点关门？"]
    asking = subprocess.Popen(
        [*command, "--data", str(inside.data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert asking.stdout is not None
    asking.stdout.read(3)

    asking.send_signal(signal.SIGINT)
    _, err = asking.communicate(timeout=10)

    deadline = time.monotonic() + 2
    while inside.engine.n_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert asking.returncode == 1
    assert b"Traceback" not in err
    assert inside.engine.n_running == 0
    assert inside.engine.tokens_decoded < 200


def test_help_and_a_missing_daemon_are_answered_without_heavy_imports(tmp_path: Path) -> None:
    code = (
        "import sys; from appliance.cli import run_command;"
        f"run_command(['ask', 'x', '--data', {str(tmp_path)!r}]);"
        "print([m for m in ('numpy', 'yaml', 'uvicorn', 'starlette', 'llama_cpp', 'sqlite3',"
        " 'prompt_toolkit', 'asyncio', 'appliance.core') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_progress_of_a_pull_shows_share_speed_and_time_left(capsys: Capture) -> None:
    from appliance.cli.models import _Meter
    from appliance.cli.output import Output
    from appliance.models import Progress

    stream = io.StringIO()
    output = Output("zh", err=stream)
    with output.progress() as line:
        meter = _Meter(line, output)
        meter(Progress("m", "hub", 0, 100 << 20))
        time.sleep(0.6)
        line._next = 0.0
        meter(Progress("m", "hub", 50 << 20, 100 << 20))

    first, second = stream.getvalue().splitlines()
    assert first == "m  [--------------------]   0%  0 B / 100.0 MiB  来自 Hugging Face"
    assert second.startswith("m  [##########----------]  50%  50.0 MiB / 100.0 MiB  ")
    assert "MiB/s" in second
    assert "约剩" in second
