"""The page behind a citation: the right one, the quote marked, nothing of it run."""

from __future__ import annotations

import io
import urllib.parse

import httpx
import pytest
from PIL import Image

from tests.conftest import Inside
from tests.parsers import files, matrix


def get(inside: Inside, path: str, quote: str = "", **query: str) -> httpx.Response:
    wanted = urllib.parse.urlencode({"q": quote, **query})
    return httpx.get(f"{inside.client.url}{path}?{wanted}")


def drop(inside: Inside, name: str, content: bytes) -> int:
    (inside.box.config.inbox_dir / name).write_bytes(content)
    inside.wait()
    (document,) = [row for row in inside.box.core.documents() if name in row.paths]
    return document.id


def test_pdf_page_is_a_picture_with_the_quote_marked(inside: Inside) -> None:
    pages = ["First page.", "The library closes at five\non weekends and holidays."]
    content = matrix.made(lambda path: files.pdf(path, pages), ".pdf")
    document = drop(inside, "a.pdf", content)

    plain = get(inside, f"/api/documents/{document}/page/2")
    marked = get(inside, f"/api/documents/{document}/page/2", "closes at five on weekends")

    assert plain.headers["content-type"] == "image/png"
    assert plain.headers["x-quote-located"] == "false"
    assert marked.headers["x-quote-located"] == "true"
    colours = Image.open(io.BytesIO(marked.content)).convert("RGB").getcolors(1 << 24)
    yellow = [n for n, (red, _, blue) in colours if red > 230 and blue < 190]
    assert sum(yellow) > 1000


def test_text_page_has_the_quote_and_an_anchor(inside: Inside) -> None:
    document = drop(
        inside, "a.md", "# 规定\n\n一。\n\n## 开放\n\n图书馆周末\n五点关门。\n".encode()
    )

    (hit, *_) = inside.client.get("/api/search", {"q": "图书馆周末几点关门"})["hits"]
    page = get(inside, f"/api/documents/{document}/page/{hit['passage']}", "周末五点")

    assert page.headers["x-quote-located"] == "true"
    assert "<mark id='quote'>周末\n五点</mark>" in page.text
    assert f"id='p{hit['passage']}'" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_text_of_a_document_is_never_markup(inside: Inside) -> None:
    document = drop(inside, "a.txt", b"<script>alert(1)</script> is a text about scripts.")

    page = get(inside, f"/api/documents/{document}/page/1", "<script>alert(1)")

    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text


def test_slide_is_a_page(inside: Inside) -> None:
    document = drop(inside, "a.pptx", matrix.pptx(("规定", "甲"), ("开放", matrix.FACT)))

    page = get(inside, f"/api/documents/{document}/page/2", matrix.FACT)

    assert page.headers["x-quote-located"] == "true"
    assert "甲" not in page.text


@pytest.mark.parametrize("number", [0, 3, 99999])
def test_page_that_is_not_there_is_said(inside: Inside, number: int) -> None:
    content = matrix.made(lambda path: files.pdf(path, ["x", "y"]), ".pdf")
    document = drop(inside, "a.pdf", content)

    found = get(inside, f"/api/documents/{document}/page/{number}")

    assert found.status_code == 404
    assert found.json()["error"]["code"] == "page_not_found"
