"""Test the claim that inference helps most for chaotic patients, whose scores often change sign (supp:chaos).

A duel (a comparison of two entities) *flips* when a further observation changes the sign of its score. A score of 0 is
ignored: the next nonzero sign is compared with the last nonzero sign. A patient is *chaotic* if the duel scores of the
patient change sign often and are large at full observation. The score `wald`, computed for a first set of random orders
of features, determines which patients are chaotic. On the first set of orders, a comparison of accuracies is biased
against `wald`, because chaotic patients are patients for whom `wald` often changed its sign. To avoid this bias, the
accuracy of `linearity` minus the accuracy of `wald` is also measured on a second set of random orders (decisions.md
A10). Patients are classified by `summarise`, not by `run`, because the classification needs the whole cohort.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.follow import blocks
from afa.engine.outcomes import right_by_kind
from afa.engine.paths import sign_paths
from afa.engine.run import ENGINE_SCORES
from afa.evaluate.accuracy import Part, Resampled, by_t, constant_answers, right_of
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.resampling import Moments
from afa.evaluate.summary import summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.orders import random_orders

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Chaos, Inference


CHAOS_METHODS = ("linearity", "wald")
SELECTING, MEASURING = "selecting", "measuring"
LAST_EARLY_ROUND = 50
"""Last round that the early definitions use."""
ALL_ROUNDS = sys.maxsize
"""A number of rounds that means full observation, for any number of features."""


class Definition(NamedTuple):
    """A definition of chaotic patients, by two properties of a score: how often its sign flips, and its magnitude.

    Parameters
    ----------
    score : name of the score
    flips_until : last round at which flips are counted
    magnitude_at : round at which the magnitude is computed

    """

    score: str
    flips_until: int = ALL_ROUNDS
    magnitude_at: int = ALL_ROUNDS


DEFINITIONS: Mapping[str, Definition] = {
    "wald": Definition("wald"),
    "wald_50": Definition("wald", LAST_EARLY_ROUND),
    "linearity": Definition("linearity"),
    # Only `early_50` can be applied before all features are observed.
    "early_50": Definition("wald", LAST_EARLY_ROUND, LAST_EARLY_ROUND),
}
"""The first definition is that of decisions.md A10. The other definitions are compared with the first."""

CHAOTIC_MINUS_NON_CHAOTIC = "chaotic_minus_non_chaotic"
LINEARITY_MINUS_WALD = "linearity_minus_wald"
PLAIN_DEFINITION, *OTHER_DEFINITIONS = DEFINITIONS
VARIANTS = {PLAIN_DEFINITION: None} | {definition: definition for definition in OTHER_DEFINITIONS}
"""Definition -> the variant of its rows in the summary."""
Groups = Mapping[tuple[str | None, str | None], Bools]
"""(stratum, variant) of a group's rows -> mask of its members, (P,)."""
OTHER_ORDERS = "other_orders"
COMPARISONS: Sequence[tuple[str, str, str | None]] = [
    *((definition, "plain", None) for definition in OTHER_DEFINITIONS),
    ("early_50", "plain", OTHER_ORDERS),
    *((definition, "itself", OTHER_ORDERS) for definition in DEFINITIONS),
]
"""Pairs of classifications, as variant, reference and stratum of their rows (`membership_stability`)."""


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    chaos: Chaos,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Count how often scores change sign and how many decisions are correct, for features observed in random order.

    Each chosen patient has one random order for each seed.

    The column `seed_set` is `selecting` for the random orders that determine which patients are chaotic, and
    `measuring` for all other random orders.

    Returns
    -------
    flips : one row for each (patient, seed_set, definition). `flips` is the number of changes of sign, summed over all
        pairs and all orders of the set. `runs` is the number of combinations of a pair and an order. `magnitude` is the
        mean over pairs of abs(D) in nats at full observation. For `early_50`, the magnitude is computed after 50
        observations and averaged over the orders. `nonzero` is the number of the patient's values that are not 0
    rounds : one row for each (patient, seed_set, method, t). `duels` is the number of duels with a winner at full
        observation. `right` is the number of correct decisions on these duels, where a tie counts one half. Both are
        summed over the orders of the set
    duels : one row for each (patient, entity_a, entity_b). `winner` is +1 for a, -1 for b, or 0 for a tie

    """
    n_selecting, seeds = len(chaos.selecting_seeds), [*chaos.selecting_seeds, *chaos.measuring_seeds]
    sets = {SELECTING: slice(0, n_selecting), MEASURING: slice(n_selecting, None)}
    parts: dict[str, list[pd.DataFrame]] = {"flips": [], "rounds": [], "duels": []}
    last = len(bundle.features)
    signs_each = len(ENGINE_SCORES) * len(seeds) * (last + 1) * len(all_pairs(len(bundle.entities)))
    for rows in blocks(max(1, len(patients)), signs_each):
        names, values = [cohort.patients[p] for p in patients[rows]], cohort.values[list(patients[rows])]
        orders = random_orders(bundle.features, names, seeds)
        paths = sign_paths(bundle, values, orders, solver=Solver(**dict(inference)), threads=threads)
        winners = paths.signs["wald"][:, 0, -1]
        parts["duels"].append(duel_rows(bundle.entities, patient=names).assign(winner=winners.ravel()))
        of_patients = pd.DataFrame({"patient": names, "nonzero": np.count_nonzero(values, axis=1)})
        for seed_set, among in sets.items():
            signs, of_set = {method: paths.signs[method][:, among] for method in CHAOS_METHODS}, orders[:, among]
            for name, (score, flips_until, magnitude_at) in DEFINITIONS.items():
                flips = count_flips(signs[score][:, :, : min(flips_until, last) + 1]).sum(axis=1)
                # At full observation, the magnitude is the same for all orders, so that one order is enough.
                distinct = of_set if magnitude_at < last else of_set[:, :1]
                table = of_patients.assign(seed_set=seed_set, definition=name, flips=flips)
                table["runs"] = of_set.shape[1] * winners.shape[1]
                parts["flips"].append(table.assign(magnitude=magnitudes(bundle, values, distinct, magnitude_at)))
            for method, of_method in signs.items():
                counts = right_by_kind(of_method, winners, of_method[:, :, 0])
                right, duels = (counts[kind].reshape(*of_method.shape[:3]).sum(axis=1) for kind in ("right", "duels"))
                table = rows_of(patient=names, t=range(last + 1)).assign(seed_set=seed_set, method=method)
                parts["rounds"].append(table.assign(right=right.ravel(), duels=duels.ravel().astype(np.int32)))
    whole = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
    return {name: table.sort_values("patient", kind="stable", ignore_index=True) for name, table in whole.items()}


def count_flips(signs: Codes) -> Ints:
    """Return the number of sign changes of duel scores (a duel compares two entities), for each patient and order.

    A score of 0 is ignored: the next nonzero sign is compared with the last nonzero sign. The change from 0 to the
    first nonzero sign is not counted.

    Parameters
    ----------
    signs : (P, S, T, Q) int8, by patient, order, round and duel

    Returns
    -------
    flips : (P, S) int64

    Examples
    --------
    >>> count_flips(np.array([0, 1, 0, -1, 0, -1, 1], dtype=np.int8).reshape(1, 1, 7, 1)).tolist()
    [[2]]

    """
    flips, last_signs = np.zeros(signs.shape[:2], dtype=np.int64), signs[:, :, 0]
    for t in range(1, signs.shape[2]):
        now = signs[:, :, t]
        flips += np.count_nonzero(now * last_signs < 0, axis=2)
        last_signs = np.where(now == 0, last_signs, now)
    return flips


def magnitudes(bundle: Bundle, values: Codes, orders: Ints, t: int) -> Floats:
    """Return, for each patient, the mean of abs(Lambda_ab) over duels (a, b) and orders, after t observations.

    At full observation, Lambda_ab equals D_ab(x). An unobserved feature contributes 0 to Lambda, like a feature with
    the value 0 (supp:Wald_simple).

    Parameters
    ----------
    values : (P, M) int8 in {-1, 0, +1}
    orders : (P, S, M) int64

    Returns
    -------
    magnitude : (P,) float64, nats

    """
    first, second = all_pairs(len(bundle.entities)).T
    x = np.where(np.argsort(orders, axis=2) < t, values[:, None], 0)
    energy = bundle.energies(x.reshape(-1, x.shape[2]))
    each = np.abs(energy[:, first] - energy[:, second]).mean(axis=1)
    mean: Floats = each.reshape(x.shape[:2]).mean(axis=1)
    return mean


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `chaos_gap` in `summary.csv`.

    Intervals are computed by resampling patients. Each patient is in the same group in all resamples. If no duel of a
    group has a winner, only the size of the group is reported.

    Returns
    -------
    gap : sign accuracy of `linearity` minus sign accuracy of `wald`, for each t. Rows without a stratum are about all
        patients. The strata are `chaotic`, `non_chaotic`, and `chaotic_minus_non_chaotic`, the difference of the two
        gaps. The variant names the definition, and is empty for `wald` over all rounds. For the quantity `selecting`,
        the gap is computed on the set of random orders called `selecting`. In all other rows, the gap is computed on
        the set of random orders called `measuring`
    accuracy : the two accuracies of each gap, for each method and t
    majority : accuracy of the best constant answer for each duel. The answer is chosen with the winners of the
        stratum's patients, or, if `reference` is `all_patients`, of all patients
    count : number of patients in each stratum, and number of duels tied at full observation
    correlation : Spearman's correlation over patients between the flips of a definition and another number. The other
        number is the number of nonzero values for the quantity `flips_nonzero`, and the magnitude for `flips_magnitude`
    others : the rows of `membership_stability`

    """
    patients = list(tables["duels"]["patient"].unique())
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="chaos_gap")
    winners = tables["duels"].pivot(index="patient", columns=["entity_a", "entity_b"], values="winner")
    target, strata = winners.loc[patients].to_numpy(np.int8), chaos_strata(tables["flips"])
    groups = _patient_groups(strata, patients)
    stability = membership_stability(strata, resampled)
    rows = [
        *_group_accuracy_rows(tables["rounds"], groups, resampled),
        *_size_and_majority_rows(target, groups, resampled),
        stability[stability["n"] > 0],
        *_flip_correlation_rows(strata, patients, resampled),
    ]
    setting = {"allocation": "random", "schedule": "every", "target": "likelihood", "start": "uniform"}
    return summary_rows("chaos_gap", rows, **setting)


def chaos_strata(flips: pd.DataFrame) -> pd.DataFrame:
    """Return a table that states which patients are chaotic, for each set of orders and each definition.

    `flips` is the number of times that the score of a duel (a comparison of two entities) changes sign, averaged over a
    patient's duels and random orders. `flips_quartile` is the 75th percentile of `flips` over the cohort, and
    `magnitude_median` is the median of `magnitude` over the cohort. `chaotic` is True if `flips` is at least
    `flips_quartile` and `magnitude` exceeds `magnitude_median`.

    Parameters
    ----------
    flips : the table `flips` of the whole cohort

    """
    key = ["patient", "seed_set", "definition"]
    strata = flips[[*key, "magnitude", "nonzero"]].assign(flips=flips["flips"] / flips["runs"])
    cells = strata.groupby(["seed_set", "definition"], sort=False)
    strata["flips_quartile"] = cells["flips"].transform(lambda values: np.percentile(values, 75))
    strata["magnitude_median"] = cells["magnitude"].transform("median")
    chaotic = (strata["flips"] >= strata["flips_quartile"]) & (strata["magnitude"] > strata["magnitude_median"])
    said = ["flips", "flips_quartile", "magnitude", "magnitude_median", "nonzero", "chaotic"]
    return strata.assign(chaotic=chaotic)[[*key, *said]]


def chaotic_patients(flips: pd.DataFrame, patients: Sequence[str]) -> Bools:
    """Return a mask of the patients called chaotic: their scores often change sign, but are large at full observation.

    Patients are classified by the paper's definition of chaotic patients (decisions.md A10). Sign changes are counted
    only in the set of random orders called `selecting`.

    Parameters
    ----------
    flips : the table `flips` of the whole cohort.
    patients : names of the patients, in the order of the result.

    Returns
    -------
    chaotic : (n_patients,) bool

    """
    return _select_strata(chaos_strata(flips), PLAIN_DEFINITION, SELECTING, patients)["chaotic"].to_numpy(bool)


def membership_stability(strata: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Compare two classifications of patients as chaotic or not, for each item of `COMPARISONS`.

    The result has one summary row for each pair of classifications and each `quantity`. The first classification uses
    the definition in the column `variant`, and the set of random orders called `selecting`. If the column `reference`
    is `itself`, both classifications use the same definition. If the column `reference` is `plain`, the second
    classification uses the definition `wald`. The second classification also uses the set `selecting`, except in the
    stratum `other_orders`. In the stratum `other_orders`, the second classification uses the set of random orders
    called `measuring`. Groups and ranks of patients are the same in all resamples.

    Returns
    -------
    agreement : share of patients whom both classifications put into the same group
    chance : expected agreement of two independent classifications with the same group sizes
    found : share of the patients chaotic in the second classification that are also chaotic in the first classification
    flagged : share of all patients that are chaotic in the first classification. If the two classifications were
        independent, `found` would be expected to equal `flagged`
    rank_correlation : Spearman's correlation of the flips

    """
    patients = list(strata["patient"].unique())
    every, rows = np.ones((len(patients), 1)), []
    for variant, reference, stratum in COMPARISONS:
        first, definition = (
            _select_strata(strata, variant, SELECTING, patients),
            variant if reference == "itself" else PLAIN_DEFINITION,
        )
        second = _select_strata(strata, definition, MEASURING if stratum else SELECTING, patients)
        a, b = (table["chaotic"].to_numpy(float)[:, None] for table in (first, second))
        found = {
            "agreement": resampled.mean([((a == b).astype(float), every)]),
            "chance": resampled.statistic(partial(_chance_agreement, a, b), len(patients)),
            "found": resampled.mean([(a * b, b)]),
            "flagged": resampled.mean([(a, every)]),
            "rank_correlation": _rank_correlation(first["flips"], second["flips"], resampled),
        }
        for quantity, row in found.items():
            of = row.assign(quantity=quantity, stratum=stratum, variant=variant, reference=reference)
            rows.append(of.assign(metric="correlation" if quantity == "rank_correlation" else "rate"))
    return pd.concat(rows, ignore_index=True)


def _chance_agreement(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return the expected agreement of two independent classifications with the same group sizes, (R, 1).

    Parameters
    ----------
    first, second : (P, 1) 0 or 1
    weights : (R, P)

    """
    share_a, share_b = (weights @ mask / weights.sum(axis=1, keepdims=True) for mask in (first, second))
    return np.asarray(share_a * share_b + (1 - share_a) * (1 - share_b))


def _select_strata(strata: pd.DataFrame, definition: str, seed_set: str, patients: Sequence[str]) -> pd.DataFrame:
    chosen = strata[(strata["definition"] == definition) & (strata["seed_set"] == seed_set)]
    return chosen.set_index("patient").loc[list(patients)]


def _rank_correlation(first: pd.Series, second: pd.Series, resampled: Resampled) -> pd.DataFrame:
    """Return Spearman's rank correlation between two series that have one number for each patient.

    The ranks of patients are the same in all resamples.
    """
    ranks = (np.asarray(values.rank(), dtype=np.float64)[:, None, None] for values in (first, second))
    return resampled.statistic(Moments.of(*ranks).only, len(first))


def _flip_correlation_rows(
    strata: pd.DataFrame, patients: Sequence[str], resampled: Resampled
) -> Iterator[pd.DataFrame]:
    for definition, variant in VARIANTS.items():
        cell = _select_strata(strata, definition, SELECTING, patients)
        for other in ("nonzero", "magnitude"):
            rows = _rank_correlation(cell["flips"], cell[other], resampled)
            yield rows.assign(metric="correlation", quantity=f"flips_{other}", variant=variant)


def _patient_groups(strata: pd.DataFrame, patients: Sequence[str]) -> Groups:
    """Return a mask of all patients, and two masks for each item of `DEFINITIONS`: chaotic and non-chaotic patients."""
    groups: dict[tuple[str | None, str | None], Bools] = {(None, None): np.ones(len(patients), dtype=bool)}
    for definition, variant in VARIANTS.items():
        chaotic = _select_strata(strata, definition, SELECTING, patients)["chaotic"].to_numpy(bool)
        groups |= {("chaotic", variant): chaotic, ("non_chaotic", variant): ~chaotic}
    return groups


def _group_accuracy_rows(rounds: pd.DataFrame, groups: Groups, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield the accuracies of `linearity` and `wald` and their differences, for each group of patients and each t.

    Accuracies are computed separately for the two sets of random orders (`selecting` and `measuring`).
    """
    for seed_set, quantity in ((MEASURING, None), (SELECTING, SELECTING)):
        tables = rounds[rounds["seed_set"] == seed_set].groupby("method", sort=False)
        parts = {str(method): resampled.part(table, "right", "duels") for method, table in tables}
        gaps = parts["linearity"][0] - parts["wald"][0], parts["wald"][1]
        for (stratum, variant), members in groups.items():
            if stratum and not _counts_in_group(members, gaps)[1].any():
                continue
            label = {"quantity": quantity, "stratum": stratum, "variant": variant}
            yield by_t(resampled.mean([_counts_in_group(members, gaps)])).assign(
                metric="gap", reference=LINEARITY_MINUS_WALD, **label
            )
            for method, part in parts.items():
                yield by_t(resampled.mean([_counts_in_group(members, part)])).assign(
                    metric="accuracy", method=method, **label
                )
        for variant in VARIANTS.values():
            chaotic, others = (_counts_in_group(groups[group, variant], gaps) for group in ("chaotic", "non_chaotic"))
            if chaotic[1].any() and others[1].any():
                between = by_t(resampled.gap([chaotic], [others])).assign(n=gaps[1].sum(axis=0).astype(np.int64))
                label = {"quantity": quantity, "stratum": CHAOTIC_MINUS_NON_CHAOTIC, "variant": variant}
                yield between.assign(metric="gap", reference=LINEARITY_MINUS_WALD, **label)


def _counts_in_group(members: Bools, part: Part) -> Part:
    """Return the counts of correct and of all decisions in `part`, with 0 for patients who are not in `members`."""
    right, total = part
    return right * members[:, None], total * members[:, None]


def _size_and_majority_rows(target: Codes, groups: Groups, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield the sizes of the groups, the number of ties, and the accuracies of the best constant answers.

    Parameters
    ----------
    target : (P, Q) int8, winners at full observation

    """
    ties = {"quantity": "tied_at_full_observation", "value": int((target == 0).sum()), "n": target.size}
    sizes = [
        {"stratum": stratum, "variant": variant, "value": int(members.sum()), "n": len(members)}
        for (stratum, variant), members in groups.items()
    ]
    yield pd.DataFrame([*sizes, ties]).assign(metric="count")
    of_all = constant_answers(target)[0]
    for (stratum, variant), members in groups.items():
        of_group = np.where(members[:, None], target, 0).astype(np.int8)
        if of_group.any():
            answers = {None: constant_answers(of_group)[0]} | ({"all_patients": of_all} if stratum else {})
            for reference, answer in answers.items():
                share = resampled.mean([right_of(answer[:, :, None], of_group, of_group != 0)])
                yield share.assign(metric="majority", stratum=stratum, variant=variant, reference=reference)
