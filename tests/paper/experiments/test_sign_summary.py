"""What the solves of sign convergence took, by where they start: sums worked by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from afa.evaluate.summary import headline
from afa.paper.experiments.settings import Bootstrap
from afa.paper.experiments.sign import summarise

SWEEPS = {
    "uniform": {"a": [30, 20, 10], "b": [50, 60, 0]},
    "warm": {"a": [30, 8, 4], "b": [50, 12, 0]},
}
"""By start and patient, the sweeps at t = 0, 1, 2, added up over two orders."""
SOLVES = {"a": [4, 2, 2], "b": [4, 4, 0]}


def rounds_of(starts: list[str]) -> pd.DataFrame:
    """One duel, always right; two orders, of which the second has a quarter of the sweeps and none of the solves."""
    counted = {"right": 1, "duels": 1, "right_first": 1, "duels_first": 1, "right_prior_wrong": 0}
    lines = [
        {"start": start, "method": method, "patient": patient, "seed": seed, "t": t, "duels_prior_wrong": 0, **counted}
        | {
            "iterations": 0 if method == "two_elbo" else sweeps[t] * (3 - 2 * seed) / 4,
            "solves": 0 if method == "two_elbo" else SOLVES[patient][t] * (1 - seed),
        }
        for start in starts
        for method in ("linearity", "two_elbo")
        for patient, sweeps in SWEEPS[start].items()
        for seed in (0, 1)
        for t in range(3)
    ]
    return pd.DataFrame(lines)


def summarised(starts: list[str]) -> pd.DataFrame:
    duels = pd.DataFrame({"patient": ["a", "b"], "entity_a": "u", "entity_b": "v", "winner": 1})
    orders = pd.DataFrame({"patient": ["a", "b"], "method": "kl", "different": 0, "compared": 1})
    return summarise(
        {"rounds": rounds_of(starts), "duels": duels, "orders": orders},
        bootstrap=Bootstrap(resamples=400, confidence=0.9),
    )


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    whole = summarised(["uniform", "warm"])
    return whole[whole["metric"] == "iterations"]


def test_sweeps_are_per_solve_over_all_patients_and_orders_at_each_round(rows: pd.DataFrame) -> None:
    by_t = rows.dropna(subset=["t"]).pivot(index="t", columns="start", values=["value", "n"])
    assert by_t["value", "uniform"].tolist() == [80 / 8, 80 / 6, 10 / 2]
    assert by_t["value", "warm"].tolist() == [80 / 8, 20 / 6, 4 / 2]
    assert by_t["n", "warm"].tolist() == [8, 6, 2]


def test_without_a_round_they_leave_out_the_first_which_is_the_same_for_every_start(rows: pd.DataFrame) -> None:
    whole = rows[rows["t"].isna() & rows["reference"].isna()].set_index("start")
    assert whole["value"].to_dict() == {"uniform": 90 / 8, "warm": 24 / 8}
    assert whole["n"].tolist() == [8, 8]


def test_a_start_is_held_against_the_first_on_the_same_patients(rows: pd.DataFrame) -> None:
    """Patient a alone takes 12 / 4 against 30 / 4 sweeps, b alone 12 / 4 against 60 / 4."""
    against = rows[rows["reference"].notna()].iloc[0]
    assert (against["start"], against["reference"], against["value"]) == ("warm", "uniform", -66 / 8)
    assert (against["low"], against["high"]) == (-12, -4.5)
    assert rows["reference"].notna().sum() == 1


def test_sweeps_belong_to_no_score_and_no_target(rows: pd.DataFrame) -> None:
    assert rows[["method", "target"]].isna().all(axis=None)
    assert len(headline(rows)) == len(rows)
    assert set(rows["allocation"]) == {"random"}


def test_one_start_alone_is_held_against_nothing() -> None:
    alone = summarised(["uniform"]).query("metric == 'iterations'")
    assert set(alone["start"]) == {"uniform"}
    assert alone["reference"].isna().all()
