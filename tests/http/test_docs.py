"""docs/http-api.md names every route, and only routes that exist."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route

from appliance.frontends.http.app import Routes
from appliance.frontends.http.visitors import Visitors
from appliance.system.clock import ManualClock

PAGE = Path(__file__).parent.parent.parent / "docs" / "http-api.md"


def test_page_and_routes_agree() -> None:
    table = Routes(None, None, Visitors(ManualClock()), ManualClock(), "en", lambda: None).table()  # type: ignore[arg-type]
    served = {
        f"{method} {re.sub(r':[a-z]+}', '}', route.path)}"
        for route in table
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    found = re.findall(r"^\| `([A-Z]+) (/[^?`]*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert {f"{method} {path}" for method, path in found} == served
