"""``appliance serve``."""

from __future__ import annotations

import os
from argparse import Namespace

from appliance.cli.output import Output


def serve(arguments: Namespace, output: Output) -> int:
    """Run the daemon; returns when it was told to stop."""
    from appliance import daemon

    return daemon.run(
        daemon.ServeOptions(
            data=arguments.data,
            port=arguments.port,
            ready_file=arguments.ready_file,
            debug=arguments.debug,
            lang="zh" if output.lang == "zh" else "en",
        ),
        os.environ,
    )
