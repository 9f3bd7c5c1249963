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

_LONGEST = 30.0


@dataclass(frozen=True)
class Reply:
    """One answer: `length` is what Content-Length claims (None: the body's own, -1: no such header).

    The server waits for `wait` before the answer and for `hold` after its body, half a minute at most. `reset` ends the
    connection by a reset after the body, or at once where there is none. `raw` is sent in place of the status, the
    headers and the body. With a `pause` (seconds), what is sent after the headers, or all of `raw`, goes out in pieces
    of `piece` bytes, each followed by the pause.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    reset: bool = False
    wait: threading.Event | threading.Barrier | None = None
    hold: threading.Event | None = None
    raw: bytes | None = None
    pause: float = 0.0
    piece: int = 1


@dataclass
class Site:
    """Paths with their answers, in turn; the last one is repeated. `requests` lists the paths asked for."""

    replies: dict[str, list[Reply]]
    url: str = ""
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)

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
                reply.wait.wait(_LONGEST)
            if reply.raw is not None:
                self._send(reply.raw, reply)
            elif reply.body or not reply.reset:
                self._send_headers(reply)
                self._send(reply.body, reply)
            if reply.hold is not None:
                self.wfile.flush()
                reply.hold.wait(_LONGEST)
            if reply.reset:
                # Closing with a linger time of zero sends a reset instead of an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

        def _send_headers(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/octet-stream", **reply.headers}.items():
                self.send_header(name, value)
            if reply.length != -1:
                self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
            self.end_headers()

        def _send(self, content: bytes, reply: Reply) -> None:
            piece = reply.piece if reply.pause else len(content) or 1
            for start in range(0, len(content), piece):
                self.wfile.write(content[start : start + piece])
                if reply.pause and site.closed.wait(reply.pause):
                    return

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 32

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield site
    finally:
        site.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
