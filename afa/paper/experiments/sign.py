"""Share of duels that each score decides correctly after t features in random order (tab:m2_random_sign).

The correct decision of a duel is the sign of D_ab at full observation. A duel that is tied at full observation is
excluded (S11). A score of exactly 0 counts as half correct (S5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import right_by_kind
from afa.engine.paths import SignPaths, sign_paths
from afa.engine.run import ENGINE_SCORES
from afa.evaluate.accuracy import Part, Resampled
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.summary import count_rows, summary_rows
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.orders import random_orders

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, RandomOrder


INFERENCE_METHODS = ("linearity", "two_elbo", "stack_a")
SOLVE_COLUMNS = ("solves", "iterations", "capped", "ascended")


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    random_order: RandomOrder,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Count the duels (comparisons of two entities) that each score decides correctly, for random orders of features.

    Each chosen patient has one random order for each seed.

    The setting `starts` lists starting points of mean-field inference (decisions.md M6). All scores are computed with
    the first starting point in the list. Scores that need mean-field inference are also computed with each further
    starting point.

    Returns
    -------
    rounds : one row for each (patient, seed, method, t). `duels` is the number of duels with a winner, and `right` is
        the number of correct decisions, where a tie counts one half. `right_first` and `duels_first` count only duels
        that the first entity wins. `right_prior_wrong` and `duels_prior_wrong` count only duels that `linearity`
        decides wrongly before any observation. `solves`, `iterations`, `capped` and `ascended` are the number and cost
        of the mean-field runs in this round.
    duels : one row for each (patient, entity_a, entity_b). `winner` is +1 for a, -1 for b, or 0 for a tie.
    orders : one row for each (patient, method), for scores that depend on the order of the features (S4). Decisions at
        full observation are compared between two orders. `compared` is the number of comparisons, and `different` is
        the number of differences.

    """
    names = [cohort.patients[p] for p in patients]
    orders = random_orders(bundle.features, names, random_order.seeds)
    rounds, tables = list[pd.DataFrame](), dict[str, pd.DataFrame]()
    for start in random_order.starts:
        values, solver = cohort.values[list(patients)], Solver(**dict(inference))
        paths = sign_paths(bundle, values, orders, solver=solver, start=start, threads=threads)
        methods = INFERENCE_METHODS if rounds else ENGINE_SCORES
        index = rows_of(patient=names, seed=random_order.seeds, t=range(orders.shape[2] + 1))
        winners = paths.signs["wald"][:, 0, -1]
        for method in methods:
            right = right_by_kind(paths.signs[method], winners, paths.signs["linearity"][:, :, 0])
            solves = {
                name: getattr(paths, name).ravel() if method == "linearity" else np.int32(0) for name in SOLVE_COLUMNS
            }
            rounds.append(index.assign(method=method, start=start, **right, **solves))
        if not tables:
            duels = duel_rows(bundle.entities, patient=names).assign(winner=winners.ravel())
            tables = {"duels": duels, "orders": _order_differences(paths, names)}
    return {"rounds": pd.concat(rounds, ignore_index=True), **tables}


def _order_differences(paths: SignPaths, names: Sequence[str]) -> pd.DataFrame:
    """Return how many duels are decided differently at full observation if features are observed in another order.

    The counts are summed over all pairs of orders.
    """
    tables = []
    for method in ("kl", "kl_nonzero"):
        final = paths.signs[method][:, :, -1]
        pairs = list(combinations(range(final.shape[1]), 2))
        different = sum(((final[:, a] != final[:, b]).sum(axis=1) for a, b in pairs), np.zeros(len(names), dtype=int))
        table = {"patient": list(names), "method": method, "different": different}
        tables.append(pd.DataFrame(table | {"compared": len(pairs) * final.shape[2]}))
    return pd.concat(tables, ignore_index=True)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `sign_accuracy_random` in `summary.csv`.

    Returns
    -------
    accuracy : accuracy for each method and t. The stratum `prior_wrong` contains the duels that `linearity` decides
        wrongly before any observation. In the variant `reversed`, the score of (b, a) is computed, and its sign is
        inverted
    balanced_accuracy : mean of two accuracies, on duels that the first entity wins and on duels that the second entity
        wins, for each method and t
    majority : accuracy of the best constant answer for each duel
    prevalence : share of duels that the first entity wins
    count : number of tied duels
    rate : share of decisions at full observation that differ after another order of the features, with the quantity
        `other_order`
    iterations : mean number of sweeps in a mean-field run, for each start, at each t and, without t, over all rounds
        except the first. Rows with a `reference` contain the difference from the first start

    """
    rounds, duels, orders = (tables[name] for name in ("rounds", "duels", "orders"))
    patients = list(rounds["patient"].unique())
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="sign_convergence")
    rows: list[pd.DataFrame] = []
    for (start, name), each in rounds.groupby(["start", "method"], sort=False):
        method = str(name).removesuffix("_reversed")
        label = {"method": method, "start": str(start), "variant": None if method == name else "reversed"}
        rows += [table.assign(**label) for table in resampled.of_duels(each)]
    winners = duels.pivot(index="patient", columns=["entity_a", "entity_b"], values="winner").loc[patients].to_numpy()
    ties = count_rows({"tied_at_full_observation": ((winners == 0).sum(), (winners != 0).sum())})
    rows += [*resampled.constant(winners), ties]
    for name, table in orders.groupby("method", sort=False):
        share = resampled.share(table, "different", "compared", by=None)
        rows.append(share.assign(metric="rate", quantity="other_order", method=str(name), t=int(rounds["t"].max())))
    whole = [*(table.assign(target="likelihood") for table in rows), _sweeps(rounds, resampled)]
    return summary_rows("sign_accuracy_random", whole, allocation="random", schedule="every")


def _sweeps(rounds: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Return the mean number of damped sweeps in a mean-field run, for each start (decisions.md M6).

    The mean is over the mean-field runs for all entities. Every start is evaluated on the same states. Starts are
    compared only after the first round, because a warm start needs the solution of the previous round. If mean-field
    inference was never run, the table is empty.
    """
    tables: list[pd.DataFrame] = []
    later: dict[str, Part] = {}
    for start, each in rounds.groupby("start", sort=False):
        later[str(start)] = resampled.part(each[each["t"] > 0], "iterations", "solves", by=None)
        whole = resampled.share(each, "iterations", "solves"), resampled.mean([later[str(start)]])
        tables += [table.assign(start=str(start)) for table in whole]
    first, *others = later
    for start in others:
        tables.append(resampled.gap([later[start]], [later[first]]).assign(start=start, reference=first))
    every = pd.concat(tables, ignore_index=True)
    return every[every["n"] > 0].assign(metric="iterations")
