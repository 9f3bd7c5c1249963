"""Sensitivity of results to the elicited answers: the main results are recomputed with the answers of single voters.

A voter is one of several independent runs of the elicitation. All other stages use the consensus of all voters, and the
intervals of these stages account for variation between patients, but not between voters. For each voter, this stage
makes a bundle from the voter's answers alone (`afa.elicit.stages.of_one_voter`), and runs other stages with the bundle.
The patients are the same for all voters. The bundle of a voter is restricted to the genes of the cohort, which are the
genes of the consensus. The answers about pairs of genes are also the same for all voters, because these questions were
asked only once, after the consensus. A coupling between two genes is in a voter's bundle only if both genes are in this
bundle.

Two of the paper's main results are not recomputed for single voters. Results of Layer 0 on synthetic entities do not
depend on elicited answers. When language models choose features, their prompts contain the potentials of the bundle
that is made from the answers of all voters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.elicit.stages import bundle_stage, of_one_voter
from afa.elicit.tables import read_stage
from afa.engine.gauges import gauge_paths
from afa.evaluate.accuracy import Resampled
from afa.evaluate.inputs import note
from afa.evaluate.long_tables import rows_of
from afa.evaluate.summary import PRINTED_ROUNDS
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.orders import random_order, random_orders
from afa.model.study import load_study
from afa.paper.experiments import allocation as grid
from afa.paper.experiments import binary, sign
from afa.paper.experiments import chaos as leads
from afa.paper.experiments.gauge import agreement_of, agreement_rows

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Chaos, ClosureSettings, Inference, RandomOrder

FOLLOWED_RULES = ("random", "greedy", "lucb", "clustered", "priority_clusters")
"""Rules of the allocation grid that this stage runs, with the gain `wald_magnitude` and the schedule `paper`."""
INFORMED = (("random", "", ""), ("greedy", "cmi", ""))
"""Orders of the binary tasks, as (rule, gain, guide)."""
GAUGE_PATIENTS, GAUGE_ROUNDS = 30, 50
"""The two choices of class models (gauges) are compared for this number of patients, in this number of first rounds.
All patients and rounds would double the time of the stage.
"""


def run(
    cohort: Cohort,
    bundle: Bundle,
    study: Path,
    unary: Path,
    pairwise: Path,
    *,
    random_order: RandomOrder,
    chaos: Chaos,
    top_k: int,
    inference: Inference,
    closure: ClosureSettings,
    bootstrap: Bootstrap,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Build a bundle from the answers of each voter alone, and run some stages with this bundle.

    The stages `sign` and `chaos` are run completely. The stages `allocation`, `binary` and `gauge` are run in part.
    `chaos` uses all its seeds. All other stages use only the random orders of the first seed. Only summary rows at the
    values of t in the paper's tables are returned.

    Parameters
    ----------
    study, unary, pairwise : folders of the study and of its stages, which have the answers of all voters

    Returns
    -------
    numbers : the summary rows of these stages, for each voter
    bundles : one row of counts for each voter. `pairs` is the number of pairs of an entity and a gene, and `shared` is
        the number of these pairs that the consensus also has. `features` and `couplings` are the numbers of features
        and couplings

    """
    asked, consensus = load_study(study), _potential_pairs(bundle)
    stages = {
        "unary": read_stage(unary, "asked", "named", "dropped", "references"),
        "pairwise": read_stage(pairwise, "asked", "pairs"),
    }
    first = random_order.model_copy(update={"starts": random_order.starts[:1], "seeds": random_order.seeds[:1]})
    rules: Any = SimpleNamespace(
        rules=FOLLOWED_RULES, gains=("wald_magnitude",), schedules=("paper",), seeds=first.seeds
    )
    numbers, bundles = list[pd.DataFrame](), []
    for voter in asked.settings.voters:
        with TemporaryDirectory() as folder:
            own, _ = bundle_stage(*of_one_voter(asked, stages, voter), Path(folder) / "bundle", min_agree=1)
        scoped = own.restrict([name for name in own.features if name in cohort.features])
        own = scoped.contrasts()
        settings: dict[str, Any] = {"inference": inference, "threads": threads}
        people, everyone = on_features(cohort, own.features), range(len(cohort.patients))
        of_sign = sign.run(own, people, everyone, random_order=first, **settings)
        of_chaos = leads.run(own, people, everyone, chaos=chaos, **settings)
        of_grid = grid.run(own, people, everyone, allocation=rules, top_k=top_k, **settings)
        of_tasks = binary.run_along(INFORMED, scoped, people, first, closure=closure, **settings)
        rows = [
            sign.summarise(of_sign, bootstrap=bootstrap),
            leads.summarise(of_chaos, bootstrap=bootstrap),
            grid.summarise(of_grid, of_chaos, bootstrap=bootstrap),
            binary.summarise(of_tasks, bootstrap=bootstrap),
            _gauge_agreement_rows(own, people, first.seeds, bootstrap=bootstrap, **settings),
        ]
        every = pd.concat(rows, ignore_index=True).assign(voter=voter)
        numbers.append(every[every["t"].isna() | every["t"].isin([*PRINTED_ROUNDS, len(own.features)])])
        pairs = _potential_pairs(own)
        counts = {"pairs": len(pairs), "shared": len(pairs & consensus), "features": len(own.features)}
        bundles.append(
            {"voter": voter, **counts, "couplings": sum(own.mrf(entity).couplings.nnz // 2 for entity in own.entities)}
        )
        note(f"{voter}: {counts}")
    return {"numbers": pd.concat(numbers, ignore_index=True), "bundles": pd.DataFrame(bundles)}


def _gauge_agreement_rows(
    bundle: Bundle,
    cohort: Cohort,
    seeds: Sequence[int],
    *,
    inference: Inference,
    bootstrap: Bootstrap,
    threads: int | None,
) -> pd.DataFrame:
    """Return the rows of the summary table `gauge_agreement`, for a sample of patients and only the first rounds."""
    drawn = random_order(cohort.patients, patient="", seed=0, experiment="voters")[:GAUGE_PATIENTS]
    rows = np.sort(drawn)
    names = [cohort.patients[row] for row in rows]
    orders = random_orders(bundle.features, names, seeds)[:, :, :GAUGE_ROUNDS]
    paths = gauge_paths(bundle, cohort.values[rows], orders, (), solver=Solver(**dict(inference)), threads=threads)
    by_round = rows_of(patient=names, seed=seeds, t=range(orders.shape[2] + 1))
    resampled = Resampled.of(names, **dict(bootstrap), purpose="gauge")
    return agreement_rows(agreement_of(paths, by_round), resampled)


def on_features(cohort: Cohort, features: Sequence[str]) -> Cohort:
    """Return the cohort with only the given features, in the given order."""
    places = [cohort.features.index(name) for name in features]
    controls = cohort.controls.iloc[:, places]
    return replace(cohort, features=tuple(features), values=cohort.values[:, places], controls=controls)


def _potential_pairs(bundle: Bundle) -> set[tuple[str, str]]:
    """Return the pairs (entity, feature) for which a bundle has a potential."""
    return {(entity, bundle.features[j]) for entity in bundle.entities for j in bundle.support(entity)}
