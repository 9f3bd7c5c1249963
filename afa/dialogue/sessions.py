"""Create planners from a user's bundle, session file and file of panels, and save the planners' sessions.

Only one process at a time can open a session file, and a file that another program has changed is not overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field

from afa.errors import AfaError, Fault, PlannerError
from afa.io.yamlfile import Strict, check_model, read_mapping
from afa.model.bundle import Bundle
from afa.planner import Action, BinaryPlanner, Planner, TopKPlanner
from afa.planner.options import question_arguments
from afa.planner.rules.check import rule_of
from afa.planner.session import load_session, replay_session, save_session

LOCK_SECONDS = 5.0
"""Seconds to wait for another process that has the same session open."""


class _Panel(Strict):
    features: tuple[str, ...] = Field(min_length=1)
    cost: float | None = Field(None, ge=0)


@dataclass(frozen=True)
class PanelDefinitions:
    """Panels that were read from a file: the features of each panel, and the cost of each panel that has a cost."""

    features: Mapping[str, tuple[str, ...]]
    costs: Mapping[str, float]


def read_panels(path: str | Path) -> PanelDefinitions:
    """Read a YAML file of panels such as `name: {features: [a, b], cost: 5}`. The cost is optional.

    Raises
    ------
    ConfigError : a panel is invalid; the message names the panel and the key.

    """
    read = {
        str(name): check_model(body if isinstance(body, dict) else {"features": body}, _Panel, f"{path}, panel {name}")
        for name, body in read_mapping(path).items()
    }
    costs = {name: panel.cost for name, panel in read.items() if panel.cost is not None}
    return PanelDefinitions({name: panel.features for name, panel in read.items()}, costs)


def new_planner(
    bundle: Bundle,
    *,
    k: int | None = None,
    entity: str | None = None,
    panels: PanelDefinitions | None = None,
    costs: str | None = None,
    **given: Any,
) -> Planner:
    """Return a planner for the top k entities or for one entity.

    By default, the planner searches for the most likely entity. If the bundle has only one entity, the planner decides
    by default whether this entity is present.

    Parameters
    ----------
    costs : `equal` if all features cost the same, None for the bundle's costs; costs in `panels` apply in both cases
    given : options that both planners have, and `holds` if no entity is given; None means the default. `allocation` may
        be `module:Class`

    """
    options = {name: value for name, value in given.items() if value is not None}
    k, entity = question_arguments(bundle, k, entity)
    if ":" in options.get("allocation", ""):
        options["allocation"] = rule_of(options["allocation"])()
    options |= {"costs": _costs_option(bundle, costs, panels), "panels": panels.features if panels else None}
    if entity is None:
        return TopKPlanner(bundle, k=k, **options)
    if "holds" in options:
        expected = "no --entity beside it: it says how many of all hold"
        raise PlannerError(Fault("option --holds", options["holds"], expected, "leave one of the two out"))
    return BinaryPlanner(bundle, entity=entity, **options)


def resumed_planner(
    path: str | Path, bundle: Bundle, given: Mapping[str, Any], changes: list[str] | None = None
) -> Planner:
    """Return the planner that a session file describes, with the settings in the session file.

    If an option in `given` differs from the settings in the session file, a `PlannerError` is raised.

    Parameters
    ----------
    given : value of each option by its name with underscores, None if not given; the value of `panels` is a
        `PanelDefinitions`
    changes : list to which the sentences of `replay_session` are appended; None if the bundle must be unchanged

    """
    named = given.get("allocation") or ""
    rule = rule_of(named)() if ":" in named else None
    if changes is None:
        planner = load_session(path, bundle, allocation=rule)
    else:
        planner, said = replay_session(path, bundle, allocation=rule)
        changes += said
    settings, stop = planner.settings, planner.settings["stop"]
    stored = {**stop, **settings, "min_gain": stop["gain"], "allocation": settings["allocation"] or named}
    asked = {name: value for name, value in given.items() if name not in ("panels", "costs") and value is not None}
    differ = {name: value for name, value in asked.items() if value != stored.get(name)}
    other = {
        f"--{name.replace('_', '-')} {_setting_text(value)}": _setting_text(stored.get(name))
        for name, value in differ.items()
    }
    panels, costs = given.get("panels"), given.get("costs")
    if panels is not None or costs is not None:
        features = {name: list(members) for name, members in panels.features.items()} if panels else {}
        menu = features, _costs_option(bundle, costs, panels)
        if menu != (settings["panels"], settings["costs"]):
            other["--panels or --costs"] = "its own panels and costs"
    if other:
        step = "leave these out, or name a session file that does not exist yet"
        found, expected = f"an earlier session, and {', '.join(other)}", ", ".join(other.values())
        raise PlannerError(Fault(str(path), found, expected, step))
    return planner


def _setting_text(value: Any) -> str:
    """Return a setting as text for a message. For a background distribution, return its description."""
    return str(value["words"] if isinstance(value, Mapping) and "words" in value else value)


def session_of_text(text: str, bundle: Bundle, changes: list[str] | None = None) -> Planner:
    """Return the planner of a session that is given as text. Error messages call this text `the session`.

    Parameters
    ----------
    changes : as of `resumed_planner`

    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            return resumed_planner(path, bundle, {}, changes)
        except AfaError as error:
            faults = (replace(fault, where=fault.where.replace(str(path), "the session")) for fault in error.faults)
            raise PlannerError(faults) from None


def _costs_option(
    bundle: Bundle, costs: str | None, panels: PanelDefinitions | None
) -> Mapping[str, float] | str | None:
    if panels is None:
        return "equal" if costs == "equal" else None
    return (dict.fromkeys(bundle.features, 1.0) if costs == "equal" else {}) | dict(panels.costs)


class SessionFile:
    """Object that saves a planner's session in the file `path`, and copies of the session in other files.

    If `path` is None, the session is saved only by the method `save_copy`. If another program has changed the file
    `path` since this object last read or saved it, the file is not overwritten, even on file systems without locks.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.changes = list[str]()
        """Changes, in words, if the bundle was edited after the session."""
        self._contents = _contents(path) if path else None
        self._copies: dict[Path, tuple[Action, ...]] = {}

    @property
    def found(self) -> bool:
        """Return True if the session file existed when the `SessionFile` was created."""
        return self._contents is not None

    def keep(self, planner: Planner) -> None:
        """Write the session of `planner` to `path` after a step."""
        if self.path is None:
            return
        if _contents(self.path) not in (self._contents, None):
            found, expected = "steps that came from elsewhere", "the session as it was left here"
            step = "quit, and give the same command again to go on from there"
            raise PlannerError(Fault(str(self.path), found, expected, step))
        save_session(planner, self.path)
        self._contents = _contents(self.path)

    def save_copy(self, planner: Planner, file: str) -> None:
        """Write the session to a new file, or to a file that the same `SessionFile` has saved before."""
        path = Path(file)
        if not file.strip():
            raise PlannerError(Fault("save", "no name", "that of a new file", "name the file"))
        if "\0" in file or not file.isprintable():
            raise PlannerError(Fault("save", repr(file), "a name that a file can have", "choose another name"))
        if not path.parent.is_dir():
            raise PlannerError(Fault(f"save {file}", "no such folder", "a folder that exists", "make the folder first"))
        own = self.path is not None and path.resolve() == self.path.resolve()
        if os.path.lexists(path) and not own and path.resolve() not in self._copies:
            found = f"a {'folder' if path.is_dir() else 'file'} of that name"
            raise PlannerError(Fault(f"save {file}", found, "a new name", "choose another name"))
        if own:
            self.keep(planner)
        else:
            save_session(planner, path)
            self._copies[path.resolve()] = planner.actions

    def save_message(self, planner: Planner) -> str:
        """Return a sentence on where the session is saved, for the end of the conversation."""
        if self.path is not None:
            return f"session saved in {self.path}"
        saved = [str(path) for path, actions in self._copies.items() if actions == planner.actions]
        if saved:
            return f"session saved in {', '.join(saved)}"
        if self._copies:
            return f"the last steps are not saved; {', '.join(map(str, self._copies))} has the earlier steps"
        return "session not saved; --session FILE saves it" if planner.actions else ""


@contextmanager
def open_session(path: Path | None) -> Iterator[SessionFile]:
    """Open a session file, and yield the `SessionFile` that saves the session.

    No other process can open the session file until the `with` block ends.

    Raises
    ------
    PlannerError : another process keeps the file open for longer than `LOCK_SECONDS`, or the disk is full.

    """
    if path is None:
        yield SessionFile()
        return
    from filelock import FileLock, Timeout  # noqa: PLC0415 (needed only to save a session)

    target = path.resolve()
    lock = FileLock(target.with_name(f".{target.name}.lock"), timeout=LOCK_SECONDS, mode=0o600)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        expected, step = "one process for a session", "quit it there, or name another file"
        raise PlannerError(Fault(str(path), "another process that has it open", expected, step)) from None
    except (OSError, NotImplementedError) as error:  # filelock raises the second if the file system has no file locks
        found = getattr(error, "strerror", None) or str(error)
        raise PlannerError(Fault(str(path), found, "a file that can be written", "name another file")) from error
    try:
        yield SessionFile(path)
    finally:
        with suppress(OSError):  # the folder may have been removed, or replaced by a file
            Path(lock.lock_file).unlink()
        lock.release()


@contextmanager
def saved_or_undone(planner: Planner, keeper: SessionFile) -> Iterator[None]:
    """Save the planner's new steps at the end of a `with` block. If an error occurs, undo these steps."""
    before = planner.actions
    try:
        yield
        if planner.actions != before:
            keeper.keep(planner)
    except AfaError:
        if len(planner.actions) > len(before):
            planner.undo()
        elif len(planner.actions) < len(before):
            planner.repeat(before[len(planner.actions) :])
        raise


def _contents(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
