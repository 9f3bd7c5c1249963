"""From what a user names (a bundle, a session, a file of panels) to a planner that is ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from afa.allocate.check import rule_of
from afa.bundle import Bundle
from afa.errors import Fault, PlannerError
from afa.planner import BinaryPlanner, Planner, Stop, TopKPlanner
from afa.session import load_session
from afa.yamlfile import check_model, read_mapping

KEPT_AS = {
    **{
        name: name
        for name in ("k", "entity", "coupling", "score", "gain", "allocation", "first", "patient", "holds", "tau")
    },
    **{name: f"stop.{name}" for name in ("budget", "certain", "posterior", "probability")},
    "min-gain": "stop.gain",
}
"""Options of `afa plan`, and the settings of a session that hold them."""


class _Panel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    features: tuple[str, ...] = Field(min_length=1)
    cost: float | None = Field(None, ge=0)


@dataclass(frozen=True)
class Panels:
    """What a file of panels says: features by panel, and the costs of those panels that have one of their own."""

    features: Mapping[str, tuple[str, ...]]
    costs: Mapping[str, float]


def read_panels(path: str | Path) -> Panels:
    """Read a YAML file of panels, `name: {features: [a, b], cost: 5}`; the cost may be left out.

    Raises
    ------
    ConfigError : names the panel and the key that is wrong.

    """
    read = {
        str(name): check_model(body if isinstance(body, dict) else {"features": body}, _Panel, f"{path}, panel {name}")
        for name, body in read_mapping(path).items()
    }
    costs = {name: panel.cost for name, panel in read.items() if panel.cost is not None}
    return Panels({name: panel.features for name, panel in read.items()}, costs)


def new_planner(
    bundle: Bundle, *, k: int | None, entity: str | None, panels: Panels | None, stop: Stop, **options: Any
) -> Planner:
    """A planner for the top k, or for one entity; without either for the best, or for the only entity that there is.

    options : those of both planners, and `holds` where there is no entity. `costs` may be `equal`;
    panels keep the costs of their own file even then. `allocation` may be `module:Class`.
    """
    if k is None and entity is None and len(bundle.entities) == 1:
        entity = bundle.entities[0]
    if ":" in options.get("allocation", ""):
        options["allocation"] = rule_of(options["allocation"])()
    costs = _costs(bundle, options.pop("costs", None), panels)
    if panels:
        options["panels"] = panels.features
    if entity is None and options.get("coupling") == "shared":
        expected = "--entity beside it: a ranking has no two classes"
        raise PlannerError(Fault("option --coupling", options["coupling"], expected, "name an entity or leave it out"))
    if entity is None:
        return TopKPlanner(bundle, k=k or 1, costs=costs, stop=stop, **options)
    if k is not None:
        expected = "one of the two questions"
        raise PlannerError(Fault("options --k and --entity", "both", expected, "leave one of them out"))
    if entity not in bundle.entities:
        known = ", ".join(bundle.entities[:10]) + (", ..." if len(bundle.entities) > 10 else "")
        raise PlannerError(Fault("option --entity", repr(entity), f"an entity of the bundle: {known}", "name one"))
    if "holds" in options:
        expected = "no --entity beside it: it says how many of all hold"
        raise PlannerError(Fault("option --holds", options["holds"], expected, "leave one of the two out"))
    return BinaryPlanner(bundle, entity=entity, costs=costs, stop=stop, **options)


def resumed_planner(path: str | Path, bundle: Bundle, given: Mapping[str, Any]) -> Planner:
    """The planner of a session file, whose own settings hold; an option `given` beside it must say the same.

    given : by the name of the option, None where it was not given; `--panels` as `Panels`.
    """
    named = given.get("--allocation") or ""
    planner = load_session(path, bundle, allocation=rule_of(named)() if ":" in named else None)
    stored = planner.settings | {f"stop.{name}": value for name, value in planner.settings["stop"].items()}
    stored["allocation"] = stored["allocation"] or named
    asked = {name: (given.get(f"--{name}"), stored.get(key)) for name, key in KEPT_AS.items()}
    other = {f"--{name} {new}": str(old) for name, (new, old) in asked.items() if new not in (None, old)}
    panels, costs = given.get("--panels"), given.get("--costs")
    if panels is not None or costs is not None:
        features = {name: list(members) for name, members in panels.features.items()} if panels else {}
        menu = features, _costs(bundle, "equal" if costs == "equal" else None, panels)
        if menu != (stored["panels"], stored["costs"]):
            other["--panels or --costs"] = "its own panels and costs"
    if other:
        step = "leave these out, or name a session file that does not exist yet"
        found, expected = f"an earlier session, and {', '.join(other)}", ", ".join(other.values())
        raise PlannerError(Fault(str(path), found, expected, step))
    return planner


def _costs(bundle: Bundle, costs: str | None, panels: Panels | None) -> Mapping[str, float] | str | None:
    if panels is None:
        return costs
    return dict.fromkeys(bundle.features, 1.0) | dict(panels.costs) if costs == "equal" else dict(panels.costs)
