"""Sign convergence is what a plain loop over planners gives, however the patients are split."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from cohorts import cohort_of

from afa.cohort.cohort import Cohort
from afa.errors import ConfigError
from afa.evaluate.inputs import shard_of
from afa.evaluate.long_tables import gather_tables, read_table, write_tables
from afa.model.bundle import Bundle
from afa.paper.experiments.settings import Inference, RandomOrder
from afa.paper.experiments.sign import run
from afa.planner import TopKPlanner

SEEDS = (0, 3)
READ = {"random_order": RandomOrder(seeds=SEEDS, starts=("uniform",)), "inference": Inference()}
ONE = {"random_order": RandomOrder(seeds=(0,), starts=("uniform",)), "inference": Inference()}
KEY = ["patient", "seed", "method", "t"]


PLANNED = ("linearity", "wald", "two_elbo", "stack_a", "kl_nonzero")


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    values = np.random.default_rng(2).integers(-1, 2, (7, len(bundle_tiny.features)))
    values[3] = 0
    return cohort_of(bundle_tiny, values)


@pytest.fixture(scope="module")
def whole(bundle_tiny: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return run(bundle_tiny, cohort, range(7), **READ)


def signs_by_planner(bundle: Bundle, cohort: Cohort, row: int, seed: int, score: str) -> np.ndarray:
    """(M + 1, Q) signs of one patient's duels along the planner's own random order."""
    patient = cohort.patients[row]
    planner = TopKPlanner(bundle, k=1, costs="equal", score=score, allocation="random", patient=patient, seed=seed)
    above = np.triu_indices(len(bundle.entities), 1)
    signs = [np.sign(planner.scores()[above])]
    while (feature := planner.next_feature()) is not None:
        planner.observe(feature, int(cohort.values[row, bundle.features.index(feature)]))
        signs.append(np.sign(planner.scores()[above]))
    return np.array(signs)


def credit(called: float, winner: float) -> float:
    return 0.5 if called == 0 else float(called == winner)


def rows_by_planner(bundle: Bundle, cohort: Cohort) -> list[dict[str, object]]:
    expected = []
    for row, patient in enumerate(cohort.patients):
        for seed in SEEDS:
            winners = signs_by_planner(bundle, cohort, row, seed, "wald")[-1]
            guessed = signs_by_planner(bundle, cohort, row, seed, "linearity")[0]
            groups = {
                "": [q for q, w in enumerate(winners) if w != 0],
                "_first": [q for q, w in enumerate(winners) if w > 0],
                "_prior_wrong": [q for q, w in enumerate(winners) if w != 0 and guessed[q] == -w],
            }
            for method in PLANNED:
                for t, signs in enumerate(signs_by_planner(bundle, cohort, row, seed, method)):
                    cells: dict[str, object] = {"patient": patient, "seed": seed, "method": method, "t": t}
                    for suffix, duels in groups.items():
                        cells[f"right{suffix}"] = sum(credit(signs[q], winners[q]) for q in duels)
                        cells[f"duels{suffix}"] = len(duels)
                    expected.append(cells)
    return expected


def test_the_numbers_are_those_of_a_plain_loop_over_planners(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    expected = pd.DataFrame(rows_by_planner(bundle_tiny, cohort)).set_index(KEY).sort_index()
    found = whole["rounds"][whole["rounds"]["method"].isin(PLANNED)].set_index(KEY).sort_index()[expected.columns]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_the_winners_are_the_signs_of_the_energies(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    found = whole["duels"].set_index(["patient", "entity_a", "entity_b"])["winner"]
    assert len(found) == 7 * 3
    for row, patient in enumerate(cohort.patients):
        energy = {name: bundle_tiny.mrf(name).energy(cohort.values[row]) for name in bundle_tiny.entities}
        for a, b in combinations(bundle_tiny.entities, 2):
            assert found[patient, a, b] == np.sign(energy[a] - energy[b])


def test_a_tie_is_half_right_and_a_duel_tied_at_the_end_is_left_out() -> None:
    # u and v differ in feature f0 alone, v and w never
    bundle = bundle_of([[1.0, 0.5], [0.0, 0.5], [0.0, 0.5]], np.zeros((3, 2, 2)), entities=("u", "v", "w"))
    tables = run(bundle, cohort_of(bundle, np.array([[1, 1]])), [0], **ONE)
    rounds, duels = tables["rounds"], tables["duels"]
    assert duels["winner"].tolist() == [1, 1, 0]
    wald = rounds[rounds["method"] == "wald"]
    assert wald["duels"].tolist() == [2, 2, 2]
    assert wald["right"].iloc[[0, 2]].tolist() == [1, 2]


def test_the_stratum_of_wrong_priors_is_set_by_linearity_before_any_observation() -> None:
    # the field makes the bundle expect +1 on f0, where u is ahead of v; the patient has -1 there
    bundle = bundle_of([[1.0], [0.25]], np.zeros((2, 1, 1)))
    tables = run(bundle, cohort_of(bundle, np.array([[-1], [1]])), [0, 1], **ONE)
    rounds, duels = tables["rounds"], tables["duels"]
    assert duels["winner"].tolist() == [-1, 1]
    by = rounds.set_index(["method", "patient", "t"]).sort_index()
    assert by["duels_prior_wrong"].unstack("t").loc["linearity"].to_numpy().tolist() == [[1, 1], [0, 0]]
    assert by["right_prior_wrong"].loc["linearity", "p0"].tolist() == [0, 1]
    assert by["right_prior_wrong"].loc["wald", "p0"].tolist() == [0.5, 1]


def test_solves_are_counted_once_and_not_for_wald(whole: dict[str, pd.DataFrame]) -> None:
    rounds = whole["rounds"]
    assert (rounds.loc[rounds["method"] == "wald", ["solves", "iterations", "capped", "ascended"]] == 0).all(axis=None)
    start = rounds[(rounds["method"] == "linearity") & (rounds["t"] == 0)]
    assert (start["solves"] == 3).all()


@pytest.mark.parametrize("n", [1, 6, 7, 100])
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_every_patient_is_in_one_shard_and_shards_differ_by_at_most_one(n: int, parts: int) -> None:
    shards = [shard_of(n, f"{part}/{parts}") for part in range(1, parts + 1)]
    assert [patient for shard in shards for patient in shard] == list(range(n))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/", "/2", "a/b", "1/2/3", "-1/2", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--shard"):
        shard_of(10, text)


def test_a_table_that_was_not_written_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nosuch\.parquet: found no such file"):
        read_table(tmp_path, "nosuch")


def test_a_shard_without_patients_adds_nothing_to_the_whole(
    bundle_tiny: Bundle, cohort: Cohort, tmp_path: Path
) -> None:
    folders = []
    for name, chosen in (("none", range(0)), ("all", range(7))):
        tables = run(bundle_tiny, cohort, chosen, **READ)
        folders.append(tmp_path / name)
        write_tables(tables, folders[-1])
    gather_tables(folders, tmp_path / "both")
    gather_tables(folders[1:], tmp_path / "one")
    for name in ("rounds", "duels", "orders"):
        both, one = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("both", "one"))
        assert both == one


def test_orders_of_the_same_observations_are_compared_pair_by_pair(whole: dict[str, pd.DataFrame]) -> None:
    orders = whole["orders"].set_index(["method", "patient"])
    pairs_of_orders = len(SEEDS) * (len(SEEDS) - 1) // 2
    assert (orders["compared"] == 3 * pairs_of_orders).all()
    assert orders.loc[("kl_nonzero", "p3"), "different"] == 0
