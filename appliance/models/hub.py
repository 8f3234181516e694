"""Fetch one file from a model hub (Hugging Face or a mirror of it, ModelScope) over HTTPS.

Both hubs state a file's SHA-256 before it is downloaded: Hugging Face in the ``X-Linked-Etag`` of
the redirect that ``resolve`` answers with, ModelScope in its file listing. A file that is not the
one we want is therefore refused before the first byte, and a pull that breaks off goes on where it
stopped (``Range``).
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any

from appliance.models.catalogue import HubSource
from appliance.models.transfer import BLOCK, LOCAL_ERRNOS, SourceFailedError, Transfer

HUB_URL = "https://huggingface.co"
MODELSCOPE_URL = "https://modelscope.cn"
# A network that reaches only a package index often drops packets instead of refusing: give up soon.
_ASK_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 30.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARTIAL_CONTENT = 206
_NETWORK_ERRORS = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Offer:
    """What a hub says it would send."""

    url: str
    sha256: str
    n_bytes: int


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        del req, fp, code, msg, headers, newurl
        return None


def ask(source: HubSource, base_url: str) -> Offer:
    """Return what the hub would send, without downloading it.

    Raises:
        SourceFailedError: it cannot be reached, or states no digest or size.
    """
    try:
        if source.kind == "modelscope":
            return _ask_modelscope(source, base_url)
        return _ask_hub(source, base_url)
    except _NETWORK_ERRORS as error:
        raise SourceFailedError(_plain(error)) from error


def download(offer: Offer, target: Path, transfer: Transfer) -> None:
    """Fetch ``offer`` into ``target``, going on where an earlier try stopped.

    Raises:
        SourceFailedError: the connection broke; ``target`` keeps what came.
        DownloadError: cancelled.
    """
    n_have = target.stat().st_size if target.exists() else 0
    if n_have > offer.n_bytes:
        target.unlink()
        n_have = 0
    if n_have == offer.n_bytes:
        return
    request = urllib.request.Request(_checked(offer.url), headers=_headers())  # noqa: S310 (checked)
    if n_have:
        request.add_header("Range", f"bytes={n_have}-")
    try:
        with urllib.request.urlopen(request, timeout=_READ_TIMEOUT_S) as reply:  # noqa: S310
            is_rest = reply.status == _PARTIAL_CONTENT
            with target.open("ab" if is_rest else "wb") as file:
                n_have = n_have if is_rest else 0
                while block := reply.read(BLOCK):
                    file.write(block)
                    n_have += len(block)
                    transfer.done(n_have)
    except _NETWORK_ERRORS as error:
        if isinstance(error, OSError) and error.errno in LOCAL_ERRNOS:
            raise
        raise SourceFailedError(_plain(error)) from error
    if n_have != offer.n_bytes:
        raise SourceFailedError(f"{n_have} of {offer.n_bytes} bytes came")


def _ask_hub(source: HubSource, base_url: str) -> Offer:
    path = urllib.parse.quote(f"{source.repo}/resolve/main/{source.file}")
    url = _checked(f"{base_url}/{path}")
    request = urllib.request.Request(url, headers=_headers(), method="HEAD")  # noqa: S310 (checked)
    opener = urllib.request.build_opener(_NoRedirect())
    try:
        with opener.open(request, timeout=_ASK_TIMEOUT_S) as reply:
            headers: Message = reply.headers
    except urllib.error.HTTPError as error:
        if error.code not in (301, 302, 303, 307, 308):
            raise
        headers = error.headers
    digest = (headers.get("X-Linked-Etag") or headers.get("ETag") or "").strip('"')
    size = headers.get("X-Linked-Size") or headers.get("Content-Length") or ""
    return _offer(url, digest, size)


def _ask_modelscope(source: HubSource, base_url: str) -> Offer:
    listing = _checked(
        f"{base_url}/api/v1/models/{urllib.parse.quote(source.repo)}/repo/files?Recursive=true"
    )
    request = urllib.request.Request(listing, headers=_headers())  # noqa: S310 (checked)
    with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S) as reply:  # noqa: S310
        found: dict[str, Any] = json.loads(reply.read(8 << 20))
    files = (found.get("Data") or {}).get("Files") or []
    for file in files:
        if file.get("Path") == source.file:
            path = urllib.parse.quote(f"models/{source.repo}/resolve/master/{source.file}")
            return _offer(f"{base_url}/{path}", str(file.get("Sha256", "")), str(file.get("Size")))
    raise SourceFailedError(f"{source.repo} has no {source.file}")


def _offer(url: str, digest: str, size: str) -> Offer:
    if not _DIGEST.fullmatch(digest) or not size.isdigit():
        raise SourceFailedError("it states no SHA-256 for the file")
    return Offer(url, digest, int(size))


def _checked(url: str) -> str:
    """Refuse anything but http and https: urllib would open ``file:`` too."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise SourceFailedError(f"{url} is not a web address")
    return url


def _headers() -> dict[str, str]:
    # Some mirrors refuse urllib's own name.
    return {"User-Agent": "appliance-models/1"}


def _plain(error: BaseException) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(reason).__name__
