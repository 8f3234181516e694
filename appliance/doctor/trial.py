"""Start the NPU once, in a process of its own: ``python -m appliance.doctor.trial PLUGIN``.

A driver that crashes or hangs takes this child with it and nothing else. Prints one JSON object:
``{"device", "free", "total"}`` (bytes of device memory), or ``{"error"}`` with the plugin's reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(plugin: str) -> int:
    """Load the plugin, ask its device for its name and memory, print them."""
    from appliance.engine.devices import choose_device, device_memory
    from appliance.errors import ApplianceError

    try:
        device = choose_device("cann", Path(plugin))
    except ApplianceError as error:
        print(json.dumps({"error": str(error.facts.get("cause", error))}))  # noqa: T201
        return 1
    free, total = device_memory()
    print(json.dumps({"device": device.description, "free": free, "total": total}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
