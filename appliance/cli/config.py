"""``appliance config``."""

from __future__ import annotations

from argparse import Namespace

from appliance import config as configuration
from appliance.cli.output import Output
from appliance.errors import EXIT_DONE


def check(arguments: Namespace, output: Output) -> int:
    """Report every mistake; exit status 78 when there is one."""
    from appliance.frontends.http.guard import read_api_key

    path = arguments.data / configuration.CONFIG_NAME
    read_api_key(configuration.load(arguments.data).http)
    if output.is_json:
        output.json({"path": str(path), "exists": path.exists(), "ok": True})
    else:
        output.say("config_ok" if path.exists() else "config_absent", path=path)
    return EXIT_DONE


def show(arguments: Namespace, output: Output) -> int:
    """Print what is in force."""
    if arguments.defaults:
        found = configuration.Config(data=arguments.data)
    else:
        found = configuration.load(arguments.data)
    output.piece(configuration.to_yaml(found, defaults=arguments.defaults))
    return EXIT_DONE


def reference(_arguments: Namespace, output: Output) -> int:
    """Print docs/configuration.md."""
    output.piece(configuration.reference_markdown())
    return EXIT_DONE
