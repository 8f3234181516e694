"""``_STATUS.txt`` and ``_status.json`` in the inbox: how far reading is, and what failed and why.

For people who see the folder and nothing else: a share on the network, a stick that came back. Both
languages stand in the one text, and what is said there is what ``appliance kb list`` says.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appliance.core import DocumentRow, FileRow, Progress
from appliance.messages import Lang, sentence
from appliance.messages.screen import say
from appliance.system import files

TEXT_NAME = "_STATUS.txt"
JSON_NAME = "_status.json"

_MOST_LISTED = 500


class StatusFiles:
    """Writes both files when what they say has changed; a folder that cannot be written is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: tuple[str, str] | None = None

    def write(
        self,
        known: Sequence[FileRow],
        documents: Sequence[DocumentRow],
        progress: Progress,
    ) -> None:
        """Bring the files up to date; an inbox that never held anything stays empty."""
        if not known and not (self._folder / TEXT_NAME).exists():
            return
        told = status_of(known, documents, progress)
        content = (text_of(told), json.dumps(told, ensure_ascii=False, indent=1) + "\n")
        if content == self._written and (self._folder / TEXT_NAME).exists():
            return
        # Read-only, full or gone: the folder's owner has other ways to look, and status tells.
        with contextlib.suppress(OSError):
            # A mark first: Windows' editor takes text without one for the local code page.
            files.write_whole(self._folder / TEXT_NAME, ("\ufeff" + content[0]).encode())
            files.write_whole(self._folder / JSON_NAME, content[1].encode())
            self._written = content


def status_of(
    known: Sequence[FileRow], documents: Sequence[DocumentRow], progress: Progress
) -> dict[str, Any]:
    """Return what ``_status.json`` holds."""
    by_id = {row.id: row for row in documents}
    counts = {"ready": 0, "partial": 0, "failed": 0, "waiting": 0, "ignored": 0}
    problems: list[dict[str, Any]] = []
    for file in known:
        document = by_id.get(file.document_id or 0)
        if file.state == "failed" and file.error_code is not None:
            counts["failed"] += 1
            problems.append(_problem(file.display, file.error_code, dict(file.error_facts)))
        elif file.state == "ignored":
            counts["ignored"] += 1
        elif file.state == "linked" and document is not None and document.state != "searchable":
            counts[document.state] += 1
            if document.state == "partial":
                problems += [
                    _problem(
                        f"{file.display}/{part['member']}" if part.get("member") else file.display,
                        part["code"],
                        {**part.get("facts", {}), "page": part.get("page")},
                    )
                    for part in document.problems
                ]
        else:
            counts["waiting"] += 1
    return {
        "counts": counts,
        "progress": {key: _rounded(value) for key, value in asdict(progress).items()},
        "problems": problems[:_MOST_LISTED],
        "problems_not_listed": max(0, len(problems) - _MOST_LISTED),
    }


def text_of(told: dict[str, Any]) -> str:
    """Return what ``_STATUS.txt`` says: Chinese first, then the same in English."""
    return "\r\n".join([*_lines(told, "zh"), "", "-" * 60, "", *_lines(told, "en"), ""])


def _lines(told: dict[str, Any], lang: Lang) -> list[str]:
    progress, counts = told["progress"], told["counts"]
    lines = [say("inbox_counts", lang, **counts)]
    if progress["n_files_waiting"] or progress["n_passages_waiting"]:
        rate, eta = progress["passages_per_s"], progress["eta_s"]
        lines.append(
            say(
                "inbox_progress",
                lang,
                files=progress["n_files_waiting"],
                passages=progress["n_passages_waiting"],
                rate="-" if rate is None else f"{rate:g}",
                eta="-" if eta is None else f"{eta / 60:.0f}",
            )
        )
        lines.append(say("inbox_search_works", lang))
    else:
        lines.append(say("inbox_done", lang))
    for problem in told["problems"]:
        lines += ["", problem["path"], f"  {problem[lang]}"]
    if told["problems_not_listed"]:
        lines += ["", say("inbox_more", lang, n=told["problems_not_listed"])]
    return lines


def _problem(path: str, code: str, facts: dict[str, Any]) -> dict[str, Any]:
    said = {"zh": str(sentence(code, "zh", facts)), "en": str(sentence(code, "en", facts))}
    return {"path": path, "code": code, **said}


def _rounded(value: object) -> object:
    """Return a figure coarse enough that the file is not written for every passage."""
    return float(f"{value:.2g}") if isinstance(value, float) else value
