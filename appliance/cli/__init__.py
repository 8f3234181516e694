"""The command line: argv to a command, errors to a sentence and an exit status.

Nothing heavy is imported before the command is known: ``appliance ask`` talks to the daemon with
the standard library alone. Exit status: 0 done, 1 failed, 2 usage, 78 configuration.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from appliance.cli.output import Output
from appliance.cli.parser import build_parser
from appliance.errors import EXIT_DONE, EXIT_FAILED, ApplianceError

__all__ = ["run_command"]


def run_command(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run one command and return its exit status; nothing is raised."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets "?" instead of a failed command.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    arguments = build_parser().parse_args([readable(text) for text in argv])
    output = Output(
        lang=arguments.lang or _language(environ),
        is_json=getattr(arguments, "json", False),
        debug=arguments.debug,
    )
    try:
        module, _, function = arguments.command.partition(":")
        status: int = getattr(import_module(f"appliance.cli.{module}"), function)(arguments, output)
        sys.stdout.flush()
    except ApplianceError as error:
        with contextlib.suppress(BrokenPipeError):
            output.error(error)
        return error.exit_status
    except KeyboardInterrupt:
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter must not flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except Exception as error:  # noqa: BLE001 - the one edge where nothing may go further
        found = ApplianceError("internal", what=f"{type(error).__name__}: {error}")
        found.__cause__ = error
        output.error(found)
        return EXIT_FAILED
    return status


def readable(argument: str) -> str:
    """Return an argument with the bytes of another encoding (a GBK file name) made readable."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        raw = os.fsencode(argument)
        try:
            return raw.decode("gb18030")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "backslashreplace")
    return argument


def _language(environ: Mapping[str, str]) -> str:
    """Return ``zh`` when the locale for messages is Chinese."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return "zh" if environ[name].lower().startswith("zh") else "en"
    return "en"
