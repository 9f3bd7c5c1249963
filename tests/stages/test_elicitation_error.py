"""Elicitation error: flipped models decide drawn and labelled patients, and no flip is the exact Bayes decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from oracle import configurations, energies, posterior

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.errors import ConfigError
from afa.stages import sections
from afa.stages.base import chosen
from afa.stages.elicitation_error import Settings, flipped_models, run, summarise
from afa.stages.settings import Bootstrap
from afa.stats.resampling import wilson
from afa.stats.tables import gather_tables, read_table, write_tables

GRID = [(0.0, 0), (0.2, 0), (0.2, 1), (0.5, 0), (1.0, 0)]
FLIPS = (0.0, 0.25, 0.5)


def ring(sign: float, n: int = 6) -> np.ndarray:
    couplings = np.zeros((n, n))
    for j in range(n):
        couplings[j, (j + 1) % n] = couplings[(j + 1) % n, j] = sign
    return couplings


def elicitation_error(
    bundle: Bundle, cohort: Cohort, threads: int | None = None, **settings: Any
) -> dict[str, pd.DataFrame]:
    whole = Settings.model_construct(**{**dict(Settings()), **settings})
    return run(bundle, cohort, elicitation_error=whole, threads=threads)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    unary = [[1.0, -1.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, -1.0]]
    couplings = np.array([ring(0.5), np.zeros((6, 6)), ring(-0.25)])
    return bundle_of(unary, couplings, priors=[0.0, 0.25, 0.0], entities=("u", "v", "w"))


@pytest.fixture(scope="module")
def cohort(bundle: Bundle) -> Cohort:
    generator = np.random.default_rng(3)
    values = generator.integers(-1, 2, (30, 6)).astype(np.int8)
    names = tuple(f"p{i}" for i in range(30))
    labels = pd.DataFrame({"u": generator.integers(0, 2, 30), "w": generator.integers(0, 2, 30)}, index=list(names))
    labels = labels.astype("Int8")
    labels.iloc[:4, 1] = pd.NA
    return Cohort("made", bundle.features, names, values, labels)


@pytest.fixture(scope="module")
def tables(bundle: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return elicitation_error(bundle, cohort, flips=FLIPS, replicates=3, simulated=60, threads=1)


@pytest.fixture(scope="module")
def summary(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.95))


def cell(
    summary: pd.DataFrame,
    metric: str,
    target: str | None,
    reference: str | None,
    quantity: str | None = None,
    variant: str | None = None,
    level: float | None = None,
    entity: str | None = None,
) -> pd.Series:
    """The row with these keys; the others are empty."""
    keys = {"target": target, "reference": reference, "quantity": quantity, "variant": variant, "level": level}
    chosen = summary[summary["metric"] == metric]
    for name, wanted in {**keys, "entity": entity}.items():
        chosen = chosen[chosen[name].isna() if wanted is None else chosen[name] == wanted]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_a_flip_turns_signs_and_keeps_magnitudes_and_prior(bundle: Bundle) -> None:
    models, mrf = flipped_models(bundle, "u", GRID), bundle.mrf("u")
    for i in range(len(GRID)):
        flipped = models.model(i)
        np.testing.assert_array_equal(np.abs(flipped.unary), np.abs(mrf.unary))
        np.testing.assert_array_equal(abs(flipped.couplings).toarray(), abs(mrf.couplings).toarray())
    with_prior = flipped_models(bundle, "v", GRID).model(3)
    assert with_prior.prior == bundle.mrf("v").prior == 0.25


def test_no_flip_keeps_the_model_and_a_sure_flip_negates_it(bundle: Bundle) -> None:
    models, mrf = flipped_models(bundle, "u", GRID), bundle.mrf("u")
    for i, sign in ((0, 1), (4, -1)):
        np.testing.assert_array_equal(models.model(i).unary, sign * mrf.unary)
        np.testing.assert_array_equal(models.model(i).couplings.toarray(), sign * mrf.couplings.toarray())


def test_signs_are_turned_with_the_probability_asked_for() -> None:
    n = 60
    large = bundle_of(np.ones((1, n)), np.ones((1, n, n)), entities=("u",))
    models = flipped_models(large, "u", [(0.3, 0)])
    turned = np.concatenate([models.unary[0], models.coupling[0]]) < 0
    assert abs(turned.mean() - 0.3) < 4 * np.sqrt(0.21 / turned.size)


def test_signs_depend_on_the_names_and_not_on_the_grid(bundle: Bundle) -> None:
    whole, alone = flipped_models(bundle, "u", GRID), flipped_models(bundle, "u", GRID[2:3])
    np.testing.assert_array_equal(whole.unary[2], alone.unary[0])
    np.testing.assert_array_equal(whole.coupling[2], alone.coupling[0])
    assert (whole.coupling[1] != whole.coupling[2]).any()


def test_scores_and_shifts_are_those_of_the_flipped_models(bundle: Bundle, cohort: Cohort) -> None:
    models = flipped_models(bundle, "u", GRID)
    scores, shifts = models.scores(cohort.values), models.shifts(threads=2)
    for i in range(len(GRID)):
        flipped = models.model(i)
        np.testing.assert_allclose(scores[:, i], [flipped.energy(row) for row in cohort.values], atol=1e-12)
        expected = posterior(flipped.scaled(0.5), {})[2] - posterior(flipped.scaled(-0.5), {})[2]
        assert shifts[i] == pytest.approx(expected, abs=1e-10)


def test_references_are_those_of_enumeration(bundle: Bundle, tables: dict[str, pd.DataFrame]) -> None:
    for row in tables["references"].itertuples():
        mrf = bundle.mrf(row.entity)
        score = energies(mrf, configurations(6))
        (_, p1, z1), (_, p0, z0) = (posterior(mrf.scaled(factor), {}) for factor in (0.5, -0.5))
        for found, margin in ((row.calibrated, score - (z1 - z0)), (row.raw, score)):
            sign = np.where(abs(margin) < 1e-9, 0, np.sign(margin))
            assert found == pytest.approx(p1 @ (1 + sign) / 4 + p0 @ (1 - sign) / 4, abs=1e-11)


def test_drawn_patients_are_decided_as_often_right_as_the_exact_accuracy_says(bundle: Bundle, cohort: Cohort) -> None:
    found = elicitation_error(bundle, cohort, flips=(0.0,), simulated=20_000, threads=1)
    unflipped = found["replicates"].query("population == 'drawn'").set_index(["entity", "decision"])
    for row in found["references"].itertuples():
        for decision, exact in (("calibrated", row.calibrated), ("raw", row.raw)):
            cell = unflipped.loc[(row.entity, decision)]
            assert (cell["n"], cell["n_positive"]) == (20_000, 10_000)
            assert abs(cell["right"] / cell["n"] - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


def test_labelled_patients_are_decided_by_sign_with_ties_half_right(
    bundle: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    calls = tables["calls"].query("population == 'clinical' and flip == 0")
    shift = tables["references"].set_index("entity")["shift"]
    assert len(calls) == 2 * (30 + 26)
    for row in calls.itertuples():
        values = cohort.values[cohort.patients.index(row.patient)]
        margin = bundle.mrf(row.entity).energy(values) - (shift[row.entity] if row.decision == "calibrated" else 0.0)
        truth = 1 if cohort.labels.loc[row.patient, row.entity] == 1 else -1
        assert (row.right, row.n) == ((1 + truth * np.sign(round(margin, 9))) / 2, 1)


def test_calls_and_replicates_are_two_sums_of_the_same_decisions(tables: dict[str, pd.DataFrame]) -> None:
    keys = ["population", "entity", "flip", "decision"]
    calls, replicates = (tables[name].groupby(keys)[["right", "n"]].sum() for name in ("calls", "replicates"))
    clinical_without_label = replicates["n"] == 0
    pd.testing.assert_frame_equal(calls, replicates[~clinical_without_label], check_dtype=False)
    positive = tables["calls"].query("label == 1").groupby(keys)[["right", "n"]].sum()
    summed = tables["replicates"].groupby(keys)[["right_positive", "n_positive"]].sum().loc[positive.index]
    np.testing.assert_array_equal(positive.to_numpy(), summed.to_numpy())


def test_patients_without_a_label_are_left_out_and_counted(tables: dict[str, pd.DataFrame]) -> None:
    labels = tables["labels"].set_index("entity")
    assert labels["missing"].to_dict() == {"u": 0, "v": 30, "w": 4}
    clinical = tables["calls"].query("population == 'clinical' and decision == 'raw' and flip == 0")
    assert clinical.groupby("entity").size().to_dict() == {"u": 30, "w": 26}


def test_an_entity_too_dense_keeps_its_raw_decisions_and_is_listed() -> None:
    n = 21
    dense = bundle_of(np.ones((1, n)), np.ones((1, n, n)), entities=("u",))
    values = np.ones((2, n), dtype=np.int8)
    labels = pd.DataFrame({"u": [1, 0]}, index=["p0", "p1"])
    tables = elicitation_error(dense, Cohort("made", dense.features, ("p0", "p1"), values, labels), flips=(0.5,))
    assert set(tables["left_out"]["quantity"]) == {"calibrated_decision", "exact_accuracy"}
    assert tables["left_out"]["reason"].str.contains("over 21 features").all()
    assert set(tables["calls"]["decision"]) == {"raw"}
    assert set(tables["calls"]["population"]) == {"clinical"}
    summary = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    assert cell(summary, "count", None, None, "left_out_exact_accuracy")["value"] == 1
    assert not summary["reference"].isin(["calibrated", "exact"]).any()


def test_shards_of_entities_and_threads_give_the_same_bytes(
    bundle: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    parts = []
    for entities in (["u"], ["v", "w"]):
        some = bundle.restrict_entities(entities)
        part = elicitation_error(some, cohort, flips=FLIPS, replicates=3, simulated=60, threads=2)
        parts.append(tmp_path / entities[0])
        write_tables(part, parts[-1])
    write_tables(tables, tmp_path / "whole")
    gather_tables(parts, tmp_path / "joined")
    gather_tables([tmp_path / "whole"], tmp_path / "once")
    for name in tables:
        pd.testing.assert_frame_equal(read_table(tmp_path / "joined", name), read_table(tmp_path / "once", name))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"flips": (0.1, 1.5)}, "1.5"),
        ({"replicates": 0}, "replicates"),
        ({"simulated": 21}, "multiple of 2"),
        ({"simulated": 0}, "greater than or equal to 20"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        chosen(["elicitation_error"], sections(), {"elicitation_error": settings})


def test_the_summary_holds_the_shares_of_the_calls(summary: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> None:
    for population in ("drawn", "clinical"):
        for decision in ("raw", "calibrated"):
            calls = tables["calls"].query("population == @population and decision == @decision")
            for flip, keys in ((0.0, {}), (0.25, {"variant": "flip", "level": 0.25})):
                part = calls[calls["flip"] == flip]
                row = cell(summary, "accuracy", population, decision, **keys)
                assert row["value"] == pytest.approx(part["right"].sum() / part["n"].sum())
                assert row["n"] == len(part)
                assert row["low"] <= row["value"] <= row["high"]


def test_balanced_accuracy_is_the_mean_over_entities_and_classes(
    summary: pd.DataFrame, tables: dict[str, pd.DataFrame]
) -> None:
    calls = tables["calls"].query("population == 'clinical' and decision == 'raw' and flip == 0")
    by_class = calls.groupby(["entity", "label"])[["right", "n"]].sum()
    expected = (by_class["right"] / by_class["n"]).mean()
    assert cell(summary, "balanced_accuracy", "clinical", "raw")["value"] == pytest.approx(expected)


def test_intervals_with_flips_are_wider_where_the_flipped_models_differ(tables: dict[str, pd.DataFrame]) -> None:
    keys = ["population", "entity", "flip", "decision"]
    shares = ["right", "right_positive"]
    alike = tables["replicates"].copy()
    alike[shares] = alike.groupby(keys)[shares].transform("mean")
    widths = []
    for replicates in (alike, tables["replicates"]):
        summary = summarise({**tables, "replicates": replicates}, bootstrap=Bootstrap(resamples=500, confidence=0.95))
        every = ({}, {"variant": "flip", "level": 0.5})
        rows = [cell(summary, "accuracy", "clinical", "raw", **flipped) for flipped in every]
        widths.append([row["high"] - row["low"] for row in rows])
    (unflipped, narrow), (same, wide) = widths
    assert same == unflipped
    assert wide > 1.1 * narrow


def test_the_exact_accuracy_stands_beside_and_lies_inside(
    summary: pd.DataFrame, tables: dict[str, pd.DataFrame]
) -> None:
    references = tables["references"]
    assert cell(summary, "accuracy", "drawn", "exact")["value"] == pytest.approx(references["calibrated"].mean())
    of_u = references.set_index("entity").loc["u", "raw"]
    assert cell(summary, "accuracy", "drawn", "exact", variant="sign_of_score", entity="u")["value"] == of_u
    for decision in ("calibrated", "raw"):
        assert cell(summary, "rate", "drawn", decision, "exact_inside")["value"] == 1


def test_an_exact_accuracy_outside_the_interval_is_said(tables: dict[str, pd.DataFrame]) -> None:
    changed = {**tables, "references": tables["references"].assign(calibrated=0.1)}
    summary = summarise(changed, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    assert cell(summary, "rate", "drawn", "calibrated", "exact_inside")["value"] == 0
    assert cell(summary, "rate", "drawn", "calibrated", "entity_exact_inside")["value"] == 0
    assert cell(summary, "rate", "drawn", "raw", "exact_inside")["value"] == 1


def test_prevalence_and_majority_are_those_of_the_labels(summary: pd.DataFrame, cohort: Cohort) -> None:
    known = cohort.labels[["u", "w"]]
    positive, cases = known.sum(), known.notna().sum()
    assert cell(summary, "prevalence", "clinical", None)["value"] == pytest.approx(positive.sum() / cases.sum())
    best = np.maximum(positive, cases - positive).sum() / cases.sum()
    assert cell(summary, "majority", "clinical", None)["value"] == pytest.approx(best)
    of_w = cell(summary, "prevalence", "clinical", None, entity="w")
    assert (of_w["value"], of_w["n"]) == (pytest.approx(positive["w"] / 26), 26)


def test_wilson_by_hand() -> None:
    low, high = wilson(np.array([5.0, 0.0]), np.array([10.0, 4.0]), confidence=0.95)
    np.testing.assert_allclose([low[0], high[0]], [0.236593, 0.763407], atol=1e-6)
    np.testing.assert_allclose([low[1], high[1]], [0.0, 0.489891], atol=1e-6)


def test_where_all_entities_are_too_dense_and_nobody_has_a_label_only_counts_are_left() -> None:
    n = 21
    dense = bundle_of(np.ones((1, n)), np.ones((1, n, n)), entities=("u",))
    values = np.ones((2, n), dtype=np.int8)
    nobody = Cohort("made", dense.features, ("p0", "p1"), values, pd.DataFrame(index=["p0", "p1"]))
    found = summarise(elicitation_error(dense, nobody), bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(found["metric"]) == {"count"}
    assert found.loc[found["metric"] == "count", "value"].notna().all()
