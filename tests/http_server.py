"""An app on a free port of this machine, in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from fastapi import FastAPI

from fastinfer.http.process import bound


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Serve the app; gives its address."""
    with bound("127.0.0.1", 0) as sock:
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started, "the server did not start")
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)


def wait_until(condition: Callable[[], bool], complaint: str, timeout_s: float = 30.0) -> None:
    """Wait for what another thread brings about, or fail with `complaint`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(complaint)
        time.sleep(0.02)
