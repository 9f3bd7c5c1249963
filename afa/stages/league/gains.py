"""The gain over entities beside sums over duels (decisions.md F15).

On patients that a bundle draws from its own models, where the gain alone is compared, since the bundle is right about
them; or on those of a field, with real labels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from afa.bundle import Bundle
from afa.engine.course import MISSING
from afa.engine.patient import Patient
from afa.errors import ConfigError, Fault
from afa.inference.result import probabilities_of
from afa.mrf import Floats
from afa.planner.explicit import ExplicitPatient
from afa.planner.sides import sides_for
from afa.stages.drawn import generator_of
from afa.stages.league.entrants import Entrant
from afa.stats.resampling import interval, patient_weights

GAINS = ("information", "sum over duels", "weighted sum over duels", "random")
ROUNDS = (1, 2, 3, 5, 8, 12)


def gains_of_drawn(bundle: Bundle, n_patients: int, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of patients whose entity is drawn uniformly, and each feature from its own marginal."""
    draw, empty = generator_of("gains", bundle.digest, seed), Patient(bundle, gain="cmi")
    own = np.full((len(bundle.entities), len(bundle.features), 3), 1 / 3)
    own[empty.packed.owner, empty.packed.feature] = probabilities_of(empty.state.m, empty.state.q)
    truth = draw.integers(len(bundle.entities), size=n_patients)
    values = (draw.random((n_patients, len(bundle.features), 1)) > own[truth].cumsum(axis=2)[:, :, :2]).sum(axis=2) - 1

    def patient() -> Patient:
        return Patient(bundle, gain="cmi", packed=empty.packed)

    return compare_gains(patient, values, truth, draw, resamples=resamples)


def gains_of_field(entrant: Entrant, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of a field's patients who have one of its entities, by how often each value occurs.

    Raises
    ------
    ConfigError : the field does not ask which one of several entities holds.

    """
    task = next((task for task in entrant.tasks if task.main and task.entity is None), None)
    if task is None:
        expected = "one that asks which of several entities holds"
        raise ConfigError(Fault(f"field {entrant.name}", "a question of yes or no", expected, "name another field"))
    bundle = entrant.bundle
    sides = sides_for(bundle, "one", exactly=False, entity=None, discounted=False)

    def patient() -> ExplicitPatient:
        return ExplicitPatient(sides, rivals=True, inference="mean_field", gain="cmi")

    known = (task.answers >= 0) & (task.answers < len(bundle.entities))
    draw = generator_of("gains", bundle.digest, seed)
    return compare_gains(patient, entrant.values[known], task.answers[known], draw, resamples=resamples)


def compare_gains(
    patient: Callable[[], Patient | ExplicitPatient],
    values: NDArray[np.integer],
    truth: NDArray[np.int64],
    draw: np.random.Generator,
    *,
    resamples: int,
) -> pd.DataFrame:
    """How often the right entity comes first after some features, by the gain that chose them.

    Parameters
    ----------
    patient : makes one of whom nothing is known
    values : (P, M) in {-1, 0, +1} or `MISSING`, which is never asked for. truth : (P,) the entity that holds
    draw : of random order
    resamples : of patients, for intervals

    Returns
    -------
    DataFrame : gain, t, first, low, high, lead of `information` on the same patients, lead_low, lead_high

    """
    n_patients, n_features = values.shape
    rounds = [t for t in ROUNDS if t <= n_features]
    right = {gain: np.zeros((n_patients, rounds[-1] + 1)) for gain in GAINS}
    for gain, found in right.items():
        for i in range(n_patients):
            one, left, order = patient(), values[i] != MISSING, draw.permutation(n_features)
            for t in range(1, rounds[-1] + 1):
                if left.any():
                    told = -order.astype(np.float64) if gain == "random" else _told(one, gain)
                    feature = int(np.argmax(np.where(left, told, -np.inf)))
                    one.observe(feature, int(values[i, feature]))
                    left[feature] = False
                found[i, t] = one.log_evidence().argmax() == truth[i]
    weights = patient_weights(n_patients, resamples=resamples, purpose="gains")
    rows = []
    for gain, found in right.items():
        for t in rounds:
            lead = right["information"][:, t] - found[:, t]
            low, high = interval((weights @ found[:, t] / weights.sum(axis=1))[:, None], confidence=0.95)
            least, most = interval((weights @ lead / weights.sum(axis=1))[:, None], confidence=0.95)
            rows.append((gain, t, found[:, t].mean(), low[0], high[0], lead.mean(), least[0], most[0]))
    columns = ["gain", "t", "first", "low", "high", "lead", "lead_low", "lead_high"]
    return pd.DataFrame(rows, columns=columns)


def _told(patient: Patient | ExplicitPatient, gain: str) -> Floats:
    """(M,) what each feature tells, by `information` or by a sum over all duels, weighted by (w_a + w_b)^2 or not."""
    if gain == "information":
        return patient.information()
    a, b = patient.pairs.T
    posterior = softmax(patient.log_evidence())
    weights = (posterior[a] + posterior[b]) ** 2 if gain.startswith("weighted") else np.ones(len(a))
    return patient.summed_gain(np.arange(len(a)), weights)
