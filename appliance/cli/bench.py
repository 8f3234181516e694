"""``appliance bench``."""

from __future__ import annotations

import os
from argparse import Namespace

from appliance import config as configuration
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE, FrontendError
from appliance.frontends.terminal.layout import table
from appliance.system import log

COLUMNS = ("device", "weights", "threads", "ttft", "prefill", "decode", "kind")


def bench(arguments: Namespace, output: Output) -> int:
    """Measure, print, and make the run the baseline unless told not to."""
    from appliance.ops import bench as measuring
    from appliance.store.db import take_lock

    config = configuration.load(arguments.data)
    log.set_up("error", debug=arguments.debug, environ=os.environ)
    # A running daemon would be measured against itself, and would lose its speed meanwhile.
    os.close(take_lock(config.database))
    with output.progress() as line:
        found = measuring.run(
            config,
            lambda what: line.show(output.label("bench_measuring", what=what)),
            quick=arguments.quick,
        )
    baseline = measuring.read_baseline(config)
    slower = measuring.slower_than(found, baseline) if baseline else []
    path = None
    if not arguments.no_keep:
        try:
            path = measuring.keep(config, found)
        except OSError as error:
            cause = error.strerror or str(error)
            raise FrontendError("file_unwritable", path=str(config.data), cause=cause) from error
    if output.is_json:
        worse = [{"what": what, "before": old, "now": new} for what, old, new in slower]
        kept = str(path) if path else None
        output.json({**found.as_json(), "slower": worse, "kept": kept})
        return EXIT_DONE
    output.say("bench_head", model=found.model, machine=found.machine, date=found.date)
    rows = [[output.label(f"bench_col_{name}") for name in COLUMNS]]
    rows += [
        [
            row.device,
            row.weights,
            str(row.n_threads),
            f"{row.ttft_s:.2f} s",
            f"{row.prefill_tok_s:.0f} tok/s",
            f"{row.decode_tok_s:.1f} tok/s",
            output.label(f"bench_{row.kind}"),
        ]
        for row in found.answers
    ]
    for text in table(rows):
        output.line(text)
    figures = (
        ("bench_embedding", found.passages_per_s),
        ("bench_reading", found.pages_per_s),
        ("bench_search", found.search_ms),
    )
    for code, figure in figures:
        if figure is not None:
            output.say(code, n=figure)
    if found.plan:
        output.say("bench_plan", device=found.plan["device"], threads=found.plan["n_threads"])
    for what, old, new in slower:
        date = baseline["date"] if baseline else "?"
        output.say("bench_slower", date=date, what=what, old=old, new=new)
    if path:
        output.say("bench_kept", path=path)
    return EXIT_DONE
