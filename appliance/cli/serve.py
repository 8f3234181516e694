"""``appliance serve``."""

from __future__ import annotations

import os
from argparse import Namespace

from appliance.cli.output import Output


def serve(arguments: Namespace, output: Output) -> int:
    """Run the daemon; returns when it was told to stop."""
    from appliance import daemon

    def greet(box: daemon.Box) -> None:
        # A person who started it by hand is told where to go; a service's log says it already.
        if output.err.isatty():
            output.note(output.label("serving", url=box.http.url, inbox=box.config.inbox_dir))

    return daemon.run(
        daemon.ServeOptions(
            data=arguments.data,
            port=arguments.port,
            ready_file=arguments.ready_file,
            debug=arguments.debug,
            safe=arguments.safe,
            safe_after=arguments.safe_after,
            lang="zh" if output.lang == "zh" else "en",
        ),
        os.environ,
        on_ready=greet,
    )
