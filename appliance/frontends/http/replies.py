"""Errors and values as HTTP replies, in OpenAI's shape under ``/v1`` and in ours elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from appliance.errors import (
    ApplianceError,
    BadRequestError,
    ContextOverflowError,
    DeviceLostError,
    EngineError,
    EngineStoppedError,
    LimitExceededError,
    ModelError,
    NotFoundError,
    QueueFullError,
    StoreFullError,
)
from appliance.messages import Lang, explain

_BY_CODE = {
    "bad_dimensions": HTTPStatus.BAD_REQUEST,
    "body_too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "key_needed": HTTPStatus.UNAUTHORIZED,
    "join_refused": HTTPStatus.FORBIDDEN,
    "host_refused": HTTPStatus.FORBIDDEN,
    "origin_refused": HTTPStatus.FORBIDDEN,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "empty_prompt": HTTPStatus.BAD_REQUEST,
    "bad_sampling": HTTPStatus.BAD_REQUEST,
    "bad_grammar": HTTPStatus.BAD_REQUEST,
    "bad_schema": HTTPStatus.BAD_REQUEST,
    "tools_unsupported": HTTPStatus.BAD_REQUEST,
    "chat_template_missing": HTTPStatus.BAD_REQUEST,
    "chat_template_invalid": HTTPStatus.BAD_REQUEST,
    "remote_refused": HTTPStatus.BAD_REQUEST,
    "remote_no_word": HTTPStatus.BAD_REQUEST,
    "remote_key_refused": HTTPStatus.BAD_GATEWAY,
    "remote_failed": HTTPStatus.BAD_GATEWAY,
    "remote_nonsense": HTTPStatus.BAD_GATEWAY,
}

_BY_CLASS: tuple[tuple[type[ApplianceError], HTTPStatus], ...] = (
    (BadRequestError, HTTPStatus.BAD_REQUEST),
    (ContextOverflowError, HTTPStatus.BAD_REQUEST),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (LimitExceededError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (QueueFullError, HTTPStatus.TOO_MANY_REQUESTS),
    (EngineStoppedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (DeviceLostError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ModelError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreFullError, HTTPStatus.INSUFFICIENT_STORAGE),
    (EngineError, HTTPStatus.INTERNAL_SERVER_ERROR),
)

# OpenAI's clients look at the type and the code to tell causes apart.
_OPENAI_TYPES = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.NOT_FOUND: "invalid_request_error",
    HTTPStatus.METHOD_NOT_ALLOWED: "invalid_request_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
    HTTPStatus.REQUEST_TIMEOUT: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_OPENAI_CODES = {
    "context_overflow": "context_length_exceeded",
    "embed_overflow": "context_length_exceeded",
    "key_needed": "invalid_api_key",
    "api_model_unknown": "model_not_found",
    "queue_full": "rate_limit_exceeded",
    "remote_busy": "rate_limit_exceeded",
}


def status_of(error: ApplianceError) -> HTTPStatus:
    """Return the HTTP status that tells a client how to act on ``error``."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    for kind, status in _BY_CLASS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def error_body(error: ApplianceError, path: str, lang: Lang) -> dict[str, Any]:
    """Return the JSON of an error in the shape that ``path`` speaks."""
    explanation = explain(error, lang)
    if not path.startswith("/v1/"):
        return {"error": explanation.as_json()}
    return {
        "error": {
            "message": str(explanation),
            "type": _OPENAI_TYPES.get(status_of(error), "server_error"),
            "param": error.facts.get("field"),
            "code": _OPENAI_CODES.get(error.code, error.code),
        }
    }


def error_reply(error: ApplianceError, path: str, lang: Lang) -> Response:
    """Return the reply for an error; waiting times go into ``Retry-After``."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, QueueFullError):
        headers["retry-after"] = str(error.facts.get("retry_after_s", 1))
    elif status is HTTPStatus.SERVICE_UNAVAILABLE and error.retryable:
        headers["retry-after"] = "2"
    if error.code in ("body_too_large", "body_too_slow"):
        # The rest of the body is not wanted.
        headers["connection"] = "close"
    if status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return reply(error_body(error, path, lang), status, headers)


def reply(
    body: Mapping[str, Any],
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a JSON reply that no cache keeps."""
    return Response(
        json.dumps(body, ensure_ascii=False).encode("utf-8"),
        status_code=status,
        headers={"cache-control": "no-store", **(headers or {})},
        media_type="application/json",
    )
