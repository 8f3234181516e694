"""Both sides of a serial line over a real pty, against a whole box in this process."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.config import SerialConfig
from appliance.frontends.serial.frames import crc16
from appliance.system.memory import process_memory
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine
from tests.serial.line import FarEnd

LIBRARY = "图书馆周末几点关门？周末下午五点关门。\n"


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarEnd]:
    end = FarEnd(tmp_path / "ttyTEST")
    yield end
    end.unplug()


@pytest.fixture
def inside(make_inside: MakeInside, engine: ScriptedEngine, far: FarEnd) -> Inside:
    return make_inside(engine, serial=SerialConfig(ports=(str(far.path),), language="en"))


def frame(far: FarEnd, op: str, **fields: object) -> None:
    far.send(json.dumps({"op": op, **fields}, ensure_ascii=False) + "\n")


# --------------------------------------------------------------------------------------------------
# people


def test_person_asks_in_chinese_and_gets_a_cited_answer(inside: Inside, far: FarEnd) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["**下午五点**关门[1]。"]
    far.wake()
    far.send("图书馆周末几点关门x\x7f？\r")
    shown = far.expect("图书馆.txt").decode()
    answered = far.expect(">>> ").decode()
    assert "\x1b[1m下午五点\x1b[22m" in shown + answered


def test_terminal_that_does_not_answer_gets_no_escape_sequence(inside: Inside, far: FarEnd) -> None:
    inside.engine.answers = ["plain **words**"]
    far.wake(is_dumb=True)
    far.send("/strict off\rHello there, who are you?\r")
    far.expect("Open")
    shown = far.expect("plain words")
    assert b"\x1b" not in shown


def test_terminal_that_speaks_gb18030_is_understood_and_answered(
    inside: Inside, far: FarEnd
) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]
    far.wake()
    far.send("图书馆周末几点关门？\r".encode("gb18030"))
    far.expect("下午五点".encode("gb18030"))
    far.expect("图书馆.txt".encode("gb18030"))


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_enter_of_every_kind_of_terminal(inside: Inside, far: FarEnd, end: str) -> None:
    far.wake()
    far.send(f"/verbose{end}")
    assert far.expect(">>> ").count(b"Figures") == 1


def test_ctrl_c_stops_an_answer_and_the_next_question_is_answered(
    inside: Inside, far: FarEnd
) -> None:
    inside.engine.token_delay_s = 0.02
    inside.engine.answers = ["word " * 2000, "short"]
    far.wake()
    far.send("/strict off\r")
    far.expect(">>> ")
    far.send("Tell me a long story please\r")
    far.expect("word word word")
    far.send("\x03")
    far.expect("(stopped)")
    far.expect(">>> ")
    far.send("And now a short one please\r")
    far.expect("short")


def test_no_more_than_a_fifth_of_a_second_of_text_comes_after_ctrl_c(
    inside: Inside, far: FarEnd
) -> None:
    # The engine writes far faster than the line carries, so much waits when the key is pressed.
    inside.engine.answers = [("word" * 12 + " ") * 600]
    far.wake()
    far.send("/strict off\r")
    far.expect(">>> ")
    far.send("Tell me a long story please\r")
    far.expect("word" * 12)
    far.seen = b""
    far.send("\x03")
    shown = far.expect("^C")
    assert len(shown) <= 0.2 * 115200 / 10
    far.expect(">>> ")


def test_tab_completes_commands_and_collections(inside: Inside, far: FarEnd) -> None:
    inside.put("school/library.txt", LIBRARY)
    far.wake()
    far.send("/us\t sch\t\r")
    far.expect("/use school")
    far.expect("Answers come from the collection 'school'.")
    far.expect(">>> ")


def test_line_a_person_left_is_forgotten(
    make_inside: MakeInside, engine: ScriptedEngine, far: FarEnd
) -> None:
    serial = SerialConfig(ports=(str(far.path),), idle_s=1.0, language="en")
    inside = make_inside(engine, serial=serial)
    far.wake()
    far.send("half a quest")
    far.expect("half a quest")
    far.expect("forgotten")
    far.wake()
    assert inside.client.get("/api/conversations")["conversations"] == []


def test_line_of_a_person_never_looks_like_a_frame(inside: Inside, far: FarEnd) -> None:
    inside.engine.answers = ['{"a": 1}\n{"b": 2}']
    far.wake()
    far.send("/strict off\r")
    far.expect(">>> ")
    far.send("Give me JSON please, two lines\r")
    shown = far.expect('"b": 2').decode().split("\r\n")
    assert [line for line in shown if line.startswith("{")] == []


def test_pin_is_asked_for_and_wrong_ones_are_slowed_down(
    make_inside: MakeInside, engine: ScriptedEngine, far: FarEnd
) -> None:
    make_inside(engine, serial=SerialConfig(ports=(str(far.path),), pin="2718", language="en"))
    far.send("\r")
    far.expect("\x1b[6n")
    far.send("\x1b[24;80R")
    far.expect("PIN: ")
    far.send("1111\r")
    far.expect("not the PIN")
    far.send("2718\r")
    far.expect("Wait")
    time.sleep(1.2)
    far.send("2718\r")
    far.expect(">>> ")
    assert b"2718" not in far.seen


# --------------------------------------------------------------------------------------------------
# machines


def test_hello_says_what_can_be_asked(inside: Inside, far: FarEnd) -> None:
    frame(far, "hello", id="1")
    (said,) = far.frames("hello")
    assert said["protocol"] == 1
    assert set(said["ops"]) == {"hello", "ask", "cancel", "search", "embed", "status"}


def test_streamed_answer(inside: Inside, far: FarEnd) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点关门[1]。"]
    frame(far, "ask", id="7", q="图书馆周末几点关门？")
    found = far.frames("answer")
    assert [f["id"] for f in found] == ["7"] * len(found)
    assert next(f for f in found if f["type"] == "evidence")["citations"][0]["path"] == "图书馆.txt"
    assert "".join(f["text"] for f in found if f["type"] == "delta") == "下午五点关门[1]。"
    assert found[-1]["citations"][0]["n"] == 1


def test_answer_in_one_piece_search_embed_and_status(inside: Inside, far: FarEnd) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["五点[1]。"]
    frame(far, "ask", id="a", q="图书馆周末几点关门？", stream=False)
    found = far.frames("answer")
    assert [f["type"] for f in found] == ["answer"]
    assert found[0]["answer"].startswith("五点")
    frame(far, "search", id="b", q="图书馆", k=1)
    assert far.frames("hits")[-1]["hits"][0]["path"] == "图书馆.txt"
    frame(far, "embed", id="c", texts=["图书馆"])
    assert far.frames("vectors")[-1]["dtype"] == "float32"
    frame(far, "status", id="d")
    assert far.frames("status")[-1]["documents"] == 1


def test_refusal_carries_its_sentence_and_reason(inside: Inside, far: FarEnd) -> None:
    frame(far, "ask", id="1", q="Where is the treasure?", lang="en")
    said = far.frames("answer")[-1]
    assert said["refused"]
    assert said["reason"] == "no_documents"
    assert said["answer"]


def test_cancel_ends_a_running_answer_only(inside: Inside, far: FarEnd) -> None:
    inside.engine.token_delay_s = 0.02
    inside.engine.answers = ["word " * 2000]
    frame(far, "ask", id="1", q="Tell me a long story", mode="open")
    far.frames("delta")
    frame(far, "cancel", id="1")
    assert far.frames("cancelled")[-1] == {"id": "1", "type": "cancelled"}
    frame(far, "cancel", id="1")
    assert far.frames("cancelled")[-1]["code"] == "frame_not_running"


def test_cancel_takes_back_text_that_the_line_has_not_carried(inside: Inside, far: FarEnd) -> None:
    # The engine is done with 29 kB long before the line is, which carries 11.5 kB/s.
    inside.engine.answers = [("word" * 12 + " ") * 600]
    frame(far, "ask", id="1", q="Tell me a long story", mode="open")
    far.frames("delta")
    time.sleep(0.3)
    far.read()
    far.seen = b""
    frame(far, "cancel", id="1")
    begun = time.monotonic()
    assert far.frames("cancelled")[-1] == {"id": "1", "type": "cancelled"}
    assert time.monotonic() - begun < 0.5
    frame(far, "status", id="2")
    assert [f["type"] for f in far.frames("status")] == ["status"]


def test_answer_that_is_faster_than_the_line_arrives_whole(inside: Inside, far: FarEnd) -> None:
    text = ("word" * 12 + " ") * 300
    inside.engine.answers = [text]
    frame(far, "ask", id="1", q="Tell me a long story", mode="open")
    found = far.frames("answer")
    deltas = [f["text"] for f in found if f["type"] == "delta"]
    assert "".join(deltas).strip() == text.strip()
    assert max(map(len, deltas)) <= 400


def test_two_questions_at_once_and_an_id_that_is_taken(inside: Inside, far: FarEnd) -> None:
    inside.engine.token_delay_s = 0.01
    inside.engine.answers = ["one " * 40, "two " * 40]
    frame(far, "ask", id="1", q="Tell me one story", mode="open")
    frame(far, "ask", id="1", q="Tell me the same story", mode="open")
    frame(far, "ask", id="2", q="Tell me another story", mode="open")
    seen: dict[str, list[str]] = {"1": [], "2": []}
    codes, n_answers = [], 0
    for one in far.each_frame():
        if one["type"] == "delta":
            seen[one["id"]].append(one["text"])
        elif one["type"] == "error":
            codes.append((one["id"], one["code"]))
        n_answers += one["type"] == "answer"
        if n_answers == 2:
            break
    assert codes == [("1", "frame_id_taken")]
    assert sorted("".join(parts).split()[0] for parts in seen.values()) == ["one", "two"]
    assert all(len(set("".join(parts).split())) == 1 for parts in seen.values())


def test_trailer_is_checked_and_answered(inside: Inside, far: FarEnd) -> None:
    text = b'{"op":"hello","id":"1"}'
    assert crc16(b"123456789") == 0x29B1
    far.send(text + b"#%d:%04x\n" % (len(text), crc16(text)))
    line = far.expect(b"\n").strip()
    body, _, trailer = line.rpartition(b"#")
    assert trailer == b"%d:%04x" % (len(body), crc16(body))
    far.send(text + b"#%d:%04x\n" % (len(text), crc16(text) ^ 1))
    assert far.frames("error")[-1]["code"] == "frame_damaged"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "frame_invalid"),
        ("{}", "frame_unknown_op"),
        ('{"op":"shell"}', "frame_unknown_op"),
        ('{"op":"ask","id":"1"}', "frame_field"),
        ('{"op":"ask","q":"x"}', "frame_field"),
        ('{"op":"ask","id":"1","q":"x","mode":"wild"}', "frame_field"),
        ('{"op":"search","id":"1","q":"x","k":0}', "frame_field"),
        ('{"op":"embed","id":"1","texts":[]}', "frame_field"),
        ('{"op":"ask","id":[1]}', "frame_field"),
        ('{"op":"ask","id":"' + "x" * 65 + '","q":"x"}', "frame_field"),
        ("{" * 5000, "frame_invalid"),
        ('{"a":"}{"}', "frame_unknown_op"),
    ],
)
def test_bad_frame_is_refused_and_the_next_one_answered(
    inside: Inside, far: FarEnd, line: str, code: str
) -> None:
    far.send(line + "\n")
    assert far.frames("error")[-1]["code"] == code
    frame(far, "hello", id="2")
    assert far.frames("hello")[-1]["id"] == "2"


def test_pin_is_asked_of_machines_too(
    make_inside: MakeInside, engine: ScriptedEngine, far: FarEnd
) -> None:
    make_inside(engine, serial=SerialConfig(ports=(str(far.path),), pin="2718"))
    frame(far, "status", id="1")
    assert far.frames("status")[-1]["code"] == "frame_pin_needed"
    frame(far, "hello", id="2", pin="2718")
    assert far.frames("hello")[-1]["type"] == "hello"
    frame(far, "status", id="3")
    assert far.frames("status")[-1]["type"] == "status"


# --------------------------------------------------------------------------------------------------
# both, noise, cables


def test_frames_do_not_disturb_a_person_who_types(inside: Inside, far: FarEnd) -> None:
    far.wake()
    for number in range(20):
        far.send(f"question {number}")
        far.expect(f"question {number}")
        far.send("\x15")
        frame(far, "hello", id=str(number))
        assert far.frames("hello")[-1]["id"] == str(number)
    far.send("/verbose\r")
    far.expect("Figures")


def test_machine_is_answered_while_a_person_reads(inside: Inside, far: FarEnd) -> None:
    inside.engine.token_delay_s = 0.01
    inside.engine.answers = ["word " * 300]
    far.wake()
    far.send("/strict off\r")
    far.expect(">>> ")
    far.send("Tell me a long story please\r")
    far.expect("word word")
    lines = b""
    for number in range(10):
        frame(far, "hello", id=str(number))
        lines += far.expect(b'"type":"hello"') + far.expect(b"\r\n")
    lines += far.expect(">>> ")
    for line in lines.split(b"\r\n"):
        if b'"type"' in line:
            assert json.loads(line)["type"] == "hello"


def test_noise_does_not_keep_the_next_line_from_being_handled(inside: Inside, far: FarEnd) -> None:
    rng = random.Random(1)
    resident = process_memory().resident
    for _ in range(20):
        far.send(rng.randbytes(50_000))
        far.seen = far.seen[-4000:]
    far.send(b"\0" * 1_000_000)
    far.send(b"\n{" + b"x" * 1_000_000 + b"\n")
    far.send(b'{"op":"hello","id":"\x03\x04half')
    far.send(b"\n\n")
    frame(far, "hello", id="after")
    deadline = time.monotonic() + 60
    while b'"id":"after"' not in far.seen:
        far.read()
        assert time.monotonic() < deadline, far.seen[-500:]
        far.seen = far.seen[-4000:]
    assert process_memory().resident - resident < 64 * 1024 * 1024


def test_cable_that_is_pulled_and_plugged_again(inside: Inside, far: FarEnd) -> None:
    inside.engine.token_delay_s = 0.02
    inside.engine.default = "word " * 200
    for number in range(12):
        if number % 3 == 1:
            far.wake()
            far.send("half a line")
        elif number % 3 == 2:
            frame(far, "ask", id="1", q="Tell me a story", mode="open")
            far.frames("delta")
        far.unplug()
        far.plug()
        started = time.monotonic()
        frame(far, "hello", id=str(number))
        assert far.frames("hello")[-1]["id"] == str(number)
        assert time.monotonic() - started < 5.0
        far.seen = b""
    deadline = time.monotonic() + 5
    while len(ours := [t.name for t in threading.enumerate() if "serial" in t.name]) > 2:
        assert time.monotonic() < deadline, ours
        time.sleep(0.05)


def test_missing_port_is_a_problem_until_it_is_there(
    make_inside: MakeInside, engine: ScriptedEngine, far: FarEnd
) -> None:
    far.unplug()
    box = make_inside(engine, serial=SerialConfig(ports=(str(far.path),)))
    wait_for_codes(box, ["serial_missing"])
    far.plug()
    wait_for_codes(box, [])


def wait_for_codes(box: Inside, wanted: list[str]) -> None:
    deadline = time.monotonic() + 10
    while [p["code"] for p in box.client.get("/api/status")["problems"]] != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.05)
