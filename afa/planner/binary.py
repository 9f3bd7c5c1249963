"""A planner for the binary question: is one entity present in a patient, yes or no?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

import numpy as np
from scipy.special import expit

from afa.errors import Fault, PlannerError
from afa.model.arrays import Floats
from afa.model.bundle import Bundle
from afa.model.closure import STRENGTH, closed_bundle
from afa.planner.base import Planner
from afa.planner.options import (
    BACKGROUND,
    FRONTIER,
    INFORMATION,
    CommonOptions,
    Options,
    bundle_given,
    gauge_of,
    listing_options,
    patients_of,
)
from afa.planner.rules import Rule


class BinaryPlanner(Planner):
    """Decide whether one entity is present in a patient, with few measurements.

    The planner compares two models: one for patients with the entity, and one for patients without it. An assumption
    called closure determines these two models (`afa.model.closure`). The energy of the first model minus the energy of
    the second model is the score S of the entity (tab:mode-mapping).

    The parameters of `BinaryPlanner` are those of `TopKPlanner`, except `k` and `holds`. The following parameters
    differ.

    Parameters
    ----------
    coupling : `differential`, the paper's closure; `shared`, with the couplings in both classes and S without
        couplings; or `explicit`, with the class-conditional probabilities of the bundle, the default if the bundle has
        any
    strength : upper limit for beta L^2 of shared couplings, above 0 and below 1

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> planner = BinaryPlanner(load_bundle("tests/data/bundle_tiny"), entity="bleeding")
    >>> planner.probability()
    0.5
    >>> planner.observe("CXCL8", 1)
    >>> planner.decision()
    1

    """

    @listing_options
    def __init__(
        self,
        bundle: Bundle | str | Path,
        *,
        entity: str,
        score: str | None = None,
        gain: str = "cmi",
        allocation: str | Rule | None = None,
        strength: float = STRENGTH,
        **options: Unpack[CommonOptions],
    ) -> None:
        self.entity = entity
        bundle = bundle_given(bundle)
        gauge = gauge_of(bundle, options.get("coupling"))
        given = options.get("background") is not None and gauge == "differential" and gain != INFORMATION
        believes = allocation == FRONTIER or (given and allocation is None)
        score = score or (BACKGROUND if believes else "two_elbo")
        usual = FRONTIER if score == BACKGROUND else "greedy"
        allocation = allocation or (INFORMATION if gain == INFORMATION else usual)
        checked = Options(score=score, gain=gain, allocation=allocation, **options)
        models = closed_bundle(bundle, entity, "shared" if gauge == "shared" else "differential", strength)
        new_patient, explicit = patients_of(bundle, models, checked, gauge, entity=entity)
        asked = {"entity": entity, "coupling": gauge, "strength": strength, **explicit}
        super().__init__(bundle, models, checked, new_patient, asked)

    def score(self) -> float:
        """Return the preference score of the class with the entity over the class without the entity.

        The score is not calibrated: its logistic function is not the probability of the entity.
        """
        return float(self.scores_by(self.guide)[0, 1])

    def log_odds(self) -> float:
        """Return the calibrated log-odds of the entity in nats, computed from two ELBOs (docs/decisions.md, S15).

        Without observations, these log-odds equal the prior log-odds.
        """
        evidence = self._state.log_evidence()
        return float(evidence[0] - evidence[1])

    def probability(self) -> float:
        """Return P(entity | x_obs), the logistic function of `log_odds` (prop:calibration)."""
        return float(expit(self.log_odds()))

    def probabilities(self) -> dict[str, float]:
        """Return the probability that the entity is present and the probability that it is absent.

        The keys of the mapping are the name of the entity, and `not` followed by this name.

        Examples
        --------
        >>> planner = BinaryPlanner("tests/data/bundle_tiny", entity="bleeding")
        >>> planner.probabilities()
        {'bleeding': 0.5, 'not bleeding': 0.5}

        """
        held = self.probability()
        return dict(zip(self.bundle.entities, (held, 1 - held), strict=True))

    def decision(self, by: Literal["calibrated", "raw"] | None = None) -> Literal[-1, 0, 1]:
        """Return 1 if the entity is favoured, -1 if its absence is favoured, and 0 if there is a tie.

        Parameters
        ----------
        by : `calibrated`, the default, takes the sign of `log_odds`, so that the decision agrees with `probability`.
            `raw`, the default with the score `background`, takes the sign of `score`, the paper's decision. The two can
            differ, also at full observation, because of the normalisers of the two classes (decisions.md S15)

        """
        by = by or ("raw" if self.guide == BACKGROUND else "calibrated")
        if by not in ("calibrated", "raw"):
            raise PlannerError(Fault("decision by", repr(by), "calibrated or raw", "choose one of these"))
        value = self.score() if by == "raw" else self.log_odds()
        return 0 if abs(value) <= self._state.packed.tie else 1 if value > 0 else -1

    def answer(self) -> list[str]:
        """Return a list with one name: the name of the entity or, if `decision` is -1, `not` followed by this name."""
        return [self.bundle.entities[1 if self.decision() < 0 else 0]]

    def answer_probability(self) -> float:
        """Return the probability of the current answer.

        The probability is P(entity | x_obs) or, if `decision` is -1, 1 - P(entity | x_obs).
        """
        return 1 - self.probability() if self.decision() < 0 else self.probability()

    ordered_by = "probability"

    def strengths(self) -> Floats:
        """Return the log-odds in nats that the entity is present, and the log-odds that it is absent.

        The result has the shape (2,).
        """
        return np.array([self.log_odds(), -self.log_odds()])

    def undecided(self) -> list[str]:
        """Return the names of both classes if `decision` is 0 (a tie), else an empty list."""
        return list(self.bundle.entities) if self.decision() == 0 else []

    def confidence(self) -> float:
        """Return the larger of `probability` and 1 - `probability`.

        With the score `background`, return the result of `top_probability` instead.
        """
        if self.guide == BACKGROUND:
            return self.top_probability()
        probability = self.probability()
        return max(probability, 1 - probability)

    def resolved(self) -> bool:
        """Return True if no values of the unobserved features can change `decision`.

        The result is computed from the tight `l1` score bounds, which are bounds on the scores over all values of the
        unobserved features (`afa.scores.bracket`).
        """
        return bool(self._state.resolved()[0])

    certain = resolved
