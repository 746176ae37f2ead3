"""The process behind `fastinfer serve`: an address, an engine, the routes, no page."""

from __future__ import annotations

import socket
import sys

import uvicorn

from fastinfer.config import ConfigError
from fastinfer.engine import load
from fastinfer.events import Role
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeChoice

SHUTDOWN_SECONDS = 1  # then streams that still run are cut off
# Clients let go of an idle connection first: uvicorn's own 5 s are httpx's and OpenAI's too, and a
# request that is sent while the server closes is lost.
KEEP_ALIVE_SECONDS = 75
# Whoever decodes needs the interpreter again after each operation, and waits so long for a thread
# that serves. Python's own 5 ms are a whole step of a small model.
SWITCH_SECONDS = 0.0005


def serve(choice: ServeChoice) -> int:
    """Serve until a signal ends it. Raises `ConfigError` for a bad address or model."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with bound(choice.host, choice.port) as sock:  # before a minute of loading, not after
        engine = load(
            choice.preset,
            target=choice.overrides.get(Role.TARGET),
            intermediate=choice.overrides.get(Role.INTERMEDIATE),
            draft=choice.overrides.get(Role.DRAFT),
            dtype=choice.dtype,
            device=choice.device,
        )
        app = build_api(lambda: engine, choice.config, Line(choice.config.max_waiting))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        host = f"[{choice.host}]" if ":" in choice.host else choice.host
        url = f"http://{host}:{sock.getsockname()[1]}"
        _Server(config, f"fastinfer serves {engine.info.preset} on {url}").run(sockets=[sock])
    return 0


class _Server(uvicorn.Server):
    """Says that it is ready once it is."""

    def __init__(self, config: uvicorn.Config, ready: str) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self._ready, file=sys.stderr, flush=True)


def bound(host: str, port: int) -> socket.socket:
    """A socket of that address; nothing is accepted yet. Raises `ConfigError`."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except (OSError, UnicodeError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or "that address can't be used"
        raise ConfigError(
            "port", f"{port} on {host}: {reason}; choose another with --port or --host"
        ) from error
    return sock
