"""``appliance kb``: what the box has read."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.client import Client
from appliance.errors import EXIT_DONE, EXIT_FAILED, ApplianceError, NotFoundError
from appliance.frontends.terminal import screens
from appliance.frontends.terminal.layout import clean
from appliance.messages import Lang
from appliance.units import human_bytes

_POLL_S = 0.25

# While these hold the worker back, waiting helps; anything else needs a person.
_PASSES_BY_ITSELF = frozenset({"engine_stopped", "store_full", "queue_full", "ingest_short"})


def list_files(arguments: Namespace, output: Output) -> int:
    """Print every file with its state."""
    found = connect(arguments, output).get("/api/files")
    if output.is_json:
        output.json(found)
    else:
        inbox = str(arguments.data / "inbox")
        output.line(screens.documents_screen(found["files"], output.lang, inbox))
    return EXIT_DONE


def show(arguments: Namespace, output: Output) -> int:
    """Print a document's text with its pages and headings."""
    client = connect(arguments, output)
    document = client.get(f"/api/documents/{_document_id(client, arguments.document)}")
    found = client.get(f"/api/documents/{document['id']}/passages")
    if output.is_json:
        output.json({**document, "passages": found["passages"]})
        return EXIT_DONE
    output.line(f"{clean(document['title'])} ({', '.join(map(clean, document['paths']))})")
    for problem in document["problems"]:
        if problem.get("member"):
            output.line(f"  {clean(problem['member'])}: {clean(problem['reason'])}")
        else:
            output.say("page_problem", page=problem["page"], reason=clean(problem["reason"]))
    shown = ""
    for passage in found["passages"]:
        item = {**passage, "path": document["paths"][0]}
        where = screens.place(item, output.lang)
        if where != shown:
            output.line(f"\n--- {where}")
            shown = where
        output.line(clean(passage["text"]))
    return EXIT_DONE


def search(arguments: Namespace, output: Output) -> int:
    """Print the best passages."""
    query = {
        "q": arguments.query,
        "k": arguments.k,
        "collection": arguments.collection,
        "type": arguments.type,
        "path": arguments.path,
        "since": arguments.since,
        "until": arguments.until,
    }
    found = connect(arguments, output).get("/api/search", query)
    if output.is_json:
        output.json(found)
    else:
        output.line(screens.hits_screen(found, output.lang))
        if arguments.explain:
            output.line(screens.explain_screen(found, output.lang))
    return EXIT_DONE


def remove(arguments: Namespace, output: Output) -> int:
    """Forget a document."""
    client = connect(arguments, output)
    found = client.post("/api/files/remove", {"path": _path(client, arguments.document)})
    if output.is_json:
        output.json(found)
    else:
        for path in found["paths"]:
            output.say("removed", path=clean(path))
    return EXIT_DONE


def reindex(arguments: Namespace, output: Output) -> int:
    """Have documents read again."""
    client = connect(arguments, output)
    if arguments.vectors:
        found = client.post("/api/files/reindex", {"vectors": True})
        if not output.is_json:
            output.say("reembedding", n_passages=found["n_passages"])
            return EXIT_DONE
    elif arguments.all:
        found = client.post("/api/files/reindex", {"all": True})
    else:
        found = client.post("/api/files/reindex", {"path": _path(client, arguments.document)})
    if output.is_json:
        output.json(found)
    else:
        output.say("requeued", n_files=found["n_files"])
    return EXIT_DONE


def stats(arguments: Namespace, output: Output) -> int:
    """Print the counts."""
    found = connect(arguments, output).get("/api/kb/stats")
    if output.is_json:
        output.json(found)
        return EXIT_DONE
    output.say("stats_line", **found)
    for state, count in found["by_state"].items():
        output.line(f"  {count:>6}  {output.label(f'file_{state}')}")
    for failed in found["failed"]:
        output.line(f"  {clean(failed['path'])}: {clean(failed['reason'])}")
    return EXIT_DONE


def wait(arguments: Namespace, output: Output) -> int:
    """Wait until nothing is left to read or embed, showing how far it is."""
    client = connect(arguments, output)
    limit_s: float | None = arguments.timeout
    deadline = None if limit_s is None else time.monotonic() + limit_s
    progress = client.post("/api/kb/rescan")
    with output.progress() as line:
        while progress["n_files_waiting"] or progress["n_passages_waiting"]:
            line.show(screens.progress_line(progress, output.lang))
            _demand_hope(client, progress, output)
            if deadline is not None and time.monotonic() > deadline:
                raise ApplianceError(
                    "wait_timeout",
                    timeout_s=limit_s,
                    n_files=progress["n_files_waiting"],
                    n_passages=progress["n_passages_waiting"],
                )
            time.sleep(_POLL_S)
            progress = client.get("/api/kb/progress")
    if output.is_json:
        output.json(client.get("/api/kb/stats"))
    else:
        output.line(screens.progress_line(progress, output.lang))
    return EXIT_DONE


def check(arguments: Namespace, output: Output) -> int:
    """Look for inconsistencies; fails when there are any."""
    problems: list[str] = connect(arguments, output).post("/api/kb/check")["problems"]
    if output.is_json:
        output.json({"problems": problems})
        return EXIT_FAILED if problems else EXIT_DONE
    for problem in problems:
        output.line(problem)
    if problems:
        raise ApplianceError("store_inconsistent", n_problems=len(problems))
    output.say("check_ok")
    return EXIT_DONE


def vacuum(arguments: Namespace, output: Output) -> int:
    """Give the space of deleted documents back to the disk."""
    found = connect(arguments, output).post("/api/kb/vacuum")
    if output.is_json:
        output.json(found)
    else:
        sizes = {name: human_bytes(found[f"bytes_{name}"]) for name in ("before", "after")}
        output.say("vacuumed", **sizes)
    return EXIT_DONE


def import_folder(arguments: Namespace, output: Output) -> int:
    """Copy the documents of a stick or folder into the inbox and say what became of each."""
    from appliance.config import load
    from appliance.core.importing import import_folder as copy_in
    from appliance.messages import sentence

    config = load(arguments.data)
    with output.progress() as line:
        report = copy_in(
            arguments.folder,
            config.inbox_dir,
            max_files=arguments.max_files,
            max_file_bytes=config.ingest.max_file_bytes,
            on_progress=lambda n, total, path: line.show(
                output.label("import_progress", n=n + 1, total=total, path=clean(path))
            ),
        )
    lang: Lang = "zh" if output.lang == "zh" else "en"
    left_out = [
        {"path": path, "code": code, "reason": str(sentence(code, lang, facts))}
        for path, code, facts in report.left_out
    ]
    if output.is_json:
        output.json({**asdict(report), "left_out": left_out})
    else:
        output.say(
            "import_done",
            n_copied=len(report.copied),
            size=human_bytes(report.n_bytes),
            n_there=len(report.already_there),
            n_left=len(left_out),
        )
        for item in left_out:
            output.line(f"  {clean(item['path'])}: {clean(item['reason'])}")
    return EXIT_DONE


def _demand_hope(client: Client, progress: dict[str, Any], output: Output) -> None:
    """Leave when waiting will not help: every file is read, but no embedder can be had.

    Raises:
        ApplianceError: code ``wait_stuck`` with the reason.
    """
    code = progress["waiting_for"]
    if progress["n_files_waiting"] or code is None or code in _PASSES_BY_ITSELF:
        return
    problems = client.get("/api/status")["problems"]
    causes = [problem["message"] for problem in problems if problem["code"] == code]
    if not causes:
        from appliance.messages import sentence

        causes = [str(sentence(code, "zh" if output.lang == "zh" else "en"))]
    raise ApplianceError("wait_stuck", cause=causes[0])


def _path(client: Client, name: str) -> str:
    """Return the path for a document's number; any other name is the daemon's to resolve."""
    if not name.isdigit():
        return name
    return str(client.get(f"/api/documents/{name}")["paths"][0])


def _document_id(client: Client, name: str) -> int:
    """Return a document's number for its number, path or bare name.

    Raises:
        NotFoundError: no document, or several, answer to that name.
    """
    if name.isdigit():
        return int(name)
    files = client.get("/api/files")["files"]
    exact = [file for file in files if file["path"] == name]
    by_name = [file for file in files if file["path"].rsplit("/", 1)[-1] == name]
    for found in (exact, by_name):
        if len(found) == 1 and found[0]["document"] is not None:
            return int(found[0]["document"])
    raise NotFoundError("document_not_found", name=name)
