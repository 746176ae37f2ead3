"""A Hugging Face Hub of one data set, on loopback: what `snapshot_download` asks for, no more."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "c0ffee" + 34 * "0"


class Handler(BaseHTTPRequestHandler):
    """Lists the files of `server.repository` at `server.revision` and hands them out."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        path = unquote(self.path).split("?")[0]
        hub.asked.append(path)
        api = f"/api/datasets/{hub.repository}"
        if path == f"{api}/revision/{hub.revision}":
            info = {"id": hub.repository, "sha": COMMIT, "siblings": []}
            return self._send(200, json.dumps(info).encode(), with_body)
        if path.startswith(f"{api}/tree/{COMMIT}"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hub.tag(data)}
                for name, data in hub.files.items()
            ]
            return self._send(200, json.dumps(tree).encode(), with_body)
        begin = f"/datasets/{hub.repository}/resolve/{COMMIT}/"
        data = hub.files.get(path.removeprefix(begin)) if path.startswith(begin) else None
        if data is None:
            return self._send(404, b"{}", with_body)
        return self._send(200, data, with_body, hub.tag(data))

    def _send(self, code: int, data: bytes, with_body: bool, tag: str | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        if tag is not None:
            self.send_header("ETag", f'"{tag}"')
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Hub(ThreadingHTTPServer):
    """`asked` is every path that was asked for."""

    daemon_threads = True

    def __init__(self, repository: str, revision: str, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repository = repository
        self.revision = revision
        self.files = files
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @staticmethod
    def tag(data: bytes) -> str:
        return hashlib.sha1(data).hexdigest()


@contextmanager
def serving(repository: str, revision: str, files: dict[str, bytes]) -> Iterator[Hub]:
    """The Hub while the block runs."""
    hub = Hub(repository, revision, files)
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
