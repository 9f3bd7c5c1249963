"""Save a planner and all its steps as a readable YAML file, and load a planner from such a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import Field, model_validator

import afa
from afa.errors import AfaError, Fault, PlannerError
from afa.inference.meanfield import Solver
from afa.io.csvfile import first_names
from afa.io.files import atomic_file
from afa.io.yamlfile import Strict, load_model
from afa.model.bundle import Bundle
from afa.model.bundle.rates import Holds
from afa.model.closure import STRENGTH, Closure
from afa.planner import Action, BinaryPlanner, Planner, Stop, TopKPlanner
from afa.planner.menu import ActionKind, action_of
from afa.planner.rules import Rule
from afa.planner.values import ReadValue, code_of, number_with_unit, read_number, same_unit, scale_of, word_of

FORMAT = 1
REPLAY_ADVICE = "take its values again (--replay, afa.replay_session)"
SETTINGS_OF_OTHER_QUESTION = {"top_k": {"entity", "strength"}, "binary": {"k", "layer0", "holds"}}
"""Question -> settings that only the other question has."""


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes NumPy numbers and texts as plain YAML values."""


_Dumper.add_multi_representer(np.generic, lambda dumper, value: dumper.represent_data(value.item()))  # type: ignore[type-abstract]


class _BundleUsed(Strict):
    name: str
    version: str
    digest: str


class _SolverUsed(Strict):
    damping: float = Field(gt=0, le=1)
    tolerance: float = Field(gt=0)
    max_iterations: int = Field(ge=1)


class _StopUsed(Strict):
    budget: float | None
    certain: bool
    probability: float | None
    gain: float | None
    posterior: float | None = None
    own: bool = False


class _BackgroundUsed(Strict):
    probabilities: list[tuple[float, float, float]]
    kind: Literal["patients", "elicited", "mixture"]
    words: str
    covariance: list[str] | None = None


class _Settings(Strict):
    score: str
    gain: str
    target: str | None
    allocation: str | None
    inference: str
    solver: _SolverUsed
    start: str
    look_ahead: str
    costs: dict[str, Annotated[float, Field(ge=0)]] | Literal["equal"] | None
    panels: dict[str, list[str]]
    first: tuple[str, ...] = ()
    stop: _StopUsed
    patient: str
    seed: int
    k: int | None = None
    layer0: str | None = None
    entity: str | None = None
    strength: float = STRENGTH
    coupling: Closure = "differential"
    holds: Holds | None = None
    tau: float | Literal["effective"] | None = None
    background: _BackgroundUsed | Literal["elicited", "uniform"] | None = None
    together: int = Field(1, ge=1)


class _Step(Strict):
    kind: Literal["observe", "skip", "correct"]
    features: tuple[str, ...] = Field(min_length=1)
    values: tuple[Literal[-1, 0, 1] | None, ...]
    cost: float = Field(ge=0)
    reason: str
    numbers: tuple[float | None, ...] = ()
    units: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_step(self) -> _Step:
        if {len(self.numbers), len(self.units)} not in ({0}, {len(self.features)}):
            raise ValueError("numbers and units, one each for each feature, or neither")
        if len(self.values) != len(self.features) or len(set(self.features)) < len(self.features):
            raise ValueError("one value for each feature, and each feature once")
        if any((value is None) != (self.kind == "skip") for value in self.values):
            raise ValueError("no value for a feature that is skipped, and a value for every other")
        return self


class _Session(Strict):
    session: Literal[1] = Field(description="version of this format")
    afa: str
    bundle: _BundleUsed
    question: Literal["top_k", "binary"]
    settings: _Settings
    steps: tuple[_Step, ...]

    @model_validator(mode="after")
    def _one_question(self) -> _Session:
        if extra := self.settings.model_fields_set & SETTINGS_OF_OTHER_QUESTION[self.question]:
            raise ValueError(f"the settings of one question: {', '.join(sorted(extra))} belongs to the other")
        return self


def session_text(planner: Planner) -> str:
    """Return the YAML text that `save_session` writes for a planner."""
    bundle = planner.question_bundle
    document = {
        "session": FORMAT,
        "afa": afa.__version__,
        "bundle": {"name": bundle.name, "version": bundle.version, "digest": bundle.digest},
        "question": "binary" if isinstance(planner, BinaryPlanner) else "top_k",
        "settings": planner.settings,
        "steps": [{key: part for key, part in asdict(step).items() if part != ()} for step in planner.actions],
    }
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def save_session(planner: Planner, path: str | Path) -> None:
    """Write the bundle name, the settings and the steps of a planner to a YAML file.

    The file contains the observed values of the patient, and the name and digest of the bundle, but not the bundle. A
    new file can be read only by its owner. An existing file keeps its permissions and its owner. Raise a `PlannerError`
    if the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> from afa.model.bundle import load_bundle
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1)
    >>> planner.observe("MUC2", -1)
    >>> with TemporaryDirectory() as folder:
    ...     save_session(planner, f"{folder}/mine.yaml")
    ...     load_session(f"{folder}/mine.yaml", planner.question_bundle).observed
    {'MUC2': -1}
    """
    contents = session_text(planner).encode()
    try:
        with atomic_file(path, private=True) as temporary:
            temporary.write_bytes(contents)
    except (OSError, ValueError) as error:
        found = (isinstance(error, OSError) and error.strerror) or "a name that no file can have"
        raise PlannerError(Fault(str(path), found, "a file that can be written", "name another file")) from error


def load_session(
    path: str | Path,
    bundle: Bundle,
    *,
    allocation: Rule | None = None,
    stop: Callable[[Planner], str | bool | None] | None = None,
) -> TopKPlanner | BinaryPlanner:
    """Return the planner that `save_session` wrote to a file, with all its steps repeated.

    The bundle must be the same as when the file was written.

    Parameters
    ----------
    allocation, stop : the user-defined allocation rule and stopping rule, if the session had them; a file cannot
        contain functions

    Raises
    ------
    ConfigError : the file is not a session; the message names every wrong key.
    PlannerError : the session belongs to another bundle, needs a user-defined rule, or has steps that do not fit.

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> load_session("gone", load_bundle("tests/data/bundle_tiny"))
    Traceback (most recent call last):
    afa.errors.ConfigError: gone: found No such file or directory; expected a readable file. Next step: check the path.

    """
    stored = load_model(path, _Session)
    used = stored.bundle
    if used.digest != bundle.digest:
        found = f"a session on {used.name} {used.version}, digest {used.digest[:16]}"
        expected = f"one on {bundle.name} {bundle.version}, digest {bundle.digest[:16]}"
        step = "load the bundle that it was made with; other potentials would give other answers"
        if used.name == bundle.name:
            step = f"load it as it was then, or {REPLAY_ADVICE}"
        raise PlannerError(Fault(str(path), found, expected, step))
    return _restore_planner(
        stored, path, bundle, [Action(**step.model_dump()) for step in stored.steps], allocation, stop
    )


def replay_session(
    path: str | Path,
    bundle: Bundle,
    *,
    allocation: Rule | None = None,
    stop: Callable[[Planner], str | bool | None] | None = None,
) -> tuple[TopKPlanner | BinaryPlanner, list[str]]:
    """Load a session on a bundle that was edited after the session was saved.

    Return the planner, and a list of texts that describe what changed. A measured number is encoded again with the
    current range of its feature. A value that was entered as a code keeps this code. If a value is invalid in the
    edited bundle, the value is skipped, and the list names it. The texts do not say whether the answer changed, because
    the earlier answer cannot be computed without the earlier bundle.

    Parameters
    ----------
    allocation, stop : as in `load_session`

    Raises
    ------
    ConfigError : the file is not a session; the message names every wrong key.
    PlannerError : the session belongs to a bundle of another name, needs a user-defined rule, or has settings with
        names that the bundle now lacks.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from afa.model.bundle import load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> planner = TopKPlanner(bundle, k=1)
    >>> planner.observe_all({"MUC2": -1, "TFF3": 0})
    >>> edited = bundle.restrict(["CXCL8", "MMP9", "MUC2"])
    >>> with TemporaryDirectory() as folder:
    ...     save_session(planner, f"{folder}/mine.yaml")
    ...     again, changes = replay_session(f"{folder}/mine.yaml", edited)
    >>> again.observed, changes[1:]
    ({'MUC2': -1}, ['TFF3: left out 0: found an unknown name; expected a feature of the bundle'])

    """
    stored = load_model(path, _Session)
    used = stored.bundle
    if used.name != bundle.name:
        found, expected = f"a session on {used.name}", f"one on an earlier state of {bundle.name}"
        step = "load the bundle that it was made with, or begin a new session"
        raise PlannerError(Fault(str(path), found, expected, step))
    changes = list[str]()
    if used.digest != bundle.digest:
        then, now = (f"version {each.version}, digest {each.digest[:16]}" for each in (used, bundle))
        changes.append(f"{bundle.name} has changed since this session: then {then}, now {now}")
    steps, step = _still_valid_steps(stored.steps, bundle, changes), "begin a new session"
    return _restore_planner(stored, path, bundle, steps, allocation, stop, step), changes


def _still_valid_steps(steps: Sequence[_Step], bundle: Bundle, changes: list[str]) -> list[Action]:
    """Return the steps of a session that are still valid with the edited bundle.

    The values that changed or were skipped are appended to `changes` as texts. If a value was corrected in the session,
    only the corrected value is checked. If the last value of a feature is invalid in the edited bundle, the feature is
    skipped.
    """
    actions = [Action(**step.model_dump()) for step in steps]
    last = {row[0]: row[1:] for action in actions if action.kind != "skip" for row in action.rows()}
    read_values = {feature: _encode_and_compare(bundle, feature, *given, changes) for feature, given in last.items()}
    coded = [name for name, (_, number, _) in last.items() if number is None and name in bundle.features]
    if coded := [name for name in coded if scale_of(bundle, name).has_range]:
        changes.append(f"given without a number, so as they were read then: {first_names(coded)}")
    taken, known = list[Action](), set[str]()
    for action in actions:
        if action.kind == "skip":
            if features := tuple(name for name in action.features if name in bundle.features):
                taken.append(replace(action, features=features, values=(None,) * len(features)))
            continue
        fits = dict[str, ReadValue]()
        for feature, value, measured, unit in action.rows():
            with suppress(PlannerError):
                if read_values[feature] is not None:
                    fits[feature] = _encode_stored_value(bundle, feature, value, measured, unit)
        # If the first value of a feature is invalid in the edited bundle, the later correction of the feature becomes
        # its observation.
        split: tuple[tuple[ActionKind, set[str]], ...] = (
            ("observe", fits.keys() - known),
            ("correct", fits.keys() & known),
        )
        for kind, names in split:
            if part := {name: read_value for name, read_value in fits.items() if name in names}:
                cost = action.cost if kind == action.kind else 0.0
                taken.append(action_of(kind, part, cost, f"{action.reason} (by the bundle as it was)"))
        known |= fits.keys()
    return taken


def _encode_and_compare(
    bundle: Bundle, feature: str, value: int | None, measured: float | None, unit: str, changes: list[str]
) -> ReadValue | None:
    """Return a value encoded with the ranges of the edited bundle, or None if the value is invalid in this bundle.

    If the code differs from the code in the session, a text about this is appended to `changes`.
    """
    said = str(value) if measured is None else number_with_unit(measured, unit)
    try:
        read_value = _encode_stored_value(bundle, feature, value, measured, unit)
    except PlannerError as error:
        fault = error.faults[0]
        changes.append(f"{feature}: left out {said}: found {fault.found}; expected {fault.expected}")
        return None
    then, now = (word_of(bundle, feature, int(code or 0)) for code in (value, read_value.code))
    if then != now:
        changes.append(f"{feature}: {said} was {then}, and is {now} now")
    elif measured is not None and read_value.number is None:
        changes.append(f"{feature}: {said} stays {now}, since the bundle has no range for it now")
    return read_value


def _encode_stored_value(bundle: Bundle, feature: str, value: Any, measured: float | None, unit: str) -> ReadValue:
    """Return a value of a session, encoded with the ranges of the edited bundle.

    Raise a `PlannerError` if the value is invalid in the edited bundle.
    """
    code_of(bundle, feature, 0)  # raises an error for an unknown feature
    scale = scale_of(bundle, feature)
    if measured is None or not scale.has_range:
        return ReadValue(code_of(bundle, feature, value))
    if not same_unit(unit, scale.unit):
        found, expected = f"a number in {unit or 'no unit'}", f"one in {scale.unit or 'no unit'}"
        raise PlannerError(Fault(f"feature {feature}", found, expected, "give the number again"))
    return read_number(bundle, feature, measured)


def _restore_planner(
    stored: _Session,
    path: str | Path,
    bundle: Bundle,
    steps: Sequence[Action],
    allocation: Rule | None,
    stop: Callable[[Planner], str | bool | None] | None,
    next_step: str = f"take the session from an unedited copy, or {REPLAY_ADVICE}",
) -> TopKPlanner | BinaryPlanner:
    """Return a planner with the settings of a session, after the given steps.

    Errors contain the suggestion `next_step`.
    """
    question = stored.question
    options = stored.settings.model_dump(exclude=SETTINGS_OF_OTHER_QUESTION[question])
    if options[needed := "entity" if question == "binary" else "k"] is None:
        where = f"{path}, key settings.{needed}"
        raise PlannerError(Fault(where, "nothing", f"a value, for the question {question}", "add the key"))
    if allocation is None and options["allocation"] is None:
        expected = "the rule that it was made with"
        raise PlannerError(Fault(f"{path}, key settings.allocation", "null, a custom rule", expected, "pass it"))
    if stop is None and options["stop"].pop("own"):
        expected = "the rule of stopping that it was made with"
        raise PlannerError(Fault(f"{path}, key settings.stop", "a custom rule", expected, "pass it as stop"))
    options["allocation"] = allocation or options["allocation"]
    options["solver"] = Solver(**options["solver"])
    try:
        options["stop"] = Stop(**options["stop"] | {"own": stop})
        planner = (BinaryPlanner if question == "binary" else TopKPlanner)(bundle, **options)
        planner.repeat(steps)
    except AfaError as error:
        fault = error.faults[0]
        if not fault.where.startswith(str(path)):
            fault = Fault(f"{path}, {fault.where}", fault.found, fault.expected, next_step)
        raise PlannerError(fault) from None
    return planner
