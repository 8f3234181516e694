"""``appliance doctor``."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from appliance import config as configuration
from appliance.cli.connect import connect
from appliance.cli.output import Output
from appliance.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    ApplianceError,
    ConfigError,
    Fact,
    FrontendError,
)

_MARKS = {"ok": "OK  ", "warn": "WARN", "fail": "FAIL", "skip": "-   "}


def doctor(arguments: Namespace, output: Output) -> int:
    """Check the box; exit status 1 when something failed, 78 when the configuration is wrong."""
    from appliance.doctor import Finding, Machine, examine, write_bundle
    from appliance.messages import Lang, sentence

    lang: Lang = "zh" if output.lang == "zh" else "en"
    problem: ConfigError | None = None
    try:
        config = configuration.load(arguments.data)
    except ConfigError as error:
        problem, config = error, configuration.Config(data=arguments.data)
    status = _status(arguments, output)
    machine = Machine(config, is_daemon_running=status is not None)
    rows: list[dict[str, Any]] = []

    def show(finding: Finding) -> None:
        said = sentence(finding.code, lang, finding.facts)
        step = said.next_step if finding.state in ("warn", "fail") else ""
        rows.append(
            {
                "item": finding.item,
                "state": finding.state,
                "code": finding.code,
                "message": said.message,
                "next_step": step,
                "facts": finding.facts,
            }
        )
        if not output.is_json and (finding.state != "skip" or arguments.verbose):
            output.line(f"{_MARKS[finding.state]}  {finding.item:<12}  {said.message}")
            if step:
                output.line(f"{'':20}{step}")

    if problem is not None:
        if not output.is_json:
            output.error(problem)
        show(Finding("config", "fail", "doctor_config_wrong", {"n": len(problem.problems)}))
    for finding in examine(machine, thorough=arguments.full):
        show(finding)
    if status is not None:
        show(_of_daemon(arguments, output))
    n_failed = sum(row["state"] == "fail" for row in rows)
    n_warned = sum(row["state"] == "warn" for row in rows)
    bundle = _bundle_path(arguments)
    if bundle is not None:
        try:
            write_bundle(machine, bundle, rows, status)
        except OSError as error:
            cause = error.strerror or str(error)
            raise FrontendError("file_unwritable", path=str(bundle), cause=cause) from error
    if output.is_json:
        output.json(
            {"ok": not n_failed, "findings": rows, "bundle": str(bundle) if bundle else None}
        )
    else:
        output.line()
        output.say("doctor_summary", failed=n_failed, warned=n_warned)
        if bundle:
            output.say("doctor_bundle", path=bundle)
    if problem is not None:
        return problem.exit_status
    return EXIT_FAILED if n_failed else EXIT_DONE


def _status(arguments: Namespace, output: Output) -> dict[str, Any] | None:
    """Return what a running daemon says of itself, None when there is none to ask."""
    try:
        found: dict[str, Any] = connect(arguments, output).get("/api/status")
    except ApplianceError:
        return None
    return found


def _of_daemon(arguments: Namespace, output: Output) -> Any:  # noqa: ANN401 - imported late
    """Return the finding about a store that a running daemon holds open."""
    from appliance.doctor import Finding

    client = connect(arguments, output)
    problems = client.post("/api/kb/check")["problems"]
    counts = client.get("/api/status")["documents"]
    if problems:
        facts: dict[str, Fact] = {"n": len(problems), "first": str(problems[0])}
        return Finding("store", "fail", "doctor_store_inconsistent", facts)
    facts = {"documents": counts["documents"], "passages": counts["passages"]}
    return Finding("store", "ok", "doctor_store", facts)


def _bundle_path(arguments: Namespace) -> Path | None:
    if arguments.bundle is None:
        return None
    if arguments.bundle:
        return Path(arguments.bundle)
    return Path(time.strftime("appliance-support-%Y%m%d-%H%M%S.tar.gz"))
