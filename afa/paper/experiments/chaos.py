"""Chaotic patients, whose duels often change sides as features are observed, and the gain by inference (supp:chaos).

A pair *flips* when the sign of its score changes; a tie keeps the previous sign. Patients are classified as chaotic on
one set of orders, on which their `wald` scores change sides. The gain of `linearity` over `wald` is therefore measured
also on other orders, which did not select the patients (decisions.md A10). The groups need the whole cohort and are
formed in `summarise`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.follow import blocks
from afa.engine.paths import Signs, sign_paths
from afa.engine.rounds import right_by_kind
from afa.engine.run import SCORES
from afa.evaluate.accuracy import Part, Resampled, by_t, constant_answers, right_of
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.resampling import Moments
from afa.evaluate.summary import summary_rows
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.mrf import Floats
from afa.model.orders import random_orders

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Chaos, Inference


METHODS = ("linearity", "wald")
SELECTING, MEASURING = "selecting", "measuring"
EARLY = 50
"""Last round used by the early definitions."""
ALL = sys.maxsize
"""Full observation, for any number of features."""


class Definition(NamedTuple):
    """A definition of chaotic patients.

    Parameters
    ----------
    score : the score whose signs flip
    flips_until : last round at which flips are counted
    magnitude_at : round at which the magnitude is taken

    """

    score: str
    flips_until: int = ALL
    magnitude_at: int = ALL


DEFINITIONS: Mapping[str, Definition] = {
    "wald": Definition("wald"),
    "wald_50": Definition("wald", EARLY),
    "linearity": Definition("linearity"),
    # the only definition that can be applied before the end of a run
    "early_50": Definition("wald", EARLY, EARLY),
}
"""The first definition is that of decisions.md A10; the others are compared with it."""

Mask = NDArray[np.bool_]
BETWEEN = "chaotic_minus_non_chaotic"
GAP = "linearity_minus_wald"
PLAIN, *OTHERS = DEFINITIONS
VARIANTS = {PLAIN: None} | {definition: definition for definition in OTHERS}
"""Variants in the summary of the groups of each definition."""
Groups = Mapping[tuple[str | None, str | None], Mask]
"""Members (P,) bool of each group, by stratum and variant of its rows."""
OTHER_ORDERS = "other_orders"
COMPARISONS: Sequence[tuple[str, str, str | None]] = [
    *((definition, "plain", None) for definition in OTHERS),
    ("early_50", "plain", OTHER_ORDERS),
    *((definition, "itself", OTHER_ORDERS) for definition in DEFINITIONS),
]
"""Pairs of classifications, by variant, reference and stratum of their rows (`membership_stability`)."""


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    chaos: Chaos,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients through one random order for each seed.

    `seed_set` is `selecting` or `measuring`.

    Returns
    -------
    flips : by (patient, seed_set, definition). `flips` is the number of changes of side, summed over `runs`, that is
        over all pairs and all orders of the set. `magnitude` is the mean over pairs of abs(D) in nats, at full
        observation or, for `early_50`, after 50 observations and averaged over the orders. `nonzero` is the number of
        the patient's values that are not 0
    rounds : by (patient, seed_set, method, t). `right` is the number of correct decisions, where a tie counts one half,
        among `duels` with a winner at full observation; both are summed over the orders of the set
    duels : by (patient, entity_a, entity_b). `winner` is +1 for a, -1 for b, 0 for a tie

    """
    n_selecting, seeds = len(chaos.selecting_seeds), [*chaos.selecting_seeds, *chaos.measuring_seeds]
    sets = {SELECTING: slice(0, n_selecting), MEASURING: slice(n_selecting, None)}
    parts: dict[str, list[pd.DataFrame]] = {"flips": [], "rounds": [], "duels": []}
    last = len(bundle.features)
    signs_each = len(SCORES) * len(seeds) * (last + 1) * len(all_pairs(len(bundle.entities)))
    for rows in blocks(max(1, len(patients)), signs_each):
        names, values = [cohort.patients[p] for p in patients[rows]], cohort.values[list(patients[rows])]
        orders = random_orders(bundle.features, names, seeds)
        paths = sign_paths(bundle, values, orders, solver=Solver(**dict(inference)), threads=threads)
        winners = paths.signs["wald"][:, 0, -1]
        parts["duels"].append(duel_rows(bundle.entities, patient=names).assign(winner=winners.ravel()))
        of_patients = pd.DataFrame({"patient": names, "nonzero": np.count_nonzero(values, axis=1)})
        for seed_set, among in sets.items():
            signs, of_set = {method: paths.signs[method][:, among] for method in METHODS}, orders[:, among]
            for name, (score, flips_until, magnitude_at) in DEFINITIONS.items():
                flips = count_flips(signs[score][:, :, : min(flips_until, last) + 1]).sum(axis=1)
                # at full observation all orders have the same observations
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


def count_flips(signs: Signs) -> NDArray[np.int64]:
    """Return how often signs change side, summed over duels, (P, S) int64.

    A 0 keeps the previous sign, and the first sign that is not 0 is no flip.

    Parameters
    ----------
    signs : (P, S, T, Q) int8, by patient, order, round and duel

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


def magnitudes(bundle: Bundle, values: NDArray[np.int8], orders: NDArray[np.int64], t: int) -> Floats:
    """Return the mean over pairs and orders of abs(Lambda_ab) after t observations, (P,) nats.

    At t = M it is the mean of abs(D(x)). An unobserved feature adds nothing to Lambda (supp:Wald_simple), as a value of
    0 does.

    Parameters
    ----------
    values : (P, M) int8 in {-1, 0, +1}
    orders : (P, S, M) int64

    """
    first, second = all_pairs(len(bundle.entities)).T
    x = np.where(np.argsort(orders, axis=2) < t, values[:, None], 0)
    energy = bundle.energies(x.reshape(-1, x.shape[2]))
    each = np.abs(energy[:, first] - energy[:, second]).mean(axis=1)
    mean: Floats = each.reshape(x.shape[:2]).mean(axis=1)
    return mean


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return summary rows `chaos_gap` of the tables, over all patients; groups are fixed, patients are resampled.

    A group without decided duels has only its count.

    Returns
    -------
    gap : by t, sign accuracy of `linearity` minus that of `wald`. Rows without a stratum are over all patients, on the
        measuring orders. The strata are `chaotic`, `non_chaotic`, and `chaotic_minus_non_chaotic`, the difference of
        the two gaps. The variant is the definition, unless it is `wald` over all rounds. The quantity `selecting` is
        measured on the orders that define the groups
    accuracy : by method and t, the two accuracies of each gap
    majority : accuracy of the best constant answer for each duel, chosen on the patients of the stratum or, with
        `reference` `all_patients`, on all patients
    count : patients by stratum, and duels tied at full observation
    correlation : Spearman's correlation over patients of flips by a definition with the number of values that are not
        0, `flips_nonzero`, and with the magnitude, `flips_magnitude`
    others : the rows of `membership_stability`

    """
    patients = list(tables["duels"]["patient"].unique())
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="chaos_gap")
    winners = tables["duels"].pivot(index="patient", columns=["entity_a", "entity_b"], values="winner")
    target, strata = winners.loc[patients].to_numpy(np.int8), chaos_strata(tables["flips"])
    groups = _groups(strata, patients)
    stability = membership_stability(strata, resampled)
    rows = [
        *_by_round(tables["rounds"], groups, resampled),
        *_beside(target, groups, resampled),
        stability[stability["n"] > 0],
        *_what_flips_follow(strata, patients, resampled),
    ]
    setting = {"allocation": "random", "schedule": "every", "target": "likelihood", "start": "uniform"}
    return summary_rows("chaos_gap", rows, **setting)


def chaos_strata(flips: pd.DataFrame) -> pd.DataFrame:
    """Return the classification of patients by (patient, seed_set, definition).

    The columns are `flips`, the mean over pairs and orders; `flips_quartile`, the cohort's 75th percentile; `magnitude`
    and `magnitude_median`; and `nonzero`. `chaotic` is True if flips are at least the percentile and the magnitude
    exceeds the median.

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


def chaotic_patients(flips: pd.DataFrame, patients: Sequence[str]) -> Mask:
    """Return which patients are chaotic by the paper's definition, on the selecting orders (decisions.md A10).

    Parameters
    ----------
    flips : the table `flips` of the whole cohort.
    patients : names, in the order of the answer.

    Returns
    -------
    (n_patients,) bool

    """
    return _cell(chaos_strata(flips), PLAIN, SELECTING, patients)["chaotic"].to_numpy(bool)


def membership_stability(strata: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Return how well the first of two classifications predicts the second, for all `COMPARISONS`.

    The result has rows of the summary. `variant` is the first classification's definition, on the selecting orders.
    `reference` is the second classification's definition: `plain`, which is `wald` over all rounds, or `itself`, the
    same definition as the first. The second is made on the same orders or, in the stratum `other_orders`, on the
    measuring orders.

    There is one row for each comparison and `quantity`, with an interval over patients for fixed memberships and ranks.

    Returns
    -------
    agreement : share of patients in the same group of both classifications
    chance : expected agreement of independent groups of these sizes
    found : share of the patients chaotic in the second classification that are also chaotic in the first
    flagged : share of all patients that are chaotic in the first, the value of `found` expected by chance
    rank_correlation : Spearman's correlation of the flips

    """
    patients = list(strata["patient"].unique())
    every, rows = np.ones((len(patients), 1)), []
    for variant, reference, stratum in COMPARISONS:
        first, definition = _cell(strata, variant, SELECTING, patients), variant if reference == "itself" else PLAIN
        second = _cell(strata, definition, MEASURING if stratum else SELECTING, patients)
        a, b = (table["chaotic"].to_numpy(float)[:, None] for table in (first, second))
        found = {
            "agreement": resampled.mean([((a == b).astype(float), every)]),
            "chance": resampled.statistic(partial(_chance, a, b), len(patients)),
            "found": resampled.mean([(a * b, b)]),
            "flagged": resampled.mean([(a, every)]),
            "rank_correlation": _rank_correlation(first["flips"], second["flips"], resampled),
        }
        for quantity, row in found.items():
            of = row.assign(quantity=quantity, stratum=stratum, variant=variant, reference=reference)
            rows.append(of.assign(metric="correlation" if quantity == "rank_correlation" else "rate"))
    return pd.concat(rows, ignore_index=True)


def _chance(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return the expected agreement of two independent memberships of these sizes, (R, 1), for each resample.

    Parameters
    ----------
    first, second : (P, 1) 0 or 1
    weights : (R, P)

    """
    share_a, share_b = (weights @ mask / weights.sum(axis=1, keepdims=True) for mask in (first, second))
    return np.asarray(share_a * share_b + (1 - share_a) * (1 - share_b))


def _cell(strata: pd.DataFrame, definition: str, seed_set: str, patients: Sequence[str]) -> pd.DataFrame:
    chosen = strata[(strata["definition"] == definition) & (strata["seed_set"] == seed_set)]
    return chosen.set_index("patient").loc[list(patients)]


def _rank_correlation(first: pd.Series, second: pd.Series, resampled: Resampled) -> pd.DataFrame:
    """Return Spearman's correlation over patients; for its interval, ranks are those among all patients."""
    ranks = (np.asarray(values.rank(), dtype=np.float64)[:, None, None] for values in (first, second))
    return resampled.statistic(Moments.of(*ranks).only, len(first))


def _what_flips_follow(strata: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    for definition, variant in VARIANTS.items():
        cell = _cell(strata, definition, SELECTING, patients)
        for other in ("nonzero", "magnitude"):
            rows = _rank_correlation(cell["flips"], cell[other], resampled)
            yield rows.assign(metric="correlation", quantity=f"flips_{other}", variant=variant)


def _groups(strata: pd.DataFrame, patients: Sequence[str]) -> Groups:
    """Return the group of all patients, and the groups formed on the selecting orders."""
    groups: dict[tuple[str | None, str | None], Mask] = {(None, None): np.ones(len(patients), dtype=bool)}
    for definition, variant in VARIANTS.items():
        chaotic = _cell(strata, definition, SELECTING, patients)["chaotic"].to_numpy(bool)
        groups |= {("chaotic", variant): chaotic, ("non_chaotic", variant): ~chaotic}
    return groups


def _by_round(rounds: pd.DataFrame, groups: Groups, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield gaps and accuracies at every t, by group, on the measuring orders and then on the selecting ones."""
    for seed_set, quantity in ((MEASURING, None), (SELECTING, SELECTING)):
        tables = rounds[rounds["seed_set"] == seed_set].groupby("method", sort=False)
        parts = {str(method): resampled.part(table, "right", "duels") for method, table in tables}
        gaps = parts["linearity"][0] - parts["wald"][0], parts["wald"][1]
        for (stratum, variant), members in groups.items():
            if stratum and not _of(members, gaps)[1].any():
                continue
            label = {"quantity": quantity, "stratum": stratum, "variant": variant}
            yield by_t(resampled.mean([_of(members, gaps)])).assign(metric="gap", reference=GAP, **label)
            for method, part in parts.items():
                yield by_t(resampled.mean([_of(members, part)])).assign(metric="accuracy", method=method, **label)
        for variant in VARIANTS.values():
            chaotic, others = (_of(groups[group, variant], gaps) for group in ("chaotic", "non_chaotic"))
            if chaotic[1].any() and others[1].any():
                between = by_t(resampled.gap([chaotic], [others])).assign(n=gaps[1].sum(axis=0).astype(np.int64))
                label = {"quantity": quantity, "stratum": BETWEEN, "variant": variant}
                yield between.assign(metric="gap", reference=GAP, **label)


def _of(members: Mask, part: Part) -> Part:
    """Return the counts of `part`, with 0 for patients outside a group."""
    right, total = part
    return right * members[:, None], total * members[:, None]


def _beside(target: Signs, groups: Groups, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield sizes of the groups, ties, and accuracies of the best constant answer for each duel.

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
