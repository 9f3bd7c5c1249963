"""Zero-shot active feature acquisition: choose the next measurement from what experts or a language model wrote down.

`import afa` is quick, because each public name is imported only when it is first used. These modules are also public:
`afa.planner`, `afa.planner.rules`, `afa.planner.session`, `afa.model.bundle`, `afa.model.mrf`,
`afa.inference.meanfield`, `afa.inference.exact`, `afa.inference.result`, `afa.model.closure`, `afa.scores.preference`,
`afa.scores.gain`, `afa.scores.bracket`, `afa.scores.copeland`, `afa.scores.belief`, `afa.model.bundle.graph`,
`afa.model.bundle.markov_network`, `afa.evaluate.plot` and `afa.errors`. CHANGELOG.md explains which version numbers
announce a change of the public interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afa.cohort.encode_table import encode as encode
    from afa.errors import AfaError as AfaError
    from afa.evaluate.predict import predict_proba as predict_proba
    from afa.evaluate.simulation_page import simulate as simulate
    from afa.evaluate.update import update as update
    from afa.inference.exact import exact as exact
    from afa.inference.meanfield import Solver as Solver
    from afa.inference.meanfield import mean_field as mean_field
    from afa.model.bundle import Bundle as Bundle
    from afa.model.bundle import bundle_from_frame as bundle_from_frame
    from afa.model.bundle import load_bundle as load_bundle
    from afa.model.bundle import validate_bundle as validate_bundle
    from afa.model.mrf import Evidence as Evidence
    from afa.model.mrf import PairwiseMRF as PairwiseMRF
    from afa.planner import BinaryPlanner as BinaryPlanner
    from afa.planner import Stop as Stop
    from afa.planner import TopKPlanner as TopKPlanner
    from afa.planner.session import load_session as load_session
    from afa.planner.session import replay_session as replay_session
    from afa.planner.session import save_session as save_session
    from afa.scores.belief import Background as Background

__version__ = "0.2.0"

_NAMES = {
    "afa.model.bundle": ("Bundle", "bundle_from_frame", "load_bundle", "validate_bundle"),
    "afa.cohort.encode_table": ("encode",),
    "afa.errors": ("AfaError",),
    "afa.inference.exact": ("exact",),
    "afa.inference.meanfield": ("Solver", "mean_field"),
    "afa.model.mrf": ("Evidence", "PairwiseMRF"),
    "afa.planner": ("BinaryPlanner", "Stop", "TopKPlanner"),
    "afa.evaluate.predict": ("predict_proba",),
    "afa.evaluate.simulation_page": ("simulate",),
    "afa.evaluate.update": ("update",),
    "afa.planner.session": ("load_session", "replay_session", "save_session"),
    "afa.scores.belief": ("Background",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("afa.evaluate.plot")
    if name not in _HOME:
        raise AttributeError(f"module 'afa' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "plot"])
