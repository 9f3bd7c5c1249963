"""A planner spoken to: lines typed in a terminal, requests by JSON lines, and sessions that note or refuse."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from afa.dialogue.conversation import converse
from afa.dialogue.sessions import SessionFile
from afa.dialogue.terminal import Terminal
from afa.errors import Fault, PlannerError
from afa.model.bundle import Bundle
from afa.planner import Planner, TopKPlanner

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"
AFA = str(Path(sys.executable).parent / "afa")


class Noted(SessionFile):
    """Notes how many steps there were each time that the session was to be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def keep(self, planner: Planner) -> None:
        self.steps.append(len(planner.actions))


class Refusing(SessionFile):
    """A session that cannot be written."""

    def keep(self, planner: Planner) -> None:
        raise PlannerError(Fault("s.yaml", "a full disk", "room", "make room"))


def talk(planner: Planner, *lines: str, keeper: SessionFile | None = None) -> str:
    """What the terminal shows when these lines are typed, and then Ctrl-D."""
    shown = io.StringIO()
    console = Console(file=shown, width=200, no_color=True)
    typed = iter(lines)

    def read(prompt: str) -> str:
        shown.write(prompt)
        try:
            line = next(typed)
        except StopIteration:
            raise EOFError from None
        shown.write(line + "\n")
        return line

    Terminal(planner, console, read, keeper or SessionFile()).run()
    return shown.getvalue()


def ask(planner: Planner, *requests: Any, keeper: SessionFile | None = None) -> list[dict[str, Any]]:
    """The answers to JSON requests, without the greeting; texts are sent as they are."""
    lines = (request if isinstance(request, str) else json.dumps(request) for request in requests)
    _, *answers = map(json.loads, converse(planner, lines, keeper or SessionFile()))
    return answers


def plain(bundle: Bundle, **options: Any) -> TopKPlanner:
    return TopKPlanner(bundle, **({"k": 1, "costs": "equal"} | options))
