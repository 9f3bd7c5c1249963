"""A whole table of probabilities: each row is what a planner says of that patient."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from model.bundle.test_priors import CASES, HEADER, chest, stated
from typer.testing import CliRunner

import afa
from afa.cli import app
from afa.engine.run import MISSING
from afa.errors import CohortError, PlannerError
from afa.evaluate.simulate.walks import informed
from afa.io.csvfile import visible
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
    return np.stack([informed(TopKPlanner(bundle, k=1, **options), row).posterior() for row in rows])


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


SCORES = {
    "bleeding": lambda x: x["CXCL8"] - x["MUC2"] - x["MUC2"] * x["CXCL8"],
    "diarrhea": lambda x: -x["AQP8"] + x["AQP8"] * x["MUC2"],
    "fistula": lambda x: x["MMP9"] + x["CXCL8"] + x["CXCL8"] * x["MMP9"],
}
"""S of each entity of bundle_tiny, copied by hand from unary.csv and pairwise.csv."""
LOG_PRIOR = {"bleeding": 0.0, "diarrhea": 0.0, "fistula": -1.5}


def enumerated(bundle, known):
    """Return the posteriors by adding up all 3^5 states: the prior times Z_v(x_obs) / Z_v, over all entities (S7)."""
    states = [
        dict(zip(bundle.features, state, strict=True))
        for state in itertools.product((-1, 0, 1), repeat=len(bundle.features))
    ]
    agree = [state for state in states if all(state[name] == value for name, value in known.items())]
    weight = {
        name: math.exp(LOG_PRIOR[name]) * sum(math.exp(S(x)) for x in agree) / sum(math.exp(S(x)) for x in states)
        for name, S in SCORES.items()
    }
    return [weight[name] / sum(weight.values()) for name in bundle.entities]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"CXCL8": 1, "MMP9": -1}, [0.7049, 0.2876, 0.0075]),
        ({"MMP9": 0}, [0.4770, 0.4770, 0.0460]),
        ({"AQP8": -1, "CXCL8": 1, "MMP9": 1, "MUC2": 0, "TFF3": 1}, None),
    ],
)
def test_exact_inference_gives_the_posterior_that_adding_up_all_states_gives(bundle_tiny, known, expected):
    """Without the prior of fistula in priors.csv the first patient would have 0.687, 0.280 and 0.033."""
    X = pd.DataFrame([known], index=["ann"])
    right = enumerated(bundle_tiny, known)
    np.testing.assert_allclose(right, expected or right, atol=5e-5)
    np.testing.assert_allclose(afa.predict_proba(bundle_tiny, X, inference="exact").loc["ann"], right, rtol=1e-9)
    planner = TopKPlanner(bundle_tiny, k=1, inference="exact")
    planner.observe_all(known)
    np.testing.assert_allclose(planner.posterior(), right, rtol=1e-9)
    # Mean-field bounds log Z: it is off where features are coupled, by at most 0.023 in this bundle.
    np.testing.assert_allclose(afa.predict_proba(bundle_tiny, X).loc["ann"], right, atol=0.025)


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
    with pytest.raises(CohortError, match="found none of AQP8"):
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


@pytest.mark.parametrize("name", ["cxcl8", " CXCL8", "IL8", "Interleukin 8"])
def test_a_feature_under_another_name_is_refused_and_not_left_out(bundle_tiny, name):
    bundle = replace(bundle_tiny, display_names={"CXCL8": "Interleukin 8"})
    X = pd.DataFrame({name: [1, -1], "MUC2": [1, 0]}, index=["ann", "ben"])
    labels = pd.DataFrame({"Bleeding": [1, 0]}, index=X.index)
    words = rf"table X, column {re.escape(visible(name))}: found another name than the bundle has; expected CXCL8"
    with pytest.raises(CohortError, match=words):
        afa.predict_proba(bundle, X)
    with pytest.raises(CohortError, match=words):
        afa.simulate(bundle, X)
    with pytest.raises(CohortError, match=r"table y, column Bleeding: .* expected bleeding"):
        afa.simulate(bundle, X.rename(columns={name: "CXCL8"}), labels)
    other = X.assign(CXCL8=0)
    assert afa.predict_proba(bundle, other).shape == (2, 3), "where the feature has a column the other is none of its"


def test_the_command_refuses_a_feature_under_another_name_also_where_missing_ones_are_dropped(tmp_path):
    (tmp_path / "x.csv").write_text("patient,cxcl8,MUC2\nann,1,1\n")
    words = ["score", "tests/data/bundle_tiny", str(tmp_path / "x.csv"), "--out", str(tmp_path / "p.csv")]
    ran = CliRunner().invoke(app, [*words, "--drop-missing"])
    assert isinstance(ran.exception, CohortError)
    assert "column cxcl8: found another name than the bundle has; expected CXCL8" in str(ran.exception)
    assert not (tmp_path / "p.csv").exists()


def test_how_many_entities_hold_is_refused_for_a_single_entity(bundle_tiny):
    X = pd.DataFrame({"CXCL8": [1]}, index=["ann"])
    with pytest.raises(PlannerError, match=r"holds: found 'one'; expected none for a bundle with one entity"):
        afa.predict_proba(bundle_tiny.restrict_entities(["bleeding"]), X, holds="one")
