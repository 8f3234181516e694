"""Watching pip's folder while pip works in it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from appliance.models.index import _largest


def test_size_is_told_while_folders_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"x" * 7)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for n in range(20):
                folder = tmp_path / f"pip-{n}" / "deep"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "part").write_bytes(b"y" * 5)
            for n in range(20):
                shutil.rmtree(tmp_path / f"pip-{n}", ignore_errors=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        sizes = {_largest(tmp_path) for _ in range(300)}
    finally:
        stop.set()
        thread.join()

    assert sizes == {7}
