"""From ``--data`` to a client of the daemon that runs on it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from appliance.cli.output import Output
from appliance.client import Client


def connect(arguments: Namespace, output: Output) -> Client:
    """Return a client of the running daemon.

    Raises:
        DaemonUnreachableError: none runs on this data folder.
        ConfigError: the configuration names a key file that cannot be read.
    """
    data: Path = arguments.data
    return Client.of_data_folder(data, data / "run" / "daemon.json", _api_key(data), output.lang)


def _api_key(data: Path) -> str | None:
    """Return the daemon's key; most boxes have no configuration file, and then nothing is read."""
    if not (data / "appliance.yaml").exists():
        return None
    from appliance import config
    from appliance.frontends.http.guard import read_api_key

    return read_api_key(config.load(data).http)
