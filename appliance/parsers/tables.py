"""Spreadsheets and CSV: every row says what its cells mean, blocks know their cells."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterable, Iterator, Sequence

import python_calamine as calamine

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers.archive import OLE_MAGIC, check_archive, demand_no_ole
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.parsers.odf import demand_open
from appliance.parsers.plain import read_text

_BLOCK_CHARS = 480
_BLOCK_ROWS = 30
_HEADER_DEPTH = 5
"""Rows from the top in which column names are looked for: a title may stand above them."""

Cell = object


class SheetParser:
    """Workbooks; a block is some rows of one sheet."""

    format = "xlsx"
    suffixes = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        with open(path, "rb") as file:  # noqa: PTH123 - the path may not be valid Unicode
            head = file.read(8)
        kind = "xls"
        if head != OLE_MAGIC:
            check_archive(path, limits, "XLSX")
            kind = "ods" if demand_open(path) else "xlsx"
        blocks: list[Block] = []
        n_chars = 0
        try:
            with calamine.CalamineWorkbook.from_path(path) as book:
                for name in book.sheet_names:
                    sheet = book.get_sheet_by_name(name)
                    start = sheet.start
                    if start is None:
                        continue
                    rows = sheet.to_python(skip_empty_area=True)
                    for block in table_blocks(rows, (name,), start[0] + 1, start[1]):
                        n_chars += len(block.text)
                        if n_chars > limits.max_text_chars:
                            raise LimitExceededError("too_much_text", limit=limits.max_text_chars)
                        blocks.append(block)
        except calamine.PasswordError as error:
            raise ParseFailedError("encrypted") from error
        except (calamine.CalamineError, ValueError, OSError, IndexError) as error:
            if head == OLE_MAGIC:
                demand_no_ole(path)
            raise ParseFailedError("damaged", format=kind.upper()) from error
        if not blocks:
            raise NoTextError("empty_document")
        title = blocks[0].text.split("\n")[0] if len(book.sheet_names) == 1 else book.sheet_names[0]
        return ParsedDocument(kind, title[:120], tuple(blocks))


class CsvParser:
    """``.csv`` and ``.tsv``; lines are the provenance."""

    format = "csv"
    suffixes = (".csv", ".tsv")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        decoded = read_text(path)
        csv.field_size_limit(limits.max_text_chars)
        reader = csv.reader(io.StringIO(decoded.text), _dialect(decoded.text))
        rows: list[list[str]] = []
        ends: list[int] = []
        try:
            for row in reader:
                rows.append(row)
                ends.append(reader.line_num)
        except csv.Error as error:
            raise ParseFailedError("damaged", format="CSV") from error
        blocks = list(table_blocks(rows, (), 1, 0, ends))
        if not blocks:
            raise NoTextError("empty_document")
        return ParsedDocument(
            self.format, blocks[0].text.split("\n")[0][:120], tuple(blocks), None, decoded.encoding
        )


def _dialect(text: str) -> type[csv.Dialect]:
    """Return the dialect whose delimiter stands equally often in the first lines."""

    class Found(csv.excel):
        delimiter = ","

    best = 0.0
    lines = [line for line in text[:20000].split("\n") if line.strip()][:50]
    for mark in ",\t;|":
        counts = [line.count(mark) for line in lines]
        with_most = max(counts, key=counts.count)
        score = with_most and counts.count(with_most) / len(counts)
        if score > best:
            best, Found.delimiter = score, mark
    return Found


def table_blocks(
    rows: Sequence[Sequence[Cell]],
    heading: tuple[str, ...],
    first_row: int,
    first_column: int,
    line_ends: Sequence[int] | None = None,
) -> Iterator[Block]:
    """Yield rows in blocks of a passage's size, each cell under its column's name.

    Args:
        rows: cells as the library gives them.
        heading: of every block, the sheet's name.
        first_row: number of the first row, from 1.
        first_column: number of the first column, from 0.
        line_ends: last line of each row in a line-oriented file; then lines are the provenance,
            else cells are.
    """
    header_at = _header_row(rows)
    names = [_text(cell) for cell in rows[header_at]] if header_at is not None else []
    lines: list[str] = []
    begin = end = 0
    width = 0

    def block() -> Block:
        text = "\n".join(lines)
        if line_ends is not None:
            line_from = line_ends[begin - 1] + 1 if begin else 1
            return Block(text, heading=heading, line_from=line_from, line_to=line_ends[end])
        first = f"{column_name(first_column)}{first_row + begin}"
        last = f"{column_name(first_column + max(width, 1) - 1)}{first_row + end}"
        return Block(text, heading=heading, place=first if first == last else f"{first}:{last}")

    for n, row in enumerate(rows):
        is_header = n == header_at
        line = _row_text(row, [] if is_header or (header_at or 0) > n else names)
        if not line:
            continue
        size = sum(map(len, lines))
        if lines and (size + len(line) > _BLOCK_CHARS or len(lines) >= _BLOCK_ROWS):
            yield block()
            lines, width = [], 0
        if not lines:
            begin = n
        lines.append(line)
        end = n
        width = max(width, *(at + 1 for at, cell in enumerate(row) if _text(cell)))
    if lines:
        yield block()


def _header_row(rows: Sequence[Sequence[Cell]]) -> int | None:
    """Return the row of column names: words in most columns, none twice, rows below it."""
    widest = max((sum(1 for cell in row if _text(cell)) for row in rows[:50]), default=0)
    for n, row in enumerate(rows[:_HEADER_DEPTH]):
        names = [_text(cell) for cell in row if _text(cell)]
        if (
            len(names) >= max(2, (widest + 1) // 2)
            and len(set(names)) == len(names)
            and all(isinstance(cell, str) for cell in row if _text(cell))
            and not any(_is_number(name) for name in names)
            and max(map(len, names)) <= 60
            and n + 1 < len(rows)
        ):
            return n
    return None


def _row_text(row: Iterable[Cell], names: Sequence[str]) -> str:
    cells = []
    for at, cell in enumerate(row):
        text = _text(cell)
        if not text:
            continue
        name = names[at] if at < len(names) else ""
        cells.append(f"{name}: {text}" if name else text)
    return " | ".join(cells)


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return " ".join(str(cell).split())


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True


def column_name(number: int) -> str:
    """Return the letters of a column counted from 0: A, ..., Z, AA."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
