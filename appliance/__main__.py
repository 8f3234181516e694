"""``python -m appliance`` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    from appliance.cli import run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
