"""What the daemon's JSON looks like to a person: status, documents, hits, citations; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.frontends.terminal.layout import clean, cut, table, wrap
from appliance.messages.screen import say
from appliance.units import human_bytes

Json = Mapping[str, Any]

QUOTE_COLUMNS = 74
QUOTE_LINES = 4


def status_screen(status: Json, lang: str, url: str) -> str:
    """Return ``appliance status``: one screen in plain words."""
    memory, queue, documents = status["memory"], status["queue"], status["documents"]
    models, speed = status["models"], status["speed"]
    rows = [
        ["row_model", _model(models["generation"], lang)],
        ["row_embedder", _model(models["embedding"], lang)],
        ["row_device", f"{status['device']['name']}. {status['device']['reason']}"],
        ["row_queue", say("queue_line", lang, **queue)],
    ]
    if "layout" in status["device"]:
        layout = f"{status['device']['layout']}. {status['device']['layout_reason']}"
        rows.insert(3, ["row_layout", layout])
    if speed["prefill_tok_s"] and speed["decode_tok_s"]:
        line = say(
            "speed_line",
            lang,
            prefill=f"{speed['prefill_tok_s']:.0f}",
            decode=f"{speed['decode_tok_s']:.1f}",
        )
        rows.append(["", line])
    rows.append(["row_documents", say("documents_line", lang, **documents)])
    if documents["failed"]:
        rows.append(["", say("documents_failed", lang, n=len(documents["failed"]))])
    if status.get("selftest_outdated"):
        rows.append(["", say("selftest_outdated", lang)])
    rows.append(["row_work", progress_line(status["work"], lang)])
    rest = memory["own"] - min(memory["own"], memory.get("compute", 0))
    sizes = {
        "resident": human_bytes(memory["resident"]),
        "weights": human_bytes(memory["weights"]),
        "kv": human_bytes(memory.get("kv", 0)),
        "compute": human_bytes(memory.get("compute", 0)),
        "rest": human_bytes(rest),
    }
    rows.append(["row_memory", say("memory_line", lang, **sizes)])
    rows.append(
        [
            "",
            say(
                "memory_own",
                lang,
                own=human_bytes(memory["own"]),
                available=human_bytes(memory["machine_available"]),
                total=human_bytes(memory["machine_total"]),
            ),
        ]
    )
    kept = "history_kept" if status["keep_history"] else "history_unkept"
    rows.append(["row_history", say(kept, lang)])
    rows.append(["row_uptime", duration(status["uptime_s"], lang)])
    rows.append(["row_address", url])
    versions = status["versions"]
    shown = ", ".join(f"{name} {versions[name]}" for name in list(versions)[:3])
    rows.append(["row_versions", shown])
    lines = [say(f"state_{status['state']}", lang)]
    lines += table([[say(name, lang) if name else "", clean(text)] for name, text in rows])
    for problem in status["problems"]:
        lines += ["", say("row_problem", lang) + ": " + clean(_sentence(problem))]
    return "\n".join(lines)


def documents_screen(files: Sequence[Json], lang: str, inbox: str) -> str:
    """Return ``appliance kb list``: every file with its state, failures with their reason."""
    if not files:
        return say("no_files", lang, inbox=inbox)
    rows = [[say(f"list_head_{name}", lang) for name in ("state", "pages", "passages", "path")]]
    rows += [
        [
            say(f"file_{file['state']}", lang),
            _count(file["pages"]),
            _count(file["passages"]),
            clean(file["path"]),
        ]
        for file in files
    ]
    lines = table(rows)
    for n, file in reversed(list(enumerate(files, 1))):
        if file["reason"]:
            lines.insert(n + 1, f"    {clean(file['reason'])}")
    return "\n".join(lines)


def place(item: Json, lang: str) -> str:
    """Return where a citation or hit lies: file, page or heading or lines."""
    parts = [clean(item["path"])]
    if item["page"] is not None:
        parts.append(say("page", lang, page=item["page"]))
    if item["heading"]:
        parts.append(clean(item["heading"]))
    if item.get("place"):  # answers kept by an older version have none
        parts.append(clean(item["place"]))
    elif item["page"] is None and not item["heading"] and item["line_from"] is not None:
        first, last = item["line_from"], item["line_to"]
        if first == last:
            parts.append(say("line", lang, line=first))
        else:
            parts.append(say("lines", lang, line_from=first, line_to=last))
    return ", ".join(parts)


def citations_screen(citations: Sequence[Json], lang: str) -> str:
    """Return the sources below an answer: place, and the sentence it rests on."""
    lines = [say("sources", lang)]
    for citation in citations:
        lines.append(f"  [{citation['n']}] {place(citation, lang)}")
        quoted = wrap(f"“{clean(citation['quote']).strip()}”", QUOTE_COLUMNS)
        if len(quoted) > QUOTE_LINES:
            quoted = [*quoted[: QUOTE_LINES - 1], cut(quoted[QUOTE_LINES - 1], 74) + "…”"]
        lines += [f"      {line}" for line in quoted]
    return "\n".join(lines)


def evidence_screen(citations: Sequence[Json], lang: str) -> str:
    """Return what the answer will rest on, one line a passage."""
    lines = [say("evidence", lang, n=len(citations))]
    lines += [f"  [{citation['n']}] {place(citation, lang)}" for citation in citations]
    return "\n".join(lines)


def hits_screen(found: Json, lang: str) -> str:
    """Return ``appliance kb search``: rank, place, the text's beginning, each arm's rank."""
    if not found["hits"]:
        return say("nothing_found", lang)
    lines = [] if found["outcome"] is None else [say("below_bar", lang)]
    for hit in found["hits"]:
        arms = ", ".join(f"{name} #{arm['rank']}" for name, arm in hit["arms"].items())
        lines.append(f"{hit['rank']:>2}. {place(hit, lang)}  ({arms})")
        text = " ".join(clean(hit["text"]).split())
        lines.append(f"    {cut(text, QUOTE_COLUMNS * 2)}")
    return "\n".join(lines)


def explain_screen(found: Json, lang: str) -> str:
    """Return how a query was understood and why each hit stands where it does."""
    why, bar = found["explain"], found["relevance"]
    lines = [""]
    if why["read_as"] != found["query"]:
        lines.append(say("why_read_as", lang, query=clean(why["read_as"])))
    terms = [f"{clean(t['term'])} {t['df']} ({t['idf']:.1f})" for t in why["terms"]]
    lines += wrap(say("why_terms", lang, terms=", ".join(terms) or "-"), QUOTE_COLUMNS)
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in why["weights"].items())
    lines.append(say("why_weights", lang, weights=weights, rrf_k=why["rrf_k"]))
    closeness = "-" if bar["closeness"] is None else f"{bar['closeness']:.2f}"
    lines.append(
        say(
            "why_bar",
            lang,
            score=f"{bar['score']:.2f}",
            bar=f"{bar['bar']:.2f}",
            coverage=f"{bar['coverage']:.2f}",
            loose=f"{bar['loose']:.2f}",
            closeness=closeness,
        )
    )
    if bar["missing_codes"]:
        lines.append(say("why_codes", lang, codes=", ".join(map(clean, bar["missing_codes"]))))
    for hit in found["hits"]:
        arms = ", ".join(
            f"{name} #{arm['rank']} {arm['score']:.3f}" for name, arm in hit["arms"].items()
        )
        also = f"  = {', '.join(map(clean, hit['also']))}" if hit["also"] else ""
        lines.append(f"{hit['rank']:>2}. {hit['score']:.4f}  {arms}{also}")
    n, ms = why["n_passages"], f"{why['seconds'] * 1000:.0f}"
    lines.append(say("why_cost", lang, n=n, ms=ms))
    return "\n".join(lines)


def stats_line(answer: Json, lang: str) -> str:
    """Return the figures of one answer."""
    timings, usage = answer["timings"], answer["usage"]
    writing_s = timings["total_s"] - timings["ttft_s"]
    rate = usage["completion_tokens"] / writing_s if writing_s > 0 else 0.0
    return say(
        "answer_stats",
        lang,
        model=answer["model"] or "-",
        n_out=usage["completion_tokens"],
        n_in=usage["prompt_tokens"],
        ttft_s=f"{timings['ttft_s']:.1f}",
        tok_s=f"{rate:.1f}",
    )


def progress_line(progress: Json, lang: str) -> str:
    """Return how far reading and embedding are."""
    if not progress["n_files_waiting"] and not progress["n_passages_waiting"]:
        return say("work_done", lang)
    parts: list[str] = []
    if progress["n_files_waiting"]:
        waiting, n_files = progress["n_files_waiting"], progress["n_files"]
        parts.append(say("work_files", lang, waiting=waiting, n_files=n_files))
    if progress["n_passages_waiting"]:
        parts.append(say("work_passages", lang, passages=progress["n_passages_waiting"]))
    if progress["passages_per_s"]:
        parts.append(say("work_rate", lang, rate=f"{progress['passages_per_s']:.1f}"))
    if progress["eta_s"]:
        parts.append(say("work_eta", lang, eta=duration(progress["eta_s"], lang)))
    if progress["current"]:
        parts.append(say("work_current", lang, path=clean(progress["current"])))
    return ", ".join(parts)


def duration(seconds: float, lang: str) -> str:
    """Return a duration in its two largest units."""
    whole = int(seconds)
    days, hours = whole // 86400, whole // 3600 % 24
    minutes, rest = whole // 60 % 60, whole % 60
    if days:
        return say("duration_days", lang, days=days, hours=hours)
    if hours:
        return say("duration_hours", lang, hours=hours, minutes=minutes)
    if minutes:
        return say("duration_minutes", lang, minutes=minutes, seconds=rest)
    return say("duration_seconds", lang, seconds=rest)


def _model(model: Json, lang: str) -> str:
    return say(f"model_state_{model['state']}", lang, name=model["name"])


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _sentence(problem: Json) -> str:
    return f"{problem['message']} {problem['next_step']}".strip()
