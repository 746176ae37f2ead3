"""A Hugging Face Hub on loopback: what `huggingface_hub` asks for, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

COMMIT = "c0ffee" + "0" * 34
CHUNK = 4096


@dataclass
class FakeHub:
    """What it holds, how it fails, and what it was asked."""

    repos: dict[str, Path]  # by name: the folder of its files
    token: str | None = None  # asked for, where set
    gated: bool = False  # without the token: gated, else not there at all
    status: int | None = None  # answered to everything, where set
    cuts: list[int] = field(default_factory=list)  # bytes of weights after which to hang up
    reset: bool = False  # hang up rudely
    silent: bool = False  # never answer
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    url: str = ""

    def ranges(self) -> list[str | None]:
        """The ranges asked for in each download of weights."""
        return [r for m, path, r in self.requests if m == "GET" and path.endswith(".safetensors")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        hub, path = self.hub, urlsplit(self.path).path
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if hub.silent:
            time.sleep(60)
            return
        if hub.status is not None:
            return self._send(hub.status, b"", {})
        found = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+)(/.*)?", path)
        name, rest = (found[1], found[2] or "") if found else ("", "")
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            code = "GatedRepo" if hub.gated else "RepoNotFound"
            return self._send(403 if hub.gated else 401, b"", {"X-Error-Code": code})
        if name not in hub.repos:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if (revision := re.match(r"/(?:revision|tree|resolve)/([^/]+)", rest)) is None:
            return self._send(404, b"", {})
        if revision[1] not in ("main", COMMIT):
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if path.startswith("/api/"):
            return self._send_json(name, tree=rest.startswith("/tree/"))
        return self._send_file(hub.repos[name] / rest.split("/", 3)[3], body)

    def _send_json(self, name: str, tree: bool) -> None:
        entries = [_entry(path) for path in sorted(self.hub.repos[name].iterdir())]
        if tree:
            answer: Any = [
                {"type": "file", "path": e["rfilename"], "size": e["size"], "oid": e["blobId"]}
                for e in entries
            ]
        else:
            answer = {"id": name, "sha": COMMIT, "siblings": entries, "gated": self.hub.gated}
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send_file(self, path: Path, body: bool) -> None:
        if not path.is_file():
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        data = path.read_bytes()
        headers = {"ETag": f'"{_entry(path)["blobId"]}"', "X-Repo-Commit": COMMIT}
        status, begin = 200, 0
        if wanted := self.headers.get("Range"):
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        weights = path.suffix == ".safetensors" and body
        cut = self.hub.cuts.pop(0) if weights and self.hub.cuts else None
        self._send(status, data[begin:], headers, body=body, cut=cut)

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], body: bool = True,
        cut: int | None = None,
    ) -> None:  # fmt: skip
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            if self.hub.reset:
                time.sleep(0.2)  # or the bytes before it would be lost as well
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()


def _entry(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {
        "rfilename": path.name,
        "size": len(data),
        "blobId": hashlib.sha1(data).hexdigest(),
    }


@contextmanager
def serving(hub: FakeHub) -> Generator[FakeHub, None, None]:
    """The Hub at `hub.url` for the time of the `with`."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def point_at(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """`huggingface_hub` reads its environment at import: change what it read."""
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.ENDPOINT", url)
    monkeypatch.setattr(
        f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE",
        url + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(cache))
