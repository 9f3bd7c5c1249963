"""What sampling gets wrong, where the exact answer is known: the null of everything that rests on it.

The states of a few patients that are solved exactly are sampled too, with the same chains and steps. A decision that
the two make otherwise is the sampler's, and not mean-field's.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.engine.compile import in_threads
from afa.engine.duels import Pairs
from afa.mrf import Floats
from afa.stages.accurate.inference import (
    RUNS,
    Effort,
    LogZ,
    Scores,
    Seen,
    evidence_of,
    half_log_partitions,
    sampled_scores,
    sampled_state,
)
from afa.stages.accurate.states import Expectations, States, linearity_duels, log_z_duels

OPEN = 2.0
"""A sampled difference within so many standard errors of 0 decides nothing."""


def check_tables(
    bundle: Bundle,
    states: States,
    log_zs: LogZ,
    expected: Expectations,
    pairs: Pairs,
    effort: Effort,
    threads: int | None,
) -> dict[str, pd.DataFrame]:
    """Sampled answers beside exact ones; `log_zs` and `expected` are the accurate ones of at least these patients.

    Full observation is left out, where there is nothing to sample.

    Returns two tables. `check`, by (patient, t, entity): log Z_v(x_obs), `exact` and `sampled`, in nats, the standard
    `error` of the latter, and `effective` chains. `checked_duels`, by (patient, t, method): `duels` of two entities
    that are exact; `open`, those whose sampled difference is within two standard errors of 0; `changed`, those of the
    others that sampling calls otherwise, a tie against a decision being one half; `apart`, the sum of the absolute
    differences in nats; `within`, duels where it is at most two standard errors.
    """
    n = len(states.names)
    sampled_z, sampled = _sampled(bundle, states, effort, threads)
    known_z, known = log_zs.error[:n] == 0, np.isnan(expected.effective[:n])
    table = states.table(entity=bundle.entities).assign(
        exact=log_zs.value[0, :n].ravel(),
        sampled=sampled_z.value[0].ravel(),
        error=sampled_z.error.ravel(),
        effective=sampled_z.effective.ravel(),
    )
    readings = (
        ("two_elbo", log_z_duels(log_zs, pairs), log_z_duels(sampled_z, pairs), known_z),
        ("linearity", linearity_duels(expected, pairs), linearity_duels(sampled, pairs), known),
    )
    duels = [
        states.table().assign(method=method, **_counts(exact[0][0, :n], *found, chosen, pairs))
        for method, exact, found, chosen in readings
    ]
    hidden = states.rounds[-1]
    both = pd.concat(duels, ignore_index=True)
    return {
        "check": table[known_z.ravel() & (table["t"] < hidden)].reset_index(drop=True),
        "checked_duels": both[both["t"] < hidden].reset_index(drop=True),
    }


def _sampled(bundle: Bundle, states: States, effort: Effort, threads: int | None) -> tuple[LogZ, Expectations]:
    """Every entity in every state by sampling, shapes as in `entity_log_zs` and `entity_expectations`.

    The first round, before any observation, is the same state for all patients, and is sampled once.
    """
    n = len(bundle.entities)
    shape = (*states.shape, n)
    log_zs = LogZ(np.empty((len(RUNS), *shape)), np.empty(shape), np.empty(shape))
    expected = Expectations(np.empty((len(RUNS), *shape, n)), np.empty((*shape, n)), np.empty(shape))

    def work(first: int, last: int) -> None:
        for job in range(first, last):
            u, p = divmod(job, len(states.names))
            entity = bundle.entities[u]
            mrf = bundle.mrf(entity)
            for t in range(min(p, 1), len(states.rounds)):
                observed, values = states.observed[p, t], states.values[p]
                found = sampled_state(mrf, entity, observed, values, effort)
                scores = sampled_scores(Scores.of(bundle, evidence_of(mrf, observed, values)), u, found)
                log_zs.value[:, p, t, u] = [found.log_partition, *half_log_partitions(found)]
                log_zs.error[p, t, u], log_zs.effective[p, t, u] = found.error, found.effective
                expected.value[:, p, t, u], expected.variance[p, t, u] = scores.value, scores.variance
                expected.effective[p, t, u] = found.effective

    in_threads(work, n * len(states.names), threads)
    log_zs.value[:, :, 0], expected.value[:, :, 0] = log_zs.value[:, :1, 0], expected.value[:, :1, 0]
    for array in (log_zs.error, log_zs.effective, expected.variance, expected.effective):
        array[:, 0] = array[:1, 0]
    return log_zs, expected


def _counts(exact: Floats, sampled: Floats, error: Floats, known: Seen, pairs: Pairs) -> dict[str, Floats]:
    """The columns of `checked_duels`, each (P T,): exact (P, T, Q), sampled (3, P, T, Q), error (P, T, Q)."""
    a, b = pairs.T
    both = known[..., a] & known[..., b]
    undecided = both & (np.abs(sampled[0]) <= OPEN * error)
    apart = np.abs(exact - sampled[0])
    signs = np.abs(np.sign(exact) - np.sign(sampled[0])) / 2
    columns = {
        "duels": both,
        "open": undecided,
        "changed": np.where(both & ~undecided, signs, 0.0),
        "apart": np.where(both, apart, 0.0),
        "within": both & (apart <= OPEN * error),
    }
    return {name: values.sum(axis=-1).ravel() for name, values in columns.items()}
