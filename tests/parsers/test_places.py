"""Text and provenance of every format: what a person would say when asked where it stands."""

from __future__ import annotations

import importlib.util
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from appliance.config import Config, HttpConfig
from appliance.core import IngestWorker
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.system.clock import Clock
from appliance.units import MIB
from tests.conftest import MakeInside
from tests.doubles import ScriptedEngine
from tests.parsers import files, matrix
from tests.parsers.matrix import FACT

NO_OCR = Limits(max_seconds=20.0, ocr="off")


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess()
    yield process
    process.kill()


def read(
    parser: ParserProcess, tmp_path: Path, name: str, content: bytes, limits: Limits = NO_OCR
) -> ParsedDocument:
    path = tmp_path / name
    path.write_bytes(content)
    return parser.parse(bytes(path), name, limits)


def places(document: ParsedDocument) -> list[tuple[object, ...]]:
    return [(b.page, b.heading, b.place, b.text) for b in document.blocks]


def test_slides_are_pages_with_title_table_and_notes(parser: ParserProcess, tmp_path: Path) -> None:
    found = read(
        parser, tmp_path, "a.pptx", matrix.pptx(("规定", FACT), ("完", "谢谢"), notes="备注")
    )

    assert places(found) == [
        (1, ("规定",), None, FACT),
        (1, ("规定",), None, "备注"),
        (2, ("完",), None, "谢谢"),
        (2, ("完",), None, "备注"),
    ]
    assert found.n_pages == 2


def test_sheet_rows_say_their_columns_and_cells(parser: ParserProcess, tmp_path: Path) -> None:
    (block,) = read(parser, tmp_path, "a.xlsx", matrix.xlsx(matrix.ROWS)).blocks

    assert block.heading == ("课表",)
    assert block.place == "A1:C5"
    assert block.text.split("\n") == [
        "2026 年作息",
        "节次 | 开始 | 地点",
        "节次: 第一节 | 开始: 8:10 | 地点: 301 教室",
        "节次: 第二节 | 开始: 9:05 | 地点: 图书馆",
        "节次: 编号 | 开始: 20260901 | 地点: 3.5",
    ]


def test_long_sheet_is_cut_into_ranges_that_follow_each_other(
    parser: ParserProcess, tmp_path: Path
) -> None:
    rows: list[list[object]] = [["姓名", "电话"]]
    rows += [[f"学生{n}", 13800000000 + n] for n in range(100)]

    blocks = read(parser, tmp_path, "a.xlsx", matrix.xlsx(rows)).blocks

    assert len(blocks) > 3
    ends = [tuple(int(part[1:]) for part in b.place.split(":")) for b in blocks if b.place]
    assert ends[0][0] == 1
    assert ends[-1][1] == 101
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ends))
    assert "姓名: 学生99 | 电话: 13800000099" in blocks[-1].text


def test_csv_in_gbk_with_semicolons_has_lines(parser: ParserProcess, tmp_path: Path) -> None:
    raw = '名称;说明\n图书馆;"五点\n关门"\n食堂;六点\n'.encode("gb18030")

    (block,) = read(parser, tmp_path, "a.csv", raw).blocks

    assert (block.line_from, block.line_to, block.place) == (1, 4, None)
    assert "名称: 图书馆 | 说明: 五点 关门" in block.text


def test_old_workbook_and_opendocument_sheet_are_read(
    parser: ParserProcess, tmp_path: Path
) -> None:
    found = read(parser, tmp_path, "a.ods", matrix.odf("spreadsheet", matrix.ODS))

    assert found.format == "ods"
    assert places(found) == [(None, ("表",), "A1:B2", "名称 | 时间\n名称: 图书馆 | 时间: 五点关门")]


def test_opendocument_text_leaves_deleted_text_out(parser: ParserProcess, tmp_path: Path) -> None:
    found = read(parser, tmp_path, "a.odt", matrix.odf("text", matrix.ODT))

    assert places(found) == [
        (None, ("规定",), None, f"{FACT}  完"),
        (None, ("规定",), None, "甲 | 乙"),
    ]


def test_opendocument_slides_are_pages(parser: ParserProcess, tmp_path: Path) -> None:
    found = read(parser, tmp_path, "a.odp", matrix.odf("presentation", matrix.ODP))

    assert places(found) == [(1, ("开放时间",), None, FACT)]
    assert found.format == "odp"


@pytest.mark.parametrize("toc", [True, False], ids=["contents", "no contents"])
def test_book_has_chapters(parser: ParserProcess, tmp_path: Path, toc: bool) -> None:
    content = matrix.epub(("第一章 开放", FACT), ("第二章", "别的。"), toc=toc)

    found = read(parser, tmp_path, "a.epub", content)

    chapters = (("第一章 开放",), ("第二章",)) if toc else ((), ())
    assert [(b.heading, b.text) for b in found.blocks] == [
        (chapters[0], FACT),
        (chapters[1], "别的。"),
    ]
    assert found.title == "书"


def test_rtf_of_a_chinese_word_has_no_hidden_words(parser: ParserProcess, tmp_path: Path) -> None:
    (block,) = read(parser, tmp_path, "a.rtf", matrix.rtf(FACT)).blocks

    assert block.text.split("\n")[0] == FACT
    assert "second line" in block.text
    assert "hidden" not in block.text


def test_mail_names_its_attachments(parser: ParserProcess, tmp_path: Path) -> None:
    sound = matrix.valid()
    content = matrix.mail(("表.xlsx", sound["valid.xlsx"]), ("b.pdf", sound["valid.pdf"]))

    found = read(parser, tmp_path, "a.eml", content)

    assert found.title == "开放时间"
    assert any("Subject: 开放时间" in b.text for b in found.blocks)
    assert ((), FACT) in [(b.heading, b.text) for b in found.blocks]
    assert ("表.xlsx", "课表") in [b.heading for b in found.blocks]
    assert [b.page for b in found.blocks if b.heading == ("b.pdf",)] == [1]


def test_notebook_has_cells_headings_and_outputs(parser: ParserProcess, tmp_path: Path) -> None:
    content = matrix.notebook(("markdown", f"# 规定\n{FACT}"), ("code", "print(42)"))

    assert places(read(parser, tmp_path, "a.ipynb", content)) == [
        (None, ("规定",), "Cell 1", FACT),
        (None, ("规定",), "Cell 2", "print(42)\n42"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.srt", matrix.SRT, [("00:00:01-00:00:04", FACT), ("00:02:01-00:02:04", "第二句。")]),
        ("a.vtt", matrix.VTT, [("00:00:01-00:00:04", FACT)]),
    ],
)
def test_subtitles_have_times(
    parser: ParserProcess, tmp_path: Path, name: str, content: str, wanted: list[tuple[str, str]]
) -> None:
    found = read(parser, tmp_path, name, content.encode())

    assert [(b.place, b.text) for b in found.blocks] == wanted


def test_zip_of_windows_in_china_has_readable_names(parser: ParserProcess, tmp_path: Path) -> None:
    content = matrix.gbk_archive({"资料/说明.txt": FACT.encode("gbk")})

    assert places(read(parser, tmp_path, "a.zip", content)) == [
        (None, ("资料/说明.txt",), None, FACT)
    ]


def test_problem_inside_an_archive_names_the_member(parser: ParserProcess, tmp_path: Path) -> None:
    inner = matrix.archive({"坏.docx": b"broken", "b.txt": b"fine text"})
    content = matrix.archive({"里.zip": inner})

    (problem,) = read(parser, tmp_path, "a.zip", content).problems

    assert (problem.member, problem.code) == ("里.zip/坏.docx", "damaged")


def test_empty_page_is_no_problem_but_a_drawn_one_is(parser: ParserProcess, tmp_path: Path) -> None:
    from fpdf import FPDF

    document = FPDF()
    document.set_font("helvetica", size=12)
    document.add_page()
    document.multi_cell(0, 8, "Text.")
    document.add_page()
    document.add_page()
    document.rect(20, 20, 100, 100, style="F")

    found = read(parser, tmp_path, "a.pdf", bytes(document.output()))

    assert [(p.page, p.code) for p in found.problems] == [(3, "page_scanned")]


needs_ocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None, reason="the extra 'ocr' is not installed"
)


def picture_of(text: str) -> Image.Image:
    image = Image.new("RGB", (1240, 300), "white")
    ImageDraw.Draw(image).text((60, 100), text, fill="black", font=ImageFont.load_default(48))
    return image


@needs_ocr
@pytest.mark.slow
def test_scan_is_read_by_ocr_page_by_page(parser: ParserProcess, tmp_path: Path) -> None:
    out = io.BytesIO()
    picture_of("Closing time is 17:30 on weekdays").save(
        out, "PDF", save_all=True, append_images=[picture_of("Room 301 is the music room")]
    )

    found = read(parser, tmp_path, "a.pdf", out.getvalue(), Limits(max_seconds=120.0))

    assert [b.page for b in found.blocks] == [1, 2]
    assert "17:30" in found.blocks[0].text
    assert "301" in found.blocks[1].text
    assert found.problems == ()


@needs_ocr
@pytest.mark.slow
def test_ocr_without_memory_leaves_the_readable_pages(
    parser: ParserProcess, tmp_path: Path
) -> None:
    path = files.pdf(tmp_path / "a.pdf", ["Text.", ""])

    found = parser.parse(
        bytes(path), path.name, Limits(max_seconds=60.0, max_memory_bytes=450 * MIB)
    )

    assert [b.text for b in found.blocks] == ["Text."]
    assert [(p.page, p.code) for p in found.problems] == [(2, "page_ocr_memory")]


@needs_ocr
@pytest.mark.slow
def test_scans_are_read_again_once_ocr_is_there(make_inside: MakeInside) -> None:
    from appliance.config import IngestConfig

    engine = ScriptedEngine()
    without = make_inside(engine, ingest=IngestConfig(ocr="off"))
    picture_of("Room 301 is the music room").save(without.box.config.inbox_dir / "a.png")
    files.pdf(without.box.config.inbox_dir / "b.pdf", ["Text.", ""])
    without.wait()
    assert without.box.core.stats()["by_state"] == {"partial": 1, "failed": 1}
    worker = IngestWorker(
        Config(data=without.data, http=HttpConfig(port=0)),
        without.box.core._store,
        engine,
        Clock(),
    )

    worker._retry_failed()

    assert {file.display for file in without.box.core.files() if file.is_asked_for} == {
        "a.png",
        "b.pdf",
    }
