from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from appliance.models.catalogue import Catalogue, Entry, IndexSource, WheelPart
from tests.tiny_gguf import write_tiny_llama


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class WheelShop:
    """A package index made of files: real pip, told by its own variables to look only here."""

    folder: Path

    def make(self, package: str, member: str, data: bytes, tag: str = "py3-none-any") -> WheelPart:
        """Write a wheel that holds ``data`` under ``member``."""
        name = package.replace("-", "_")
        path = self.folder / f"{name}-1.0-{tag}.whl"
        records: list[str] = []
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, content in (
                (member, data),
                (
                    f"{name}-1.0.dist-info/METADATA",
                    f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".replace("\n ", "\n"),
                ),
                (
                    f"{name}-1.0.dist-info/WHEEL",
                    f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n",
                ),
            ):
                raw = content if isinstance(content, bytes) else content.encode()
                archive.writestr(file, raw)
                digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=")
                records.append(f"{file},sha256={digest.decode()},{len(raw)}")
            record = f"{name}-1.0.dist-info/RECORD"
            archive.writestr(record, "\n".join([*records, f"{record},,"]) + "\n")
        wheel = path.read_bytes()
        return WheelPart(package, "1.0", member, len(wheel), sha256(wheel))

    def hide(self, part: WheelPart) -> bytes:
        """Take a wheel out of the shop and return its bytes."""
        (path,) = self.folder.glob(part.package.replace("-", "_") + "-*.whl")
        data = path.read_bytes()
        path.unlink()
        return data

    def show(self, part: WheelPart, data: bytes) -> None:
        """Put a wheel back."""
        name = part.package.replace("-", "_")
        (self.folder / f"{name}-1.0-py3-none-any.whl").write_bytes(data)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelShop:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    return WheelShop(folder)


@pytest.fixture(scope="session")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_llama(tmp_path_factory.mktemp("m") / "tiny.gguf").read_bytes()


@pytest.fixture
def parts(shop: WheelShop, gguf_bytes: bytes) -> tuple[WheelPart, ...]:
    """The model cut into three wheels."""
    third = len(gguf_bytes) // 3 + 1
    return tuple(
        shop.make(f"cut-{i}", f"cut_{i}/p.bin", gguf_bytes[i * third : (i + 1) * third])
        for i in range(3)
    )


def catalogue_of(*entries: Entry) -> Catalogue:
    return Catalogue({entry.name: entry for entry in entries})


@pytest.fixture
def entry(parts: tuple[WheelPart, ...], gguf_bytes: bytes) -> Entry:
    return Entry(
        name="tiny",
        use="generation",
        file="tiny-f32.gguf",
        licence="MIT",
        sources=(IndexSource(parts),),
        n_bytes=len(gguf_bytes),
        sha256=sha256(gguf_bytes),
    )


@dataclass
class Hub:
    """A model hub on loopback: Hugging Face's redirect and ModelScope's listing."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)
    break_after: int | None = None
    ignores_range: bool = False
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *_args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._resolve(is_head=True)

        def do_GET(self) -> None:
            if self.path.startswith("/api/v1/models/"):
                self._list()
            elif self.path.startswith("/blob/"):
                self._send(hub.files[self.path.removeprefix("/blob/")])
            else:
                self._resolve(is_head=False)

        def _resolve(self, *, is_head: bool) -> None:
            file = self.path.rsplit("/", 1)[1]
            if file not in hub.files:
                self.send_error(404)
                return
            if self.path.startswith("/models/"):
                self._send(hub.files[file])
                return
            self.send_response(302)
            self.send_header("Location", f"/blob/{file}")
            self.send_header(
                "X-Linked-Etag", f'"{hub.stated.get(file) or sha256(hub.files[file])}"'
            )
            self.send_header("X-Linked-Size", str(len(hub.files[file])))
            self.end_headers()

        def _list(self) -> None:
            import json

            files = [
                {"Path": name, "Sha256": hub.stated.get(name) or sha256(data), "Size": len(data)}
                for name, data in hub.files.items()
            ]
            body = json.dumps({"Data": {"Files": files}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _send(self, data: bytes) -> None:
            asked = self.headers.get("Range")
            hub.ranges.append(asked)
            start = 0
            if asked and not hub.ignores_range:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = len(data) if hub.break_after is None else start + hub.break_after
            self.wfile.write(data[start:end])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="hub")
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()
