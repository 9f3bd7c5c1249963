"""The options that both planners have: their types, defaults and checks.

The options include the stopping rules. All options can be converted to values that can be saved in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial, wraps
from inspect import signature
from math import inf
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, get_args, get_type_hints

from afa.engine.gains import GAIN_KINDS
from afa.engine.patient import Patient
from afa.engine.patient_state import PatientState
from afa.errors import Fault, PlannerError, check_number
from afa.inference.meanfield import Solver
from afa.io.csvfile import suggestion
from afa.io.later import Later
from afa.model.bundle import Bundle, load_bundle
from afa.model.bundle.rates import HOLDS_SETTINGS
from afa.model.closure import Closure
from afa.planner.explicit import ExplicitPatient
from afa.planner.menu import Costs, Panels, is_list
from afa.planner.rules import RULES, Rule
from afa.planner.rules.frontier import Frontier
from afa.planner.rules.information import Information
from afa.planner.sides import sides_for
from afa.scores.belief import Background
from afa.scores.gain import TARGETS

if TYPE_CHECKING:
    from afa.planner import base
else:
    base = Later("afa.planner.base")

BACKGROUND, FRONTIER = "background", "frontier"
"""Names of the score and the rule based on the belief about scores, which needs a background (docs/frontier.md)."""
SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl_nonzero", BACKGROUND)
ALL_DUELS_UP_TO = 200
"""Largest number of entities for which all duels (comparisons of two entities) are used by default."""
DUEL_GAINS = tuple(dict.fromkeys(gain for gain, _ in GAIN_KINDS))
INFORMATION = "information"
"""Name of the gain over entities and of the rule that uses it (docs/decisions.md, F15)."""
GAINS = (*DUEL_GAINS, INFORMATION)
EXACT_SCORES = ("linearity", "two_elbo", "wald", "kl_nonzero", BACKGROUND)
EXPLICIT_SCORES = ("two_elbo", "wald", BACKGROUND)
EXPLICIT_GAINS = ("cmi", "wald_magnitude", INFORMATION)
NewPatient = Callable[[], PatientState]
OwnRule = Callable[[Any], str | bool | None]
"""A user-defined stopping rule: a function of the planner. It returns the reason to stop, or True to stop, or None or
False to continue.
"""
EFFECTIVE = "effective"
"""Value of `tau` for which the factor depends on the correlation of the observed features."""


@dataclass(frozen=True)
class Stop:
    """Stopping rules.

    The planner stops when at least one rule is met, or when every feature has been measured.

    Parameters
    ----------
    budget : largest total cost, in the units of the costs. Items that cost more than the rest of the budget are
        skipped; the acquisition ends when no item is affordable
    certain : True to stop when the tight `l1` score bounds show that no further measurement can change the answer. The
        answer then equals the answer at full observation; it is right for the patient only if the bundle is right
    posterior : stop when the answer has this posterior probability, above 0 and below 1 (`answer_probability` of the
        planner), and is not a tie. The probability is as good as the models of the bundle; its error rate must be
        measured on data (docs/stopping.md)
    probability : stop at this probability, above 1/2 and below 1, that the answer will not change
        (`TopKPlanner.boundary_probability`, `BinaryPlanner.confidence`). The models of the bundle give this
        probability, so it is as good as the models
    gain : stop when no available feature or panel has more than this gain, 0 or more, summed over the unresolved duels
    own : a user-defined rule: a function of the planner that returns the reason to stop or True, and None or False to
        go on. `stop=rule` of a planner is short for `stop=Stop(own=rule)`

    >>> from afa.model.bundle import load_bundle
    >>> from afa.planner import TopKPlanner
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1, stop=Stop(gain=9))
    >>> planner.suggest(), planner.reason
    (None, 'the largest gain left is 0.2497, at most 9')

    """

    budget: float | None = None
    certain: bool = False
    probability: float | None = None
    gain: float | None = None
    posterior: float | None = None
    own: OwnRule | None = None

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("budget", self.budget, "a finite number, 0 or more", lambda x: 0 <= x < inf),
            ("probability", self.probability, "a number above 0.5 and below 1", lambda x: 0.5 < x < 1),
            ("posterior", self.posterior, "a number above 0 and below 1", lambda x: 0 < x < 1),
            ("gain", self.gain, "a finite number, 0 or more", lambda x: 0 <= x < inf),
        ):
            if value is not None:
                check_number(PlannerError, f"stop option {option}", value, expected, fits)
        if not isinstance(self.certain, bool):
            raise PlannerError(Fault("stop option certain", repr(self.certain), "True or False", "give one of these"))
        if self.own is not None and not callable(self.own):
            expected = "a function of the planner"
            raise PlannerError(Fault("stop option own", repr(self.own), expected, "give a function, or leave it out"))

    def met_by(self, planner: base.Planner) -> str | None:
        """Return in words which stopping rule is met, or None if no rule is met.

        The rule `budget` is not checked here but by `Planner.stopped`.
        """
        if self.certain and planner.certain():
            return "no remaining measurement can change the answer"
        posterior, probability = self.posterior, self.probability
        if posterior is not None and (now := planner.settled_probability()) >= posterior:
            return f"the answer has posterior probability {now:.4f}, at least {posterior:g}"
        if probability is not None and (now := planner.confidence()) >= probability:
            return f"the answer stays with probability {now:.4f}, at least {probability:g}"
        if self.gain is not None and (most := planner.largest_gain()) <= self.gain:
            return f"the largest gain left is {most:.4g}, at most {self.gain:g}"
        if self.own is not None and (said := self.own(planner)):
            return said if isinstance(said, str) else "your own rule of stopping holds"
        return None

    def plain(self) -> dict[str, Any]:
        """Return a dict of all stopping rules, in a form that can be saved in a file.

        A user-defined rule is a function, which cannot be saved. Therefore, the value of `own` is True if there is a
        user-defined rule, else False.
        """
        return vars(self) | {"own": self.own is not None}


class CommonOptions(TypedDict, total=False):
    """Types of the options that both planners have. The docstring of `TopKPlanner` describes the options."""

    target: str | None
    inference: str
    solver: Solver | None
    start: str
    look_ahead: str
    costs: Costs
    panels: Panels
    first: Sequence[str]
    stop: Stop | OwnRule | None
    patient: str
    seed: int
    coupling: Closure | None
    tau: float | str | None
    background: Background | Mapping[str, Any] | str | None
    together: int


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of the options that both planners have, with defaults.

    Raise a `PlannerError` if a value is invalid.
    """

    score: str
    gain: str
    allocation: str | Rule
    target: str | None = None
    inference: str = "mean_field"
    solver: Solver | None = None
    start: str = "uniform"
    look_ahead: str = "same"
    costs: Costs = None
    panels: Panels = None
    first: Sequence[str] = ()
    stop: Stop | OwnRule | None = None
    patient: str = ""
    seed: int = 0
    coupling: Closure | None = None
    tau: float | str | None = None
    background: Background | Mapping[str, Any] | str | None = None
    together: int = 1

    def __post_init__(self) -> None:
        if self.score == "kl":
            expected = "a score in which a beats b whenever b loses to a"
            step = "use kl_nonzero, its antisymmetric form"
            raise PlannerError(Fault("planner option score", "'kl'", expected, step))
        one_of("score", self.score, SCORES)
        one_of("gain", self.gain, GAINS)
        one_of("start", self.start, ("uniform", "warm"))
        one_of("look_ahead", self.look_ahead, ("same", "warm"))
        one_of("inference", self.inference, ("mean_field", "exact"))
        if self.gain == "f_target":
            one_of("target", str(self.lookahead_target), TARGETS)
        elif self.target is not None:
            where, expected = "planner option target", "none unless gain is f_target"
            raise PlannerError(Fault(where, repr(self.target), expected, "leave it out"))
        if self.inference == "exact" and (self.score not in EXACT_SCORES or self.gain == "f_target"):
            found = f"exact with {self.score} and {self.gain}"
            expected = f"score {', '.join(EXACT_SCORES)} and gain cmi or wald_magnitude"
            step = "use inference='mean_field'"
            raise PlannerError(Fault("planner option inference", found, expected, step))
        if isinstance(self.allocation, str):
            one_of("allocation", self.allocation, (*RULES, INFORMATION, FRONTIER))
            if (self.gain == INFORMATION) != (self.allocation == INFORMATION) and self.allocation != "random":
                found, step = f"{self.allocation!r} with gain {self.gain!r}", "leave allocation out"
                expected = "the rule `information` with the gain of that name, and with no other"
                raise PlannerError(Fault("planner option allocation", found, expected, step))
        elif not callable(getattr(self.allocation, "choose", None)):
            found, expected = repr(self.allocation), f"{' or '.join(RULES)}, or an object with the method choose(view)"
            raise PlannerError(Fault("planner option allocation", found, expected, "choose one of these"))
        expected = "a whole number, 1 or more"
        check_number(PlannerError, "planner option together", self.together, expected, lambda x: x >= 1 and x % 1 == 0)
        if self.together > 1 and not self.believes:
            found, step = "several features at once", f"give score={BACKGROUND!r} or allocation={FRONTIER!r}"
            raise PlannerError(Fault("planner option together", found, "a planner with a background", step))
        if self.background is not None and not self.believes:
            found, step = f"{self.score} with {self.allocation}", f"give score={BACKGROUND!r}, or leave it out"
            raise PlannerError(Fault("planner option background", found, "a score or rule that uses it", step))
        if self.stop is not None and not isinstance(self.stop, Stop) and not callable(self.stop):
            step = "give afa.Stop(certain=True)"
            raise PlannerError(Fault("planner option stop", repr(self.stop), "an afa.Stop or a function", step))
        for option, value, expected, fits in (
            ("first", self.first, "a list of names", is_list(self.first)),
            ("patient", self.patient, "a text", isinstance(self.patient, str)),
            ("seed", self.seed, "a whole number", isinstance(self.seed, Integral)),
            ("solver", self.solver, "an afa.Solver", isinstance(self.solver, Solver | None)),
        ):
            if not fits:
                raise PlannerError(Fault(f"planner option {option}", repr(value), expected, f"give {expected}"))

    @cached_property
    def rule(self) -> Rule:
        if self.allocation in (INFORMATION, FRONTIER):
            return Information() if self.allocation == INFORMATION else Frontier()
        return RULES[self.allocation]() if isinstance(self.allocation, str) else self.allocation

    @property
    def believes(self) -> bool:
        """Return True if the score or the allocation rule uses the class `Belief`, which needs a background."""
        return self.score == BACKGROUND or isinstance(self.rule, Frontier)

    @property
    def rules_of_stopping(self) -> Stop:
        return self.stop if isinstance(self.stop, Stop) else Stop(own=self.stop)

    @property
    def lookahead_target(self) -> str | None:
        """Return the score whose expected change is the gain `f_target`.

        If the option `target` is given, return it. Otherwise, return the option `score` if the gain is `f_target` and
        the score is one of `TARGETS`, else None.
        """
        return self.target or (self.score if self.gain == "f_target" and self.score in TARGETS else None)

    def of_patient(self) -> dict[str, Any]:
        """Return the options that `afa.engine.patient.Patient` accepts."""
        names = ("solver", "start", "inference", "gain", "look_ahead")
        gain = "cmi" if self.gain == INFORMATION else self.gain  # some methods need a gain that is defined for duels
        return {name: getattr(self, name) for name in names} | {"target": self.lookahead_target, "gain": gain}

    def plain(self, panels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return a dict of all options, including the panels in use, in a form that can be saved in a file.

        If the allocation rule is user-defined, the value of `allocation` is None.
        """
        rules = RULES | {INFORMATION: Information, FRONTIER: Frontier}
        named = next((name for name, rule in rules.items() if type(self.rule) is rule), None)
        same = ("score", "gain", "inference", "start", "look_ahead", "patient", "seed")
        return {name: getattr(self, name) for name in same} | {
            "target": self.lookahead_target,
            "allocation": named,
            "solver": asdict(self.solver or Solver()),
            "costs": dict(self.costs) if isinstance(self.costs, Mapping) else self.costs,
            "panels": dict(panels),
            "first": list(self.first),
            "stop": self.rules_of_stopping.plain(),
            "together": int(self.together),
        }


def question_arguments(bundle: Bundle, k: int | None, entity: str | None) -> tuple[int, str | None]:
    """Return two values: the number k of entities in the answer, and the entity of a binary question or None.

    The default of k is 1. If neither k nor an entity is given and the bundle has only one entity, the binary question
    is about this entity.
    """
    if k is not None and entity is not None:
        expected, step = "one of the two questions", "leave one of them out"
        raise PlannerError(Fault("options --k and --entity", "both", expected, step))
    return k or 1, bundle.entities[0] if k is None and len(bundle.entities) == 1 else entity


def bundle_given(bundle: Bundle | str | Path) -> Bundle:
    """Return the bundle. If `bundle` is the path of a folder, load the bundle from the folder."""
    if isinstance(bundle, str | Path):
        return load_bundle(bundle)
    if not isinstance(bundle, Bundle):
        step = "give afa.load_bundle(folder), or the folder"
        raise PlannerError(Fault("planner option bundle", type(bundle).__name__, "a Bundle, or its folder", step))
    return bundle


def gauge_of(bundle: Bundle, asked: Closure | None) -> Closure:
    """Return the requested closure, or the default closure if None is requested.

    A closure is a method that makes two models: the model of patients with an entity, and the model of patients without
    it. The default is `explicit` if the bundle has probabilities or if some feature cannot take all three values, else
    `differential`.
    """
    if asked is None:
        return "explicit" if bundle.has_probabilities or not bundle.ternary else "differential"
    one_of("coupling", asked, get_args(Closure))
    if asked != "explicit" and not bundle.ternary:
        found, step = f"{asked} on features that cannot be -1, or cannot be +1", "leave it out, for explicit"
        raise PlannerError(Fault("planner option coupling", found, "explicit", step))
    return asked


def patients_of(
    bundle: Bundle, models: Bundle, options: Options, gauge: str, *, entity: str | None = None, holds: str | None = None
) -> tuple[NewPatient, dict[str, Any]]:
    """Return a function that makes the state of a new patient, and a dict of settings.

    If `gauge` is `explicit`, the dict contains `tau` and, for the top k, `coupling` and `holds`. If `gauge` has another
    value, the dict is empty.

    Raise a `PlannerError` if an option cannot be combined with `gauge`.

    Parameters
    ----------
    models : the bundle whose entities are compared in duels if `gauge` is not `explicit`
    gauge : name of the closure, the method that makes the models of patients with and without an entity
    entity : the entity of a binary question; None for the top k
    holds : how many entities can be present; the bundle's setting by default. The option `tau` is a number, 1 by
        default, or `EFFECTIVE` (docs/decisions.md, F16)

    """
    of_patient = options.of_patient()
    if gauge != "explicit":
        for name, given in (("holds", holds), ("tau", options.tau)):
            if given is not None:
                found, expected = f"{given!r} with {gauge} couplings", "a bundle with probabilities, taken as explicit"
                raise PlannerError(Fault(f"planner option {name}", found, expected, "leave it out"))
        return partial(Patient, models, calibrated=entity is not None, **of_patient), {}
    holds = holds or ("several" if bundle.rates is None else bundle.rates.holds)
    tau = 1.0 if options.tau is None else options.tau
    one_of("holds", holds, HOLDS_SETTINGS)
    one_of("score", options.score, EXPLICIT_SCORES)
    one_of("gain", options.gain, EXPLICIT_GAINS)
    exactly = options.inference == "exact"
    if tau == EFFECTIVE and (bundle.exclusive or exactly):
        found = "effective with exclusive groups or exact inference"
        step = "give a number, or leave it out"
        raise PlannerError(Fault("planner option tau", found, "features by themselves, mean_field", step))
    if tau != EFFECTIVE:
        step = "leave it out for log-odds without shrinkage"
        expected = f"a number above 0, at most 1, or {EFFECTIVE}"
        check_number(PlannerError, "planner option tau", tau, expected, lambda x: 0 < x <= 1, step)
    settings = {"tau": tau} | ({} if entity else {"coupling": "explicit", "holds": holds})
    believed = 1.0 if isinstance(tau, str) else tau
    sides = sides_for(bundle, holds, exactly=exactly, entity=entity, discounted=tau == EFFECTIVE)
    patient = partial(
        ExplicitPatient,
        sides,
        rivals=entity is None and holds != "several",
        may_be_none=holds == "one or none",
        tau=believed,
        **{name: of_patient[name] for name in ("inference", "gain", "solver")},
    )
    return patient, settings


def tau_of(text: str | None) -> float | str | None:
    """Return the option `tau` as a number if possible, else as the given text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def one_of(option: str, given: str, known: Sequence[str]) -> None:
    """Raise a `PlannerError` if `given` is not one of the known values of an option."""
    if given not in known:
        raise PlannerError(Fault(f"planner option {option}", repr(given), " or ".join(known), "choose one of these"))


Init = TypeVar("Init", bound=Callable[..., None])


def listing_options(init: Init) -> Init:
    """Return a planner's `__init__` whose signature lists all options.

    The returned function rejects unknown options.
    """
    own, types = signature(init), get_type_hints(Options)
    named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    every = [each.replace(annotation=types[name]) for name, each in signature(Options).parameters.items()]
    further = [each for each in every if each.name not in own.parameters]
    known = [each.name for each in (*named, *further) if each.kind is each.KEYWORD_ONLY]

    @wraps(init)
    def checked(self: Any, *given: Any, **options: Any) -> None:
        for name in options.keys() - set(known) - {"bundle"}:
            step = suggestion(name, known, "see the signature")
            raise PlannerError(Fault(f"planner option {name}", "an unknown option", "one that planners have", step))
        init(self, *given, **options)

    vars(checked)["__signature__"] = own.replace(parameters=[*named, *further])
    return cast(Init, checked)
