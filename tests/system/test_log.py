from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from appliance.system import log


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers = handlers
    root.setLevel(level)


def written(*, debug: bool = False, environ: dict[str, str] | None = None) -> io.StringIO:
    stream = io.StringIO()
    log.set_up("info", debug=debug, environ=environ or {}, stream=stream)
    return stream


def test_record_is_one_line_whatever_it_holds() -> None:
    stream = written()

    logging.getLogger("a").info("name: %s", "x\nERROR forged\r\ny")

    assert stream.getvalue().count("\n") == 1
    assert "x\\nERROR forged\\r\\ny" in stream.getvalue()


def test_traceback_is_shown_only_with_debug() -> None:
    for debug in (False, True):
        stream = written(debug=debug)
        try:
            int("坏了")
        except ValueError:
            logging.getLogger("a").exception("failed")

        assert "坏了" in stream.getvalue()
        assert ("Traceback" in stream.getvalue()) is debug


def test_journal_gets_levels_and_no_time() -> None:
    stream = written(environ={"JOURNAL_STREAM": "8:1"})

    logging.getLogger("a").warning("full")

    assert stream.getvalue() == "<4>WARNING a [MainThread] full\n"


def test_level_below_the_configured_one_is_left_out() -> None:
    stream = written()

    logging.getLogger("a").debug("noise")

    assert stream.getvalue() == ""
