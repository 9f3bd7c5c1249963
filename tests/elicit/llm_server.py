"""A local endpoint that speaks as OpenAI-compatible ones do, answers by a script, and misbehaves by a plan.

A script is a function from the request's document to a reply or its text; `llm_script.scripted` knows every prompt of
afa. A fault, such as those of `llm_faults`, changes the reply that the script gave. The n-th request meets the n-th
fault of the plan, None for none; a plan that is a function is asked with the request's number and document.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

MODEL = "scripted-test-model"
KEY = "sk-test-5f1d9c2b7a"
"""The only key that the server takes."""
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Reply:
    """What the server sends.

    usage : counted where it is left alone, else sent as it is, None for none. error : with a status other than 200, the
    message of the error. body : sent in place of the document. wait : seconds, or an event, before the status line;
    pause : seconds before the second half of the body. cut : the body ends in its middle, by an orderly end of the
    stream, a close of the connection that promised more, or a reset. choices : whether there are any. drip : the reply
    comes a byte at a time, or does not end, until the client goes.
    """

    text: str = ""
    finish: str | None = "stop"
    refusal: str | None = None
    usage: Any = "counted"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    body: bytes | None = None
    wait: float | threading.Event = 0.0
    pause: float = 0.0
    cut: Literal["", "orderly", "close", "reset"] = ""
    choices: bool = True
    drip: Literal["", "body", "headers", "flood"] = ""


Document = dict[str, Any]
Script = Callable[[Document], Reply | str]
Fault = Callable[[Reply, Document], Reply]
Plan = Sequence[Fault | None] | Callable[[int, Document], Fault | None]


@dataclass(frozen=True)
class Asked:
    """One request, as it came; the names of headers in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Document:
        return json.loads(self.body)


@dataclass
class Endpoint:
    """The running server: `asked` are all requests so far, `most_at_once` how many of them were open together."""

    script: Script
    plan: Plan
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    open: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """What leads afa to this server."""
        return {"AFA_LLM_BASE_URL": self.url, "AFA_LLM_MODEL": MODEL, "AFA_LLM_API_KEY": KEY, "NO_PROXY": "127.0.0.1"}

    def reply(self, asked: Asked) -> Reply:
        with self.lock:
            number = len(self.asked)
            self.asked.append(asked)
        given = asked.headers.get("authorization", "")
        if asked.path != PATH:
            return Reply(status=404, error=f"no such path: {asked.path}")
        if given != f"Bearer {KEY}":
            return Reply(status=401, error=f"Incorrect API key provided: {given.removeprefix('Bearer ')}")
        document = asked.document
        fault = self.plan(number, document) if callable(self.plan) else dict(enumerate(self.plan)).get(number)
        scripted = self.script(document)
        reply = Reply(scripted) if isinstance(scripted, str) else scripted
        return reply if fault is None else fault(reply, document)


@contextmanager
def serve(script: Script, plan: Plan = ()) -> Iterator[Endpoint]:
    """Serve on a free port of this machine until the block ends."""
    endpoint = Endpoint(script, plan)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            if len(body) < size:
                # The client died while it asked.
                self.close_connection = True
                return
            with endpoint.lock:
                endpoint.open += 1
                endpoint.most_at_once = max(endpoint.most_at_once, endpoint.open)
            try:
                reply = endpoint.reply(self._asked(body))
                self._wait(reply.wait)
            finally:
                with endpoint.lock:
                    endpoint.open -= 1
            self._send(reply, json.loads(body))

        def do_GET(self) -> None:
            self._send(endpoint.reply(self._asked(b"{}")), {})

        def _asked(self, body: bytes) -> Asked:
            return Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)

        def _wait(self, wait: float | threading.Event) -> None:
            if isinstance(wait, threading.Event):
                while not (wait.wait(0.01) or endpoint.closed.is_set()):
                    pass
            elif wait:
                endpoint.closed.wait(wait)

        def _send(self, reply: Reply, document: Document) -> None:
            stream = reply.status == 200 and reply.body is None and bool(document.get("stream"))
            body = _body(reply, document, stream)
            if reply.drip:
                self._drip(reply.drip)
                return
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, "text/event-stream" if stream and name == "Content-Type" else value)
            if stream:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            # An orderly end leaves out whole events, as an endpoint does that gives up.
            half = body.rfind(b"\n\n", 0, half) + 2 if stream else half
            self._write(body[:half], stream)
            self._wait(reply.pause)
            if not reply.cut or (stream and reply.cut == "orderly"):
                self._write(body[half:] if not reply.cut else b"", stream)
                self.wfile.write(b"0\r\n\r\n" if stream else b"")
                return
            if reply.cut == "reset":
                # Closing with a linger time of zero sends a reset instead of an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            self.close_connection = True

        def _drip(self, kind: str) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                self.wfile.write(b"X-Slow: " if kind == "headers" else b"\r\n{")
                while not endpoint.closed.wait(0.0 if kind == "flood" else 0.1):
                    self.wfile.write(b" " * (1 << 16) if kind == "flood" else b"x" if kind == "headers" else b" ")

        def _write(self, content: bytes, stream: bool) -> None:
            if content:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content) if stream else content)
                self.wfile.flush()

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield endpoint
    finally:
        endpoint.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _body(reply: Reply, document: Document, stream: bool) -> bytes:
    if reply.body is not None:
        return reply.body
    if reply.status != 200:
        return json.dumps({"error": {"message": reply.error, "type": "error", "code": None}}).encode()
    common = {"id": "chatcmpl-1", "created": int(time.time()), "model": MODEL}
    usage = _usage(reply, document) if reply.usage == "counted" else reply.usage
    if stream:
        return b"".join(b"data: %s\n\n" % event.encode() for event in _events(reply, common, usage))
    message = {"role": "assistant", "content": None if reply.refusal else reply.text, "refusal": reply.refusal}
    choices = [{"index": 0, "message": message, "finish_reason": reply.finish, "logprobs": None}]
    whole = {**common, "object": "chat.completion", "choices": choices if reply.choices else []}
    return json.dumps(whole if usage is None else {**whole, "usage": usage}).encode()


def _events(reply: Reply, common: Document, usage: Any) -> Iterator[str]:
    """The reply in pieces of a few characters, then why it ended, then the usage."""
    common = {**common, "object": "chat.completion.chunk"}
    text, name = (reply.refusal, "refusal") if reply.refusal else (reply.text, "content")
    deltas: list[tuple[Document, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({name: text[start : start + 16]}, None) for start in range(0, len(text), 16)]
    for delta, finish in [*deltas, ({}, reply.finish)]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if reply.choices else []
        yield json.dumps({**common, "choices": choices, "usage": None}, ensure_ascii=False)
    if usage is not None:
        yield json.dumps({**common, "choices": [], "usage": usage})
    yield "[DONE]"


def _usage(reply: Reply, document: Document) -> Document:
    prompt = sum(len(message["content"].split()) for message in document["messages"])
    answer = len((reply.refusal or reply.text).split())
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
