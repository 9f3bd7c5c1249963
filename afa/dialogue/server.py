"""Serve a conversation with a planner as a local web page, which any number of browser tabs can show.

The page sends requests to `afa.dialogue.conversation` and shows the answers. A secret token is part of the printed
address. Requests without the token are refused, except requests for scripts and styles.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import gaierror
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from afa.dialogue.conversation import Conversation, as_text, refused
from afa.dialogue.sessions import SessionFile, session_of_text
from afa.errors import AfaError, Fault, PlannerError
from afa.io.csvfile import quoted
from afa.planner.session import session_text

LOCAL_ADDRESS = "127.0.0.1"
LARGEST_REQUEST = 1_000_000
NEWS_SECONDS = 20.0
"""Seconds that a tab's request for news waits for a step. If no step is made in this time, the reply is empty."""
IDLE_SECONDS = 60.0
"""Seconds after which a connection without a request is closed."""
MOST_OPEN = 64
"""Largest number of open connections. Each tab uses a few connections."""
PAGE_FOLDER = Path(__file__).parent / "page"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class Served:
    """A conversation that several browser tabs share, and the number of the conversation's last step.

    Attributes
    ----------
    patient : values of the example patient, by feature

    """

    def __init__(self, conversation: Conversation, patient: dict[str, int] | None = None) -> None:
        self.conversation, self.patient = conversation, patient or {}
        self.token = secrets.token_urlsafe(18)
        self.step = 0
        self.news = asyncio.Event()

    def state(self) -> dict[str, Any]:
        """Return the data that the page in a browser tab shows."""
        view, planner = self.conversation.hear('{"do": "view"}'), self.conversation.planner
        kept = str(self.conversation.keeper.path or "")
        return {"step": self.step, "kept": kept, "patient": self.patient, "named": planner.patient, **view}

    def say(self, step: int, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request from a browser tab, unless another tab has made a step in the meantime.

        The parameter `step` is the number of the last step that the tab has shown. If this is not the conversation's
        last step, the request is refused.
        """
        if step != self.step:
            found, expected = "a page that is older than the last step", "the present one"
            answer = refused(Fault("this page", found, expected, "look at it again: it shows the last step now"))
        elif request.get("do") in ("new", "open"):
            answer = self._begin_conversation(request)
        else:
            before = self.conversation.planner.actions
            answer = self.conversation.hear(json.dumps(request))
            if self.conversation.planner.actions != before:
                self._announce_step()
        return {"answer": answer, "state": self.state()}

    def _begin_conversation(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out the request `new` or `open`: begin a conversation about another patient.

        After the request `new`, the planner has no observed features. The request `open` restores the planner from the
        saved text of a session. After both requests, the session file of the earlier patient stays unchanged, and the
        new session is saved only if the user asks for it.
        """
        planner, keeper = self.conversation.planner, SessionFile()
        try:
            if request["do"] == "open":
                changes = keeper.changes if request.get("replay") is True else None
                planner = session_of_text(str(request.get("text", "")), planner.question_bundle, changes)
            else:
                planner = planner.fresh()
        except AfaError as error:
            return refused(error.faults[0]) | self._changes_in_replay(request)
        self.conversation, self.patient = Conversation(planner, keeper), {}
        self._announce_step()
        return {"ok": True, "changed": keeper.changes}

    def _changes_in_replay(self, request: dict[str, Any]) -> dict[str, Any]:
        """Replay a saved session with the present bundle, and return texts that describe what changed.

        If the replay fails, the result is an empty dict.
        """
        changes = list[str]()
        with suppress(AfaError):
            session_of_text(str(request.get("text", "")), self.conversation.planner.question_bundle, changes)
            return {"replay": changes}
        return {}

    def _announce_step(self) -> None:
        self.step += 1
        self.news.set()
        self.news = asyncio.Event()


class _Handler(RequestHandler):
    def initialize(self, served: Served) -> None:
        self.served = served

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def check_token(self, token: str) -> None:
        if not hmac.compare_digest(token.encode(), self.served.token.encode()):
            raise HTTPError(403)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(
            "Open the address that `afa serve` has printed, with its token.\n" if status_code == 403 else "no\n"
        )


class _Part(_Handler):
    def get(self, name: str) -> None:
        if not name:
            self.check_token(self.get_query_argument("token", ""))
        kind = {"": "html", ".js": "javascript", ".css": "css"}[Path(name).suffix]
        self.set_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.finish((PAGE_FOLDER / (name or "page.html")).read_text(encoding="utf-8"))


class _Said(_Handler):
    def prepare(self) -> None:
        self.check_token(self.request.headers.get("X-Token", ""))


class _Start(_Said):
    def get(self) -> None:
        self.finish(as_text({"greeting": self.served.conversation.greeting(), "state": self.served.state()}))


class _News(_Said):
    async def get(self, step: str) -> None:
        if int(step) == self.served.step:
            try:
                await asyncio.wait_for(self.served.news.wait(), NEWS_SECONDS)
            except TimeoutError:
                self.set_status(204)
                return
        await self.finish(as_text(self.served.state()))


class _Say(_Said):
    def post(self) -> None:
        try:
            said = json.loads(self.request.body)
            step, request = said["step"], dict(said["request"])
            json.dumps(request, allow_nan=False)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HTTPError(400) from None
        if not isinstance(step, int) or isinstance(step, bool):
            raise HTTPError(400)
        if request.get("do") == "quit":
            raise HTTPError(400)
        self.finish(as_text(self.served.say(step, request)))


class _Session(_Said):
    def get(self) -> None:
        self.set_header("Content-Type", "application/yaml; charset=utf-8")
        self.finish(session_text(self.served.conversation.planner))


class _Server(HTTPServer):
    """A server that closes the oldest connection if more than `MOST_OPEN` connections are open."""

    def initialize(self, *given: Any, **options: Any) -> None:
        super().initialize(*given, **options)
        self._open = dict[IOStream, None]()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        self._open = {each: None for each in self._open if not each.closed()}
        while len(self._open) >= MOST_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.close()
        self._open[stream] = None
        super().handle_stream(stream, address)


def application(served: Served) -> Application:
    """Return the web application with the routes of the page.

    All routes except scripts and styles require the token.
    """
    routes: list[Any] = [
        (r"/(|page\.js|page\.css)", _Part),
        (r"/start", _Start),
        (r"/news/(\d{1,9})", _News),
        (r"/say", _Say),
        (r"/session", _Session),
    ]
    handlers: list[Any] = [(path, handler, {"served": served}) for path, handler in routes]
    return Application(handlers, log_function=lambda _: None)


async def serve(served: Served, host: str, port: int, report: Callable[[str], None]) -> None:
    """Serve the page until the task is cancelled. When the page can be opened, `report` is called with its address.

    Raises
    ------
    PlannerError : the port is in use, or the host is not an address of this machine.

    """
    try:
        sockets = bind_sockets(port, host) if host else []  # with an empty host, tornado would listen on every address
    except (gaierror, UnicodeError):
        sockets = []
    except OSError as error:
        found = error.strerror or "an error"
        step = "choose another --port, or leave it out for a free one"
        raise PlannerError(Fault(f"{host}, port {port}", found, "a free port of this machine", step)) from error
    if not sockets:
        expected, step = "an address or a name of this machine", f"leave --host out for {LOCAL_ADDRESS}"
        raise PlannerError(Fault("option --host", quoted(host), expected, step))
    server = _Server(application(served), max_body_size=LARGEST_REQUEST, idle_connection_timeout=IDLE_SECONDS)
    server.add_sockets(sockets)
    try:
        shown = f"[{host}]" if ":" in host else host
        report(f"http://{shown}:{sockets[0].getsockname()[1]}/?token={served.token}")
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()
