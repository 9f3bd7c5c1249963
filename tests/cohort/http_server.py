"""A local HTTP server that misbehaves on demand, as public servers do."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer: `length` is what Content-Length claims (None: the body's own, -1: no such header).

    The server waits for `wait` before the answer and for `hold` after its body, ten seconds at most.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    reset: bool = False
    wait: threading.Event | None = None
    hold: threading.Event | None = None


@dataclass
class Site:
    """Paths with their answers, in turn; the last one is repeated. `requests` lists the paths asked for."""

    replies: dict[str, list[Reply]]
    url: str = ""
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_reply(self, path: str) -> Reply:
        with self.lock:
            self.requests.append(path)
            waiting = self.replies.get(path, [Reply(b"not here", 404)])
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]


@contextmanager
def serve(replies: dict[str, Reply | list[Reply]]) -> Iterator[Site]:
    """Serve `replies` on a free port of this machine until the block ends."""
    site = Site({path: [reply] if isinstance(reply, Reply) else list(reply) for path, reply in replies.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = site.next_reply(self.path)
            if reply.wait is not None:
                reply.wait.wait(10)
            if reply.reset:
                # Closing with a linger time of zero sends a reset instead of an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/octet-stream", **reply.headers}.items():
                self.send_header(name, value)
            if reply.length != -1:
                self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.hold is not None:
                self.wfile.flush()
                reply.hold.wait(10)

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
