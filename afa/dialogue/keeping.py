"""The session file of one conversation: open in one process at a time, and never written over by accident."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from afa.errors import AfaError, Fault, PlannerError
from afa.planner import Action, Planner
from afa.session import save_session

PATIENCE = 5.0
"""Seconds to wait for another process that has the same session open."""


class Keeper:
    """Keeps a planner's session in `path`, or nowhere where that is None, and copies of it elsewhere.

    A file that anybody else has written in the meantime is left as it is, also where the file system has no locks.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._contents = _contents(path) if path else None
        self._copies: dict[Path, tuple[Action, ...]] = {}

    @property
    def found(self) -> bool:
        """Whether there was a session at the beginning."""
        return self._contents is not None

    def keep(self, planner: Planner) -> None:
        """Write the session as it is now, after a step."""
        if self.path is None:
            return
        if _contents(self.path) not in (self._contents, None):
            found, expected = "steps that came from elsewhere", "the session as it was left here"
            step = "quit, and give the same command again to go on from there"
            raise PlannerError(Fault(str(self.path), found, expected, step))
        save_session(planner, self.path)
        self._contents = _contents(self.path)

    def save_copy(self, planner: Planner, file: str) -> None:
        """Write the session to a new file, or to one that this conversation has saved before."""
        path = Path(file)
        if "\0" in file or not file.isprintable():
            raise PlannerError(Fault("save", repr(file), "a name that a file can have", "choose another name"))
        if not path.parent.is_dir():
            raise PlannerError(Fault(f"save {file}", "no such folder", "a folder that exists", "make the folder first"))
        own = self.path is not None and path.resolve() == self.path.resolve()
        if os.path.lexists(path) and not own and path.resolve() not in self._copies:
            raise PlannerError(Fault(f"save {file}", "a file of that name", "a new name", "choose another name"))
        if own:
            self.keep(planner)
        else:
            save_session(planner, path)
            self._copies[path.resolve()] = planner.actions

    def closing_words(self, planner: Planner) -> str:
        """Where the session is at the end of the conversation."""
        if self.path is not None:
            return f"kept in {self.path}"
        saved = [str(path) for path, actions in self._copies.items() if actions == planner.actions]
        if saved:
            return f"kept in {', '.join(saved)}"
        if self._copies:
            return f"the last steps are not kept; {', '.join(map(str, self._copies))} has those before"
        return "not kept; --session FILE keeps a session" if planner.actions else ""


@contextmanager
def open_session(path: Path | None) -> Iterator[Keeper]:
    """The keeper of a session file that no other process opens until the end of the block.

    Raises
    ------
    PlannerError : another process has it open and does not close it within `PATIENCE`, or there is no room for it.

    """
    if path is None:
        yield Keeper()
        return
    target = path.resolve()
    lock = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        claim = _claim(lock, path)
    except OSError as error:
        found = error.strerror or "an error"
        raise PlannerError(Fault(str(path), found, "a file that can be written", "name another file")) from error
    try:
        yield Keeper(path)
    finally:
        with suppress(OSError):  # its folder may be gone, or a file by now
            lock.unlink()
        os.close(claim)


@contextmanager
def all_or_nothing(planner: Planner) -> Iterator[None]:
    """Take back what was done with the planner where an error ends the block, so that a refusal changes nothing."""
    before = planner.actions
    try:
        yield
    except AfaError:
        if len(planner.actions) > len(before):
            planner.undo()
        elif len(planner.actions) < len(before):
            planner.repeat(before[len(planner.actions) :])
        raise


def _claim(lock: Path, path: Path) -> int:
    """A handle on the lock file, locked; one that its owner removed in the meantime does not count."""
    end = time.monotonic() + PATIENCE
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() > end:
                expected = "one process for a session"
                step = "quit it there, or name another file"
                raise PlannerError(Fault(str(path), "another process that has it open", expected, step)) from None
            time.sleep(0.05)
            continue
        except OSError:  # a file system without locks: `Keeper.keep` compares before it writes
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        os.close(handle)


def _contents(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
