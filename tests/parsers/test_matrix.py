"""Every format in every condition: an outcome with a reason, never a hang, never a dead daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import IngestError
from appliance.messages import LANGS, SENTENCES, sentence
from appliance.parsers.base import Limits
from appliance.parsers.process import ParserProcess
from appliance.parsers.registry import SUFFIXES
from appliance.units import MIB
from tests.conftest import MakeInside
from tests.doubles import ScriptedEngine
from tests.faults.flip_bytes import flip_all
from tests.parsers import matrix

LIMITS = Limits(
    max_seconds=20.0, max_memory_bytes=512 * MIB, max_inflated_bytes=64 * MIB, ocr="off"
)
MATRIX = matrix.build()


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess()
    yield process
    process.kill()


def outcome_of(parser: ParserProcess, path: Path) -> str:
    try:
        document = parser.parse(bytes(path), path.name, LIMITS)
    except IngestError as error:
        for lang in LANGS:
            said = sentence(error.code, lang, error.facts)
            assert said.message
            assert said.next_step
        return error.code
    assert document.blocks
    for problem in document.problems:
        assert problem.code in SENTENCES
    return "partial" if document.problems else "ready"


@pytest.mark.parametrize("name", MATRIX)
def test_file_of_the_matrix_ends_as_it_must(
    parser: ParserProcess, tmp_path: Path, name: str
) -> None:
    content, wanted = MATRIX[name]
    path = tmp_path / name
    path.write_bytes(content)

    outcome = outcome_of(parser, path)

    if isinstance(wanted, str):
        assert outcome == wanted
    elif name.startswith(("spoiled", "cut")):
        assert outcome in wanted | {"ready", "partial"}
    else:
        assert outcome in wanted


def test_matrix_covers_every_format() -> None:
    covered = {Path(name).suffix for name in MATRIX}
    twins = {".text", ".log", ".markdown", ".htm", ".xhtml", ".docm", ".pptm", ".ppsx", ".xlsm"}
    twins |= {".xlsb", ".xls", ".ott", ".otp", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"}

    assert SUFFIXES - covered - twins == set()
    assert len(MATRIX) >= 60


@pytest.mark.slow
def test_daemon_survives_the_whole_matrix(make_inside: MakeInside, engine: ScriptedEngine) -> None:
    from appliance.config import IngestConfig

    inside = make_inside(
        engine,
        ingest=IngestConfig(
            max_seconds=20.0, max_memory_bytes=512 * MIB, max_inflated_bytes=64 * MIB, ocr="off"
        ),
    )
    for name, (content, _) in MATRIX.items():
        (inside.box.config.inbox_dir / name).write_bytes(content)
    inside.wait()

    listed = inside.client.get("/api/files")["files"]

    assert {row["path"] for row in listed} == set(MATRIX)
    assert {row["state"] for row in listed} <= {"ready", "partial", "failed"}
    assert all(row["reason"] for row in listed if row["state"] == "failed")
    assert inside.box.core.check() == []


@pytest.mark.slow
def test_random_byte_flips_cost_only_their_file(parser: ParserProcess, tmp_path: Path) -> None:
    codes = flip_all(parser, matrix.valid(), tmp_path, n_flips=200, seed=3)

    assert sum(codes.values()) == 200
    assert set(codes) - {"ready", "partial"} <= set(SENTENCES)
