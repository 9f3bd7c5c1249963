"""Layer 1: how early duels are decided by score bounds (brackets), in random and informed orders of features.

A duel (a comparison of two entities) is decided when the lower and upper bound of the score difference D(x) are both
above 0 or both below 0. The column `called` contains the number of decided duels. Each decision is compared with the
sign of D(x) at full observation (decisions.md B4). A single wrong decision by rigorous bounds stops the stage with an
error. A wrong decision by heuristic bounds is counted, but does not stop the stage (tab:layer1_informed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs
from afa.engine.outcomes import (
    CALLED,
    TIED,
    TO_ITS_END,
    TO_THE_END,
    WRONG,
    CallPaths,
    held_by_either,
    own_order_calls,
    shared_order_calls,
)
from afa.errors import Fault, SanityError
from afa.evaluate.accuracy import Resampled, by_t
from afa.evaluate.inputs import final_differences
from afa.evaluate.long_tables import joined, rows_of
from afa.evaluate.summary import summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Floats, Ints
from afa.model.bundle import Bundle
from afa.model.orders import random_orders

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, Layer1


ALLOCATIONS = ("random", "informed", "informed_pair")
METHOD_OF_BRACKET = {"l1_tight": "wald", "l1_paper": "wald", "hanson_wright": "stack_a", "kl": "kl", "kl_written": "kl"}
STOP_QUANTILES = (0.1, 0.5, 0.9)
SHOWN_FAULTS = 5


class Runs(NamedTuple):
    """The decisions that score bounds allow after each observed feature, for one way to order the features.

    The attribute `allocation` names the way to order the features, such as `random`. For random orders, `seeds`
    contains their seeds. For all other orders, `seeds` is [None].
    """

    allocation: str
    seeds: Sequence[int | None]
    calls: CallPaths


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    layer1: Layer1,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Count the duels (comparisons of two entities) that are decided by score bounds, after each observed feature.

    Each patient has one random order for each seed. In two further orders, features with large differences between the
    potentials of entities come first. The order `informed` is the same for all pairs of entities. The order
    `informed_pair` is chosen separately for each pair of entities.

    Returns
    -------
    calls : one row for each (patient, allocation, seed, bracket, t). `called` is the number of decided duels among the
        duels with a winner at full observation. `wrong` is the number of decisions against the winner. `tied` is the
        number of decisions in duels that are tied at full observation
    steps : one row for each (patient, allocation, seed, bracket, step). `called` is counted after `step` features of
        the union of the two entities' supports. A duel whose union has fewer features keeps its last state
    pairs : one row for each patient. `duels` is the number of duels with a winner, and `tied` is the number of tied
        duels
    left_open : one row for each (patient, allocation, bracket, magnitude). `magnitude` is abs(D(x)) in nats to two
        significant digits, and 0 for a tie. The counts are over all duels with this magnitude and all orders. `duels`
        is the number of duels. `never` is the number of duels not decided before full observation. `never_support` is
        the number of duels not decided before the last feature of the two entities' supports

    Raises
    ------
    SanityError : a rigorous bracket decides against the winner, or decides a duel that is tied at full observation.

    """
    names, values = [cohort.patients[p] for p in patients], cohort.values[list(patients)]
    differences = final_differences(bundle, values)
    winners = np.sign(differences).astype(np.int8)
    informed = np.tile(informed_order(bundle), (len(names), 1, 1))

    def follow(calls_along: Callable[..., CallPaths], orders: Ints) -> CallPaths:
        solver = Solver(**dict(inference))
        return calls_along(bundle, values, orders, winners, solver=solver, threads=threads)

    runs = [
        Runs("random", layer1.seeds, follow(shared_order_calls, random_orders(bundle.features, names, layer1.seeds))),
        Runs("informed", [None], follow(shared_order_calls, informed)),
        Runs("informed_pair", [None], follow(own_order_calls, informed_pair_orders(bundle))),
    ]
    if faults := list(_wrong_call_faults(runs, bundle, names, differences)):
        raise SanityError(faults[:SHOWN_FAULTS])
    decided = np.count_nonzero(winners, axis=1).astype(np.int32)
    calls = np.concatenate([one.calls.counts for one in runs], axis=1).transpose(0, 1, 3, 2, 4)
    steps = np.concatenate([one.calls.steps for one in runs], axis=1).transpose(0, 1, 3, 2)
    kinds = {"called": CALLED, "wrong": WRONG, "tied": TIED}
    return {
        "calls": _key_columns(runs, names, calls.shape[3], "t").assign(
            **{name: calls[..., kind].ravel() for name, kind in kinds.items()}
        ),
        "steps": _key_columns(runs, names, steps.shape[3], "step").assign(called=steps.ravel()),
        "pairs": pd.DataFrame({"patient": names, "duels": decided, "tied": np.int32(winners.shape[1]) - decided}),
        "left_open": _left_open(runs, names, differences),
    }


def informed_order(bundle: Bundle) -> Ints:
    """Return the features sorted by the sum of abs(alpha_a - alpha_b) over pairs, largest first (decisions.md A9).

    Features with equal sums are sorted by name.

    Returns
    -------
    order : (M,) int64, indices of features

    """
    weight = np.sum([np.abs(bundle.unary[a] - bundle.unary[b]) for a, b in all_pairs(len(bundle.entities))], axis=0)
    # Sums are rounded so that they do not depend on the order of their terms.
    weight = np.array([float(f"{total:.12g}") for total in weight])
    order = sorted(range(len(weight)), key=lambda j: (-weight[j], bundle.features[j]))
    return np.array(order, dtype=np.int64)


def informed_pair_orders(bundle: Bundle) -> Ints:
    """Return, for each pair (a, b) of entities, the features sorted by abs(alpha_a - alpha_b), largest first.

    Among features with equal abs(alpha_a - alpha_b), features with a potential of a or b come first. Remaining ties are
    sorted by name.

    Returns
    -------
    orders : (Q, M) int64, indices of features

    """
    a, b = all_pairs(len(bundle.entities)).T
    weight, supported = np.abs(bundle.unary[a] - bundle.unary[b]), held_by_either(bundle)
    by_name = np.argsort(np.argsort(np.array(bundle.features, dtype=object), kind="stable"), kind="stable")
    return np.lexsort((np.broadcast_to(by_name, weight.shape), ~supported, -weight), axis=-1)


def _wrong_call_faults(
    runs: Sequence[Runs], bundle: Bundle, names: Sequence[str], differences: Floats
) -> Iterator[Fault]:
    pairs = all_pairs(len(bundle.entities))
    for one in runs:
        for p, s in np.argwhere(one.calls.first[..., 0] >= 0):
            t, place, bracket, call = (int(number) for number in one.calls.first[p, s])
            a, b = (bundle.entities[v] for v in pairs[place])
            seed = "" if one.seeds[s] is None else f", seed {one.seeds[s]}"
            where = f"layer 1, patient {names[p]}, pair {a} and {b}, {one.allocation} order{seed}, t = {t}"
            found = f"a call for {a if call > 0 else b} by {BRACKETS[bracket]}"
            step = "report this with the bundle: a rigorous bracket that is wrong once is a fault of the program"
            yield Fault(where, found, f"the sign of D = {differences[p, place]:.12g} at full observation", step)


def _key_columns(runs: Sequence[Runs], names: Sequence[str], n_times: int, time: str) -> pd.DataFrame:
    """Return the key columns of a table with one row for each patient, order, bracket and time.

    The columns have the same types in all shards.
    """
    orders = pd.DataFrame(
        [(one.allocation, seed) for one in runs for seed in one.seeds], columns=["allocation", "seed"]
    )
    times = {time: np.arange(n_times, dtype=np.int32)}
    table = rows_of(patient=names, order=orders.index, bracket=BRACKETS, **times)
    of_rows = orders.astype({"seed": "Int64"}).take(table.pop("order").to_numpy()).reset_index(drop=True)
    return pd.concat([table.pop("patient"), of_rows, table], axis=1)


def _left_open(runs: Sequence[Runs], names: Sequence[str], differences: Floats) -> pd.DataFrame:
    parts = []
    for p, name in enumerate(names):
        magnitudes, level = two_digits(np.abs(differences[p]))
        of_level = np.equal.outer(np.arange(len(magnitudes)), level).astype(np.int32)
        for one in runs:
            duels = np.int32(len(one.seeds)) * of_level.sum(axis=1, dtype=np.int32)
            still_open = np.einsum("lq,qbk->kbl", of_level, one.calls.open[p].sum(axis=0, dtype=np.int32))
            table = rows_of(patient=[name], allocation=[one.allocation], bracket=BRACKETS, magnitude=magnitudes)
            counts = {"never": still_open[TO_THE_END].ravel(), "never_support": still_open[TO_ITS_END].ravel()}
            parts.append(table.assign(duels=np.tile(duels, len(BRACKETS)), **counts))
    return joined(parts, ["patient", "allocation", "bracket", "magnitude", "duels", "never", "never_support"])


def two_digits(numbers: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Round numbers to two significant digits, and return the distinct values and the index of each number's value.

    Parameters
    ----------
    numbers : (n,) float64

    Returns
    -------
    levels : (K,) float64, ascending
    places : (n,) index of each number's value in `levels`

    Examples
    --------
    >>> levels, place = two_digits(np.array([4.0, 0.0, 3.96, 12.34]))
    >>> levels.tolist(), place.tolist()
    ([0.0, 4.0, 12.0], [1, 0, 1, 2])

    """
    rounded = np.array([float(f"{number:.2g}") for number in numbers])
    levels, places = np.unique(rounded, return_inverse=True)
    return levels, places


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `bracket_rate` in `summary.csv`.

    The column `reference` names the score bounds. In the variant `support`, t counts only features in the support of
    one of the two entities.

    Returns
    -------
    rate : share of decided duels among the duels with a winner, for each t. The quantity `wrong` is the share of wrong
        decisions among the decided duels with a winner. The stratum `tied` is the share of decided duels among the
        duels tied at full observation. The remaining quantities have no t. `never` is the share of all duels not
        decided before full observation or, in the variant `support`, before the last feature of the two supports. In
        the stratum `never`, `tied` is the share of tied duels among these undecided duels. `structural_ties` is the
        share of all duels with D(x) = 0
    gap : `rate` minus `rate` along the random order, for each t
    nats : quantiles of abs(D(x)). The stratum `never` contains the duels not decided before full observation, and
        `called` all other duels
    count : number of `wrong` decisions of the rigorous brackets at all t, including decisions in tied duels

    """
    pairs = tables["pairs"].assign(every=tables["pairs"]["duels"] + tables["pairs"]["tied"])
    sample = Resampled.of(pairs["patient"], **dict(bootstrap), purpose="layer1")
    among = pairs[["patient", "duels", "tied"]].rename(columns={"tied": "ties"})
    rounds, steps = (_group_by_order(tables[name].merge(among, on="patient")) for name in ("calls", "steps"))
    left_open = _group_by_order(tables["left_open"])
    rows: list[pd.DataFrame] = []
    for allocation in ALLOCATIONS:
        for bracket in BRACKETS:
            found = [
                *_rate_rows(rounds, steps, allocation, bracket, sample),
                *_undecided_duel_rows(left_open[allocation, bracket], sample),
            ]
            rows += [
                table.assign(method=METHOD_OF_BRACKET[bracket], reference=bracket, allocation=allocation)
                for table in found
            ]
    ties = sample.share(pairs, "tied", "every", by=None)
    rows.append(ties.assign(metric="rate", quantity="structural_ties"))
    return summary_rows("bracket_rate", rows, schedule="every", start="uniform", target="likelihood")


Orders = Mapping[tuple[str, str], pd.DataFrame]
"""(allocation, bracket) -> rows of a table."""


def _group_by_order(table: pd.DataFrame) -> Orders:
    groups = table.groupby(["allocation", "bracket"], sort=False)
    return {(str(allocation), str(bracket)): part for (allocation, bracket), part in groups}


def _rate_rows(
    rounds: Orders, steps: Orders, allocation: str, bracket: str, sample: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield the share of decided duels at each t, and the share of wrong decisions.

    For orders that are not random, a `gap` is added: the share of decided duels minus the share for random orders.

    The number of wrong decisions is given only for rigorous score bounds.
    """
    for tables, time, variant in ((rounds, "t", None), (steps, "step", "support")):
        own, by_chance = (sample.part(tables[of, bracket], "called", "duels", by=time) for of in (allocation, "random"))
        yield by_t(sample.mean([own])).assign(metric="rate", variant=variant)
        if allocation != "random":
            yield by_t(sample.gap([own], [by_chance])).assign(metric="gap", variant=variant)
    table = rounds[allocation, bracket]
    yield sample.share(table, "wrong", "called").assign(metric="rate", quantity="wrong")
    yield sample.share(table, "tied", "ties").assign(metric="rate", stratum="tied")
    if bracket in RIGOROUS:
        wrong, made = table["wrong"] + table["tied"], table["called"] + table["tied"]
        yield pd.DataFrame([{"metric": "count", "quantity": "wrong", "value": wrong.sum(), "n": int(made.sum())}])


def _undecided_duel_rows(table: pd.DataFrame, sample: Resampled) -> Iterator[pd.DataFrame]:
    """Yield the share of undecided duels, and quantiles of abs(D(x)) over undecided and over decided duels."""
    tied = table["magnitude"] == 0
    counted = table.assign(tied=table["never"].where(tied, 0), called=table["duels"] - table["never"])
    for label, some, of in (
        ({"quantity": "never"}, "never", "duels"),
        ({"quantity": "never", "variant": "support"}, "never_support", "duels"),
        ({"stratum": "never", "quantity": "tied"}, "tied", "never"),
    ):
        yield sample.share(counted, some, of, by=None).assign(metric="rate", **label)
    magnitudes = np.array(sorted(table["magnitude"].unique()), dtype=np.float64)
    of_strata = sample.sums(counted, "never", "called", by="magnitude")
    for stratum, counts in zip(("never", "called"), of_strata, strict=True):
        for share in STOP_QUANTILES if counts.any() else ():

            def quantile_of(weights: Floats, counts: Floats = counts, share: float = share) -> Floats:
                return quantile(weights @ counts, magnitudes, share)

            row = sample.statistic(quantile_of, int(counts.sum()))
            yield row.assign(metric="nats", stratum=stratum, quantity=f"q{round(100 * share)}")


def quantile(counts: Floats, levels: Floats, share: float) -> Floats:
    """Return a quantile of each distribution in `counts`.

    A row of `counts` is a distribution: the number of cases with each value in `levels`.

    `share` is the level of the quantile, such as 0.5 for the median. For a row without cases, the quantile is NaN.

    Parameters
    ----------
    counts : (R, K) float64, number of cases at each level
    levels : (K,) float64, ascending

    Returns
    -------
    quantile : (R,) float64

    Examples
    --------
    >>> quantile(np.array([[1.0, 1.0, 2.0], [0.0, 0.0, 3.0]]), np.array([0.0, 4.0, 8.0]), 0.5).tolist()
    [4.0, 8.0]

    """
    up_to = np.cumsum(counts, axis=1)
    place = (up_to < share * up_to[:, -1:]).sum(axis=1)
    return np.where(up_to[:, -1] > 0, levels[np.minimum(place, len(levels) - 1)], np.nan)
