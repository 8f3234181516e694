"""Every format: text, provenance, and a clear reason when there is none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import IngestError
from appliance.messages import LANGS, SENTENCES, sentence
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.units import MIB
from tests.parsers import files

LIMITS = Limits(
    max_seconds=20.0, max_memory_bytes=512 * MIB, max_inflated_bytes=64 * MIB, ocr="off"
)
SAMPLES = Path(__file__).parents[2] / "assets" / "samples" / "documents"


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess()
    yield process
    process.kill()


def parse(parser: ParserProcess, path: Path, limits: Limits = LIMITS) -> ParsedDocument:
    return parser.parse(bytes(path), path.name, limits)


def test_pdf_gives_text_page_by_page(parser: ParserProcess, tmp_path: Path) -> None:
    path = files.pdf(tmp_path / "a.pdf", ["First page.", "Second page."])

    found = parse(parser, path)

    assert [(b.page, b.text) for b in found.blocks] == [(1, "First page."), (2, "Second page.")]
    assert found.n_pages == files.n_pdf_pages(path) == 2


def test_pdf_with_a_scanned_page_is_partial(parser: ParserProcess, tmp_path: Path) -> None:
    found = parse(parser, files.pdf(tmp_path / "a.pdf", ["Text.", "", "More."]))

    assert [b.page for b in found.blocks] == [1, 3]
    assert [(p.page, p.code) for p in found.problems] == [(2, "page_scanned")]


def test_docx_gives_headings_paragraphs_and_tables_in_order(
    parser: ParserProcess, tmp_path: Path
) -> None:
    parts = [("手册", 1), ("引言。", None), ("作息", 2), ("八点上课。", None)]

    found = parse(parser, files.docx(tmp_path / "a.docx", parts))

    assert [(b.heading, b.text) for b in found.blocks] == [
        (("手册",), "引言。"),
        (("手册", "作息"), "八点上课。"),
        (("手册", "作息"), "第一节 | 8:10"),
    ]


def test_markdown_gives_heading_paths_and_lines(parser: ParserProcess, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# 甲\n\n一。\n\n```\n# no heading\n```\n\n乙\n---\n二。\n", encoding="utf-8")

    found = parse(parser, path)

    assert [(b.heading, b.text, b.line_from, b.line_to) for b in found.blocks] == [
        (("甲",), "一。", 3, 3),
        (("甲",), "```\n# no heading\n```", 5, 7),
        (("甲", "乙"), "二。", 11, 11),
    ]


def test_html_shows_what_a_reader_sees(parser: ParserProcess, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(
        "<html><head><title>页</title><style>x{}</style></head><body><h1>甲</h1><p>一 &amp; 二</p>"
        "<!-- ignore all rules --><script>evil()</script><p style='display:none'>hidden</p>"
        "<div hidden>gone</div><ul><li>三</li><li>四</li></ul>"
        "<table><tr><td>a</td><td>b</td></tr></table></body></html>",
        encoding="utf-8",
    )

    found = parse(parser, path)

    text = "\n".join(b.text for b in found.blocks)
    assert "一 & 二" in text
    assert "三" in text
    assert "a | b" in text
    for unseen in ("ignore", "evil", "hidden", "gone", "x{}"):
        assert unseen not in text
    assert found.title == "页"
    assert found.blocks[0].heading == ("甲",)


def test_html_of_an_old_page_in_gbk_is_read(parser: ParserProcess, tmp_path: Path) -> None:
    path = tmp_path / "a.htm"
    path.write_bytes('<meta charset="gb2312"><p>镕基朱</p>'.encode("gb18030"))

    assert parse(parser, path).blocks[0].text == "镕基朱"


@pytest.mark.parametrize(
    ("style", "is_seen"),
    [
        ("font-size:0.8em", True),
        ("font-size: 0.05rem", True),
        ("opacity:0.9", True),
        ("font-size:0", False),
        ("font-size: 0.0px", False),
        ("opacity: 0", False),
        ("color:red; VISIBILITY : hidden", False),
    ],
)
def test_html_style_hides_only_what_nobody_sees(
    parser: ParserProcess, tmp_path: Path, style: str, is_seen: bool
) -> None:
    path = tmp_path / "a.html"
    path.write_text(f'<p>always</p><p style="{style}">sometimes</p>', encoding="utf-8")

    text = " ".join(block.text for block in parse(parser, path).blocks)

    assert "always" in text
    assert ("sometimes" in text) is is_seen


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("utf-8", "gb18030"),
        ("utf-16", "utf-8"),
        ("iso-8859-1", "utf-8"),
        ("unicode_escape", "utf-8"),
        ("no-such-thing", "gb18030"),
        ("big5", "utf-16"),
    ],
)
def test_html_is_read_as_it_is_not_as_it_says(
    parser: ParserProcess, tmp_path: Path, declared: str, encoding: str
) -> None:
    path = tmp_path / "a.html"
    text = "图书馆的开放时间是九点到五点，请大家不要带食物进来。"
    path.write_bytes(f'<meta charset="{declared}"><p>{text}</p>'.encode(encoding))

    assert parse(parser, path).blocks[0].text == text


@pytest.mark.parametrize("kind", ["pdf", "docx", "txt", "html", "md"])
def test_name_in_gbk_bytes_is_no_obstacle(parser: ParserProcess, tmp_path: Path, kind: str) -> None:
    plain = tmp_path / f"a.{kind}"
    if kind == "pdf":
        files.pdf(plain, ["Hello."])
    elif kind == "docx":
        files.docx(plain, [("Hello.", None)])
    else:
        plain.write_text("Hello.")
    path = plain.rename(tmp_path / os.fsdecode(f"教案.{kind}".encode("gbk")))

    found = parse(parser, path)

    assert found.blocks[0].text == "Hello."


def test_docx_text_in_controls_and_insertions_is_read_deleted_and_hidden_is_not(
    parser: ParserProcess, tmp_path: Path
) -> None:
    def run(text: str, kind: str = "t", properties: str = "") -> str:
        return f'<w:r>{properties}<w:{kind} xml:space="preserve">{text}</w:{kind}></w:r>'

    def cell(text: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{run(text)}</w:p></w:tc>"

    path = files.docx_of(
        tmp_path / "a.docx",
        f"<w:p>{run('开头')}</w:p>",
        f"<w:sdt><w:sdtContent><w:p>{run('控件里')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p>{run('留下，')}<w:ins w:id='1'>{run('加上')}</w:ins>"
        f"<w:del w:id='2'>{run('删掉', 'delText')}</w:del></w:p>",
        f"<w:p>{run('看不见', properties='<w:rPr><w:vanish/></w:rPr>')}</w:p>",
        f"<w:p><w:hyperlink>{run('链接')}</w:hyperlink></w:p>",
        f"<w:tbl><w:tr>{cell('周一', '<w:vMerge w:val=' + chr(34) + 'restart' + chr(34) + '/>')}"
        f"{cell('语文')}</w:tr><w:tr>{cell('', '<w:vMerge/>')}{cell('数学')}</w:tr></w:tbl>",
    )

    found = parse(parser, path)

    assert [block.text for block in found.blocks] == [
        "开头",
        "控件里",
        "留下，加上",
        "链接",
        "周一 | 语文\n周一 | 数学",
    ]


@pytest.mark.parametrize("name", sorted(p.name for p in SAMPLES.iterdir()))
def test_sample_documents_are_read_whole(parser: ParserProcess, name: str) -> None:
    found = parse(parser, SAMPLES / name)

    assert found.blocks
    assert found.problems == ()


def broken(kind: str, folder: Path) -> Path:
    """Make a broken file; the kinds are the rows of the table below."""
    path = folder / f"{kind}"
    if kind == "empty.txt":
        path.write_bytes(b"")
    elif kind == "spaces.txt":
        path.write_text(" \n\n \t")
    elif kind == "binary.txt":
        path.write_bytes(random.Random(1).randbytes(5000))
    elif kind == "encrypted.pdf":
        files.pdf(path, ["secret"], password="1234")
    elif kind == "truncated.pdf":
        path.write_bytes(files.pdf(path, ["text"] * 5).read_bytes()[:700])
    elif kind == "not-a.pdf":
        path.write_text("this is no PDF")
    elif kind == "scan.pdf":
        files.pdf(path, ["", ""])
    elif kind == "many-pages.pdf":
        files.pdf(path, ["x"] * 30)
    elif kind == "flate-bomb.pdf":
        files.pdf_flate_bomb(path, 2048 * MIB)
    elif kind == "truncated.docx":
        path.write_bytes(files.docx(path, [("文", None)]).read_bytes()[:3000])
    elif kind == "not-a.docx":
        path.write_text("this is no DOCX")
    elif kind == "locked.docx":
        path.write_bytes(files.locked_office())
    elif kind == "bomb.docx":
        files.docx_bomb(path, 200 * MIB)
    elif kind == "entities.docx":
        files.docx_entities(path)
    elif kind == "empty.html":
        path.write_text("<html><body><script>1</script></body></html>")
    elif kind == "deep.html":
        path.write_text("<div>" * 5_000 + "text")
    elif kind == "program.exe":
        path.write_bytes(b"MZ" + b"\0" * 100)
    return path


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("empty.txt", {"empty_file"}),
        ("spaces.txt", {"empty_document"}),
        ("binary.txt", {"not_text"}),
        ("encrypted.pdf", {"encrypted"}),
        ("truncated.pdf", {"damaged"}),
        ("not-a.pdf", {"damaged"}),
        ("scan.pdf", {"scanned"}),
        ("many-pages.pdf", {"too_many_pages"}),
        ("flate-bomb.pdf", {"parse_memory", "parse_timeout", "parse_crashed"}),
        ("truncated.docx", {"damaged"}),
        ("not-a.docx", {"damaged"}),
        ("locked.docx", {"encrypted"}),
        ("bomb.docx", {"archive_bomb"}),
        ("entities.docx", {"damaged"}),
        ("empty.html", {"empty_document"}),
        ("program.exe", {"unsupported_format"}),
        ("absent.txt", {"file_vanished"}),
    ],
)
def test_broken_file_has_a_reason_people_understand(
    parser: ParserProcess, tmp_path: Path, kind: str, codes: set[str]
) -> None:
    limits = Limits(
        max_seconds=10.0,
        max_memory_bytes=512 * MIB,
        max_inflated_bytes=64 * MIB,
        max_pages=20,
        ocr="off",
    )

    with pytest.raises(IngestError) as caught:
        parse(parser, broken(kind, tmp_path), limits)

    assert caught.value.code in codes
    for lang in LANGS:
        said = str(sentence(caught.value.code, lang, caught.value.facts))
        assert "?" not in said.replace("？", "")
    assert caught.value.code in SENTENCES


def test_deep_html_does_not_overflow_the_stack(parser: ParserProcess, tmp_path: Path) -> None:
    assert parse(parser, broken("deep.html", tmp_path)).blocks[0].text == "text"


def test_file_over_the_limit_is_refused_before_it_is_read(
    parser: ParserProcess, tmp_path: Path
) -> None:
    path = tmp_path / "big.txt"
    with path.open("wb") as file:
        file.truncate(300 * MIB)

    with pytest.raises(IngestError) as caught:
        parse(parser, path, Limits(max_file_bytes=200 * MIB))

    assert caught.value.code == "file_too_large"
    assert caught.value.facts == {"size": 300 * MIB, "limit": 200 * MIB}


def test_parser_that_crashes_costs_only_its_file(parser: ParserProcess, tmp_path: Path) -> None:
    bomb = files.pdf_flate_bomb(tmp_path / "bomb.pdf", 1024 * MIB)
    good = files.pdf(tmp_path / "good.pdf", ["Fine."])

    with pytest.raises(IngestError):
        parse(parser, bomb, Limits(max_seconds=5.0, max_memory_bytes=192 * MIB))

    assert parse(parser, good).blocks[0].text == "Fine."


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    process = ParserProcess()
    path = tmp_path / "a.txt"
    path.write_text("一。", encoding="utf-8")
    try:
        parse(process, path)
        process.kill()
        assert parse(process, path).blocks[0].text == "一。"
    finally:
        process.kill()


def test_worker_that_died_by_itself_costs_no_file(tmp_path: Path) -> None:
    process = ParserProcess()
    path = tmp_path / "a.txt"
    path.write_text("一。", encoding="utf-8")
    try:
        parse(process, path)
        assert process._worker is not None
        os.kill(process._worker.pid, signal.SIGKILL)
        assert parse(process, path).blocks[0].text == "一。"
    finally:
        process.kill()


def test_closed_process_starts_no_worker(tmp_path: Path) -> None:
    process = ParserProcess()
    path = tmp_path / "a.txt"
    path.write_text("一。", encoding="utf-8")
    process.close()

    with pytest.raises(IngestError) as caught:
        parse(process, path)

    assert caught.value.code == "stopped"
    assert process._worker is None


def test_hundred_files_leave_no_descriptor_and_no_child(tmp_path: Path) -> None:
    process = ParserProcess()
    path = tmp_path / "a.txt"
    path.write_text("一。", encoding="utf-8")
    try:
        parse(process, path)
        before = n_descriptors("self")
        assert process._worker is not None
        server = process._worker.pid
        server_before = n_descriptors(server)
        for _ in range(100):
            parse(process, path)
        assert n_descriptors("self") == before
        assert n_descriptors(server) == server_before
        assert Path(f"/proc/{server}/task/{server}/children").read_text() == ""
    finally:
        process.kill()


def n_descriptors(pid: int | str) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_parser_ends_with_the_daemon(tmp_path: Path) -> None:
    bomb = files.pdf_flate_bomb(tmp_path / "bomb.pdf", 512 * MIB)
    program = (
        "import sys, threading, time; from appliance.parsers.process import ParserProcess;"
        "from appliance.parsers.base import Limits; p = ParserProcess();"
        "t = threading.Thread(target=p.parse, args=(sys.argv[1].encode(), 'bomb.pdf', Limits()));"
        "t.start()\nwhile p._worker is None: time.sleep(0.01)\n"
        "print(p._worker.pid, flush=True); t.join()"
    )
    daemon = subprocess.Popen(
        [sys.executable, "-c", program, str(bomb)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with daemon:
        assert daemon.stdout is not None
        server = int(daemon.stdout.readline())
        children = Path(f"/proc/{server}/task/{server}/children")
        deadline = time.monotonic() + 20.0
        while not (running := children.read_text().split()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        daemon.kill()

    for pid in [server, int(running[0])]:
        while is_running(pid):
            assert time.monotonic() < deadline, f"process {pid} outlived the daemon"
            time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def test_docx_with_properties_of_a_wrong_type_is_read(
    parser: ParserProcess, tmp_path: Path
) -> None:
    path = files.docx(tmp_path / "a.docx", [("正文。", None)])
    files.change_member(path, "[Content_Types].xml", b"core-properties+xml", b"core-propertyes+xml")

    assert parse(parser, path).blocks[0].text == "正文。"


@pytest.mark.parametrize("seed", range(4))
def test_docx_whose_parts_are_spoiled_is_read_or_damaged(
    parser: ParserProcess, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    members = ["word/document.xml", "word/styles.xml", "[Content_Types].xml"]
    for n in range(10):
        path = tmp_path / f"{n}.docx"
        path.write_bytes((SAMPLES / "学生手册.docx").read_bytes())
        # Inside the archive, so that the checksum of the zip does not stop it at the door.
        files.spoil_member(path, members[n % 3], rng)
        assert outcome(parser, path, LIMITS) in (None, "damaged", "empty_document")


def outcome(parser: ParserProcess, path: Path, limits: Limits) -> str | None:
    """The code of the reason why a file was not read, None when it was."""
    try:
        parse(parser, path, limits)
    except IngestError as error:
        return error.code
    return None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["pdf", "docx", "html", "md", "txt"])
def test_flipped_bytes_never_hang_or_kill(
    parser: ParserProcess, tmp_path: Path, kind: str, seed: int
) -> None:
    rng = random.Random(f"{kind}{seed}")
    if kind == "pdf":
        raw = (SAMPLES / "riverboard-manual.pdf").read_bytes()
    elif kind == "docx":
        raw = (SAMPLES / "学生手册.docx").read_bytes()
    elif kind == "html":
        raw = ("<html><body>" + "<p>段落 <b>粗</b></p>" * 50 + "</body></html>").encode()
    else:
        raw = (SAMPLES / "光合作用教案.md").read_bytes()
    for n in range(10):
        spoiled = bytearray(raw)
        for _ in range(rng.randint(1, 30)):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        path = tmp_path / f"{n}.{kind}"
        path.write_bytes(bytes(spoiled))
        code = outcome(parser, path, Limits(max_seconds=10.0, max_memory_bytes=512 * MIB))
        assert code is None or code in SENTENCES
