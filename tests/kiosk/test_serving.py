"""What is served: files from a table, headers that shut everything else out, suggestions."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

from appliance.frontends.http import kiosk
from tests.conftest import Inside
from tests.kiosk.conftest import LIBRARY


def fetch(inside: Inside, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(inside.client.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    finally:
        connection.close()


def test_every_file_is_served_with_its_type_and_policy(inside: Inside) -> None:
    for name, media_type in kiosk.FILES.items():
        status, headers, body = fetch(inside, f"/kiosk/{name}")
        assert (status, headers["content-type"]) == (200, media_type), name
        assert body
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["content-security-policy"]
    status, headers, _ = fetch(inside, "/")
    assert (status, headers["cache-control"]) == (200, "no-store")


@pytest.mark.parametrize(
    "path",
    [
        "/kiosk/",
        "/kiosk",
        "/kiosk/../models.yaml",
        "/kiosk/..%2fmodels.yaml",
        "/kiosk/%2e%2e/models.yaml",
        "/kiosk/..%5cmodels.yaml",
        "/kiosk//etc/passwd",
        "/kiosk/%2fetc%2fpasswd",
        "/kiosk/kiosk.css%00",
        "/kiosk/kiosk.css/",
        "/kiosk/KIOSK.CSS",
        "/kiosk/.",
    ],
)
def test_no_other_path_gives_anything(inside: Inside, path: str) -> None:
    status, _, body = fetch(inside, path)
    assert status == 404
    assert b'"route_not_found"' in body


def test_suggestions_come_from_the_documents(inside: Inside) -> None:
    assert fetch(inside, "/api/suggestions")[2] == b'{"suggestions": []}'
    inside.put("图书馆.txt", LIBRARY)
    inside.put("boats.md", "# Boats\n\n## 2. Renting a boat\n\nAre boats free? They are not.\n")

    def suggested(lang: str) -> list[str]:
        body = fetch(inside, "/api/suggestions?n=5", **{"Accept-Language": lang})[2]
        return list(json.loads(body)["suggestions"])

    assert suggested("zh")[0] == "图书馆周末几点关门？"
    assert suggested("en")[0] == "What is said about “Renting a boat”?"
    assert "一次可以借几本书？" in suggested("en")
