"""Reading values out of a request's JSON, with an error that names the field and what it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from appliance.errors import BadRequestError

T = TypeVar("T")


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Raises:
        BadRequestError: it is not UTF-8 JSON, not an object, or holds half a surrogate pair, which
            no UTF-8 reply could carry.
    """
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\u" in raw:
            json.dumps(body, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise BadRequestError("json_invalid", cause=str(error)[:200]) from error
    if not isinstance(body, dict):
        raise BadRequestError("json_invalid", cause="an object is needed")
    return body


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def text(body: Mapping[str, Any], field: str) -> str:
    """Return a text that must be there."""
    value = body.get(field)
    if not isinstance(value, str):
        raise wrong(field, "a string")
    return value


def optional_text(body: Mapping[str, Any], field: str) -> str | None:
    """Return a text or None."""
    return None if body.get(field) is None else text(body, field)


def flag(body: Mapping[str, Any], field: str, *, default: bool) -> bool:
    """Return true or false."""
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(field, "true or false")
    return value


def number(body: Mapping[str, Any], field: str, low: float, high: float) -> float | None:
    """Return a number from ``low`` to ``high``, or None."""
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise wrong(field, f"a number from {low:g} to {high:g}")
    return float(value)


def whole(body: Mapping[str, Any], field: str, low: int, high: int) -> int | None:
    """Return a whole number from ``low`` to ``high``, or None."""
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(field, f"a whole number from {low} to {high}")
    return int(value)


def one_of(body: Mapping[str, Any], field: str, allowed: tuple[T, ...]) -> T | None:
    """Return one of the allowed words, or None."""
    value = body.get(field)
    if value is None:
        return None
    if value not in allowed:
        raise wrong(field, ", ".join(str(word) for word in allowed))
    return allowed[allowed.index(value)]


def wrong(field: str, allowed: str) -> BadRequestError:
    """Return the error for a field that has another kind of value."""
    return BadRequestError(field=field, allowed=allowed)
