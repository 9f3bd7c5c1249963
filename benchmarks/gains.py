"""The gain over entities beside sums over duels (docs/decisions.md, F15): how often does the right entity come first?

    python benchmarks/gains.py BUNDLE --out results/bench/gains.csv
    python benchmarks/gains.py resources/fields/dermatology --out results/bench/gains.csv

On patients that a bundle draws from its own models, where the gain alone is compared, since the bundle is right about
them; or on those of a field with real labels. benchmarks/README.md has the numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from afa.engine.patient import Patient
from afa.engine.run import MISSING
from afa.errors import ConfigError, Fault
from afa.evaluate.accuracy import Resampled
from afa.evaluate.entrants import Entrant, read_entrant
from afa.inference.result import probabilities_of
from afa.io.files import write_csv
from afa.model.arrays import Floats
from afa.model.bundle import Bundle, load_bundle
from afa.model.orders import generator_of
from afa.planner.explicit import ExplicitPatient
from afa.planner.sides import sides_for

GAINS = ("information", "sum over duels", "weighted sum over duels", "random")
ROUNDS = (1, 2, 3, 5, 8, 12)


def gains_of_drawn(bundle: Bundle, n_patients: int, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of patients whose entity is drawn uniformly, and each feature from its own marginal."""
    draw, empty = generator_of("gains", bundle.digest, seed), Patient(bundle, gain="cmi")
    own = np.full((len(bundle.entities), len(bundle.features), 3), 1 / 3)
    own[empty.packed.owner, empty.packed.feature] = probabilities_of(empty.state.m, empty.state.q)
    truth = draw.integers(len(bundle.entities), size=n_patients)
    values = (draw.random((n_patients, len(bundle.features), 1)) > own[truth].cumsum(axis=2)[:, :, :2]).sum(axis=2) - 1
    patient = partial(Patient, bundle, gain="cmi")
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
    patient = partial(ExplicitPatient, sides, rivals=True, inference="mean_field", gain="cmi")
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

    patient : makes one of whom nothing is known. values : (P, M) in {-1, 0, +1} or `MISSING`, which is never asked for.
    truth : (P,) the entity that holds. draw : of random order. resamples : of patients, for intervals.

    Returns gain, t, first, low, high, lead of `information` on the same patients, lead_low, lead_high.
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
    resampled = Resampled.of(range(n_patients), resamples=resamples, confidence=0.95, purpose="gains")
    tables, each = [], np.ones((n_patients, len(rounds)))
    for gain, found in right.items():
        first, lead = (resampled.mean([(part[:, rounds], each)]) for part in (found, right["information"] - found))
        table = {"gain": gain, "t": rounds, "first": first["value"], "low": first["low"], "high": first["high"]}
        table |= {"lead": lead["value"], "lead_low": lead["low"], "lead_high": lead["high"]}
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def _told(patient: Patient | ExplicitPatient, gain: str) -> Floats:
    """(M,) what each feature tells, by `information` or by a sum over all duels, weighted by (w_a + w_b)^2 or not."""
    if gain == "information":
        return patient.information()
    a, b = patient.pairs.T
    posterior = softmax(patient.log_evidence())
    weights = (posterior[a] + posterior[b]) ** 2 if gain.startswith("weighted") else np.ones(len(a))
    return patient.summed_gain(np.arange(len(a)), weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a bundle of directions, or a field with real labels")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--patients", type=int, default=400, help="patients drawn from the bundle's own models")
    parser.add_argument("--tables", type=Path, help="folder with the tables of fields that are not carried")
    parser.add_argument("--seed", type=int, default=0, help="of the patients that are drawn")
    asked = parser.parse_args()
    if (asked.folder / "study.yaml").is_file():
        entrant = read_entrant(asked.folder, asked.tables)
        if isinstance(entrant, str):
            parser.error(f"{asked.folder}: {entrant}; name the folder with the field's table: --tables")
        table = gains_of_field(entrant, seed=asked.seed)
    else:
        table = gains_of_drawn(load_bundle(asked.folder), asked.patients, seed=asked.seed)
    write_csv(table, asked.out, float_format="%.6g")
    first = table.pivot_table(index="gain", columns="t", values="first", sort=False)
    sys.stdout.write(first.round(3).to_string() + "\n")


if __name__ == "__main__":
    main()
