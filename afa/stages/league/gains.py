"""The gain over entities beside sums over duels, on patients that a bundle's own models draw (decisions.md F15).

What is compared is the gain alone: the bundle is right about these patients.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import softmax

from afa.bundle import Bundle
from afa.engine.patient import Patient
from afa.inference.result import probabilities_of
from afa.mrf import Floats
from afa.stages.drawn import generator_of
from afa.stats.resampling import interval, patient_weights

GAINS = ("information", "sum over duels", "weighted sum over duels", "random")
ROUNDS = (1, 2, 3, 5, 8, 12)


def compare_gains(bundle: Bundle, n_patients: int, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """How often the right entity comes first after some features, by the gain that chose them.

    A patient's entity is drawn uniformly, and each feature from its marginal before any observation.

    Returns
    -------
    DataFrame : gain, t, first, low, high, lead of `information` on the same patients, lead_low, lead_high

    """
    draw = generator_of("gains", bundle.digest, seed)
    empty = Patient(bundle, gain="cmi")
    own = np.full((len(bundle.entities), len(bundle.features), 3), 1 / 3)
    own[empty.packed.owner, empty.packed.feature] = probabilities_of(empty.state.m, empty.state.q)
    rounds = [t for t in ROUNDS if t <= len(bundle.features)]
    truth = draw.integers(len(bundle.entities), size=n_patients)
    values = (draw.random((n_patients, len(bundle.features), 1)) > own[truth].cumsum(axis=2)[:, :, :2]).sum(axis=2) - 1
    right = {gain: np.zeros((n_patients, rounds[-1] + 1)) for gain in GAINS}
    for gain, found in right.items():
        for i in range(n_patients):
            patient, order = Patient(bundle, gain="cmi", packed=empty.packed), draw.permutation(len(bundle.features))
            for t in range(1, rounds[-1] + 1):
                told = -order.astype(np.float64) if gain == "random" else _told(patient, gain)
                feature = int(np.argmax(np.where(patient.state.observed, -np.inf, told)))
                patient.observe(feature, int(values[i, feature]))
                found[i, t] = patient.log_evidence().argmax() == truth[i]
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


def _told(patient: Patient, gain: str) -> Floats:
    """(M,) what each feature tells, by `information` or by a sum over all duels, weighted by (w_a + w_b)^2 or not."""
    if gain == "information":
        return patient.information()
    a, b = patient.pairs.T
    posterior = softmax(patient.log_evidence())
    weights = (posterior[a] + posterior[b]) ** 2 if gain.startswith("weighted") else np.ones(len(a))
    return patient.summed_gain(np.arange(len(a)), weights)
