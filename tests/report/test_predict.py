"""A whole table of probabilities: each row is what a planner says of that patient."""

import numpy as np
import pandas as pd
import pytest
from bundle.test_priors import CASES, HEADER, chest, stated
from typer.testing import CliRunner

import afa
from afa.cli import app
from afa.engine.course import MISSING
from afa.errors import CohortError, PlannerError
from afa.evaluate.simulate.walks import told
from afa.planner import BinaryPlanner, TopKPlanner

FINE = afa.Solver(tolerance=1e-10)


def table(bundle, n=12, seed=0):
    random = np.random.default_rng(seed)
    values = random.integers(-1, 2, size=(n, len(bundle.features))).astype(float)
    values = np.where(~bundle.possible[:, 0] & (values < 0), 1, values)
    values[random.random(values.shape) < 0.3] = np.nan
    values[0] = np.nan
    return pd.DataFrame(values, index=[f"p{i}" for i in range(n)], columns=bundle.features)


def planned(bundle, X, **options):
    rows = np.where(X.isna(), MISSING, X).astype(np.int8)
    return np.stack([told(TopKPlanner(bundle, k=1, **options), row).posterior() for row in rows])


@pytest.mark.parametrize("inference", ["mean_field", "exact"])
@pytest.mark.parametrize(("holds", "shares"), CASES)
def test_each_row_is_the_posterior_of_a_planner(tmp_path, holds, shares, inference):
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(*shares), holds))
    X = table(bundle)
    found = afa.predict_proba(bundle, X, inference=inference, solver=FINE)
    np.testing.assert_allclose(found, planned(bundle, X, inference=inference, solver=FINE), atol=1e-9)
    np.testing.assert_allclose(found.loc["p0"], shares, atol=1e-9)
    assert list(found.index) == list(X.index)
    assert list(found.columns) == list(bundle.entities)


def test_directions_alone_give_the_planner_s_posterior_too(bundle_tiny):
    X = table(bundle_tiny)
    found = afa.predict_proba(bundle_tiny, X, solver=FINE)
    np.testing.assert_allclose(found, planned(bundle_tiny, X, solver=FINE), atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_one_entity_alone_has_the_probability_of_the_binary_planner(bundle_tiny):
    alone = bundle_tiny.restrict_entities(["bleeding"])
    X = pd.DataFrame({"CXCL8": [1]}, index=["ann"])
    planner = BinaryPlanner(alone, entity="bleeding", solver=FINE)
    planner.observe("CXCL8", 1)
    assert afa.predict_proba(alone, X, solver=FINE).loc["ann", "bleeding"] == pytest.approx(planner.probability())


def test_findings_that_exclude_each_other_are_one_variable(tmp_path):
    unary = (
        "entity,feature,potential,p_low_with,p_high_with,p_low_without,p_high_without\n"
        "embolism,a,,,0.6,,0.2\nembolism,b,,,0.1,,0.4\ninfarction,a,,,0.1,,0.3\ninfarction,c,,,0.7,,0.2\n"
        "pneumonia,b,,,0.5,,0.2\n"
    )
    for holds, shares in CASES:
        folder = chest(tmp_path / holds.replace(" ", "_"), stated(*shares), holds, HEADER, unary)
        (folder / "features.csv").write_text("feature,kind\na,binary\nb,binary\nc,binary\n")
        (folder / "groups.csv").write_text("feature,exclusive\na,place\nb,place\n")
        bundle = afa.load_bundle(folder)
        X = pd.DataFrame({"a": [1, 0, 0, None], "b": [0, 1, 0, 0], "c": [None, 1, 0, 1]}, index=list("pqrs"))
        np.testing.assert_allclose(
            afa.predict_proba(bundle, X, solver=FINE), planned(bundle, X, solver=FINE), atol=1e-9
        )


def test_rows_may_repeat_and_lack_features(tmp_path):
    bundle = afa.load_bundle(chest(tmp_path / "b", None))
    X = pd.DataFrame({"fever": [1, 1, 0], "note": list("xyz")}, index=["c", "a", "b"])
    found = afa.predict_proba(bundle, X)
    assert found.loc["c"].tolist() == found.loc["a"].tolist() != found.loc["b"].tolist()
    assert list(found.index) == ["c", "a", "b"]


def test_what_is_no_code_and_what_no_planner_takes_is_refused(tmp_path, bundle_tiny):
    with pytest.raises(CohortError, match=r"found '39\.5' \(patient ann\); expected -1, 0, 1 or nothing"):
        afa.predict_proba(bundle_tiny, pd.DataFrame({"CXCL8": [39.5]}, index=["ann"]))
    with pytest.raises(CohortError, match="no column of a feature"):
        afa.predict_proba(bundle_tiny, pd.DataFrame({"age": [1]}))
    with pytest.raises(PlannerError, match="holds"):
        afa.predict_proba(bundle_tiny, pd.DataFrame({"CXCL8": [1]}), holds="one")


def test_the_command_writes_a_row_a_patient_in_the_order_of_the_table(tmp_path, bundle_tiny):
    pd.DataFrame({"CXCL8": [1, -1], "MMP9": [None, 0]}, index=["zoe", "ann"]).to_csv(tmp_path / "t.csv")
    arguments = ["score", "tests/data/bundle_tiny", str(tmp_path / "t.csv"), "--drop-missing"]
    assert CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "p.csv")]).exit_code == 0
    found = pd.read_csv(tmp_path / "p.csv", index_col=0)
    assert list(found.index) == ["zoe", "ann"]
    X = pd.read_csv(tmp_path / "t.csv", index_col=0)
    np.testing.assert_allclose(found, afa.predict_proba(bundle_tiny, X), rtol=1e-9)
