"""One patient of a bundle with implications: exact over thousands of entities, one of which holds (F14a, F15).

`ImpliedPatient` answers what `afa.planner.explicit.ExplicitPatient` answers, as far as that makes sense without duels:
there is no certificate, and nothing as large as entities times entities unless scores of duels are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.patient import PatientState
from afa.errors import Fault, PlannerError
from afa.inference.answers import Answers
from afa.inference.hierarchy import hierarchy_of
from afa.mrf import Floats

Indices = NDArray[np.int64]


class ImpliedPatient(PatientState):
    """The state of one patient in N entities on M features, of which some imply others.

    tau : how far log-odds are believed (F16). packed : what no observation changes. place : (M,) where the hierarchy
    has each feature of the bundle.
    """

    def __init__(self, bundle: Bundle, tau: float = 1.0) -> None:
        self.packed, self.place = hierarchy_of(bundle)
        self.n_entities = len(bundle.entities)
        self._present: list[int] = []
        self._absent: list[int] = []
        self._tau = tau
        self.answers = Answers.of(self.packed, tau=tau)

    def observe(self, feature: int, value: int) -> None:
        """Take in one value, 0 or +1, that no other one contradicts."""
        (self._present if value == 1 else self._absent).append(int(self.place[feature]))
        self.answers = Answers.of(self.packed, self._present, self._absent, self._tau)

    def log_evidence(self) -> Floats:
        """(N,) log prior plus log-likelihood, believed as far as `tau` says."""
        return self.answers.log_evidence

    def scores(self, _: str) -> Floats:
        """(N, N) differences of log-evidence, whatever the score."""
        values = self.log_evidence()[:, None] - self.log_evidence()[None, :]
        return np.where(np.abs(values) <= self.packed.tie, 0.0, values)

    def lead(self, duels: Indices | None = None) -> Floats:
        """(q,) what has been observed says for a over b, of some duels or of all."""
        a, b = self.sides(duels).T
        return np.asarray(self.log_evidence()[a] - self.log_evidence()[b])

    def resolved(self, duels: Indices | None = None) -> NDArray[np.bool_]:
        """(q,) none of them: implications have no certificates (F14)."""
        return np.zeros(self.n_duels if duels is None else len(duels), dtype=np.bool_)

    def places(self) -> Indices:
        """(N,) how many entities have more evidence; equal ones share their place."""
        ordered = np.sort(-self.log_evidence().round(9))
        return np.searchsorted(ordered, -self.log_evidence().round(9)).astype(np.int64)

    def known_ranks(self, _score: str, name_rank: Indices) -> Indices:
        """(N,) ranks, 1 the best; ties by `name_rank`."""
        rank = np.empty(len(name_rank), dtype=np.int64)
        rank[np.lexsort((name_rank, self.places()))] = np.arange(1, len(name_rank) + 1)
        return rank

    def wins(self) -> Floats:
        """(N,) duels won, a tie half."""
        places, n = self.places(), self.n_entities
        equal = np.bincount(places, minlength=n)[places] - 1
        return np.asarray(n - 1 - places - equal / 2)

    def gains(self, *_: object) -> Floats:
        """Refused: no duel has a gain of its own."""
        step = "choose gain='information', or allocation='random'"
        raise PlannerError(Fault("a rule on implications (implies.csv)", "gains of duels", "information", step))

    gain_of = summed_gain = intervals = gains

    @property
    def closed(self) -> NDArray[np.bool_]:
        """(M,) features that are observed or implied."""
        return ~self.answers.open[self.place]

    def total_unary(self) -> Floats:
        """(M,) 1 for every open feature: no unary says which of them matters more."""
        return np.where(self.closed, 0.0, 1.0)

    def information_among(self, offered: NDArray[np.bool_], every: bool) -> Floats:
        """(M,) what each feature on offer tells about which entity holds; unless `every`, 0 of some that tell less."""
        chosen = np.flatnonzero(offered & self.answers.open[self.place])
        told = np.zeros(len(self.place))
        if len(chosen):
            asked = self.place[chosen]
            told[chosen] = self.answers.information(asked) if every else self.answers.largest(asked)
        return told

    def tells(self, feature: int) -> str:
        """The likeliest entity with a feature, and the likeliest without it, as `tells a from b`."""
        theta, names = self.answers.predictive(int(self.place[feature])), self.packed.entities
        joint = np.stack([self.answers.posterior * theta, self.answers.posterior * (1.0 - theta)])
        a = int(joint[0].argmax())
        joint[1, a] = -1.0
        return f"tells {names[a]} from {names[int(joint[1].argmax())]}"


def implied_values(bundle: Bundle, observed: Mapping[str, float]) -> dict[str, int]:
    """What the observed values imply of other features: 1 above what is there, 0 below what is not.

    Raises
    ------
    PlannerError : a feature is 0 that another one implies, or the other way round.

    """
    if bundle.rates is None or not bundle.rates.parents:
        return {}
    known, place = hierarchy_of(bundle)
    at = {name: int(i) for name, i in zip(bundle.features, place, strict=True)}
    values: dict[int, tuple[int, str]] = {at[name]: (int(value), name) for name, value in observed.items()}
    found: dict[int, int] = {}
    for feature, (value, name) in list(values.items()):
        for other in known.ancestors[feature] if value == 1 else known.descendants[feature]:
            if values.get(int(other), (value,))[0] != value:
                words = f"{name} at {value} and {values[int(other)][1]} at {1 - value}"
                expected = "who has a feature has what it implies"
                raise PlannerError(Fault("observations", words, expected, "correct the wrong one"))
            found[int(other)] = value
    return {known.features[other]: value for other, value in found.items() if other not in values}
