"""Planners on implications: what is implied is never asked and is no evidence; the gain is over entities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import afa

from afa import TopKPlanner
from afa.bundle import Bundle, load_bundle
from afa.errors import BundleError, PlannerError
from afa.inference.answers import Answers
from afa.inference.hierarchy import hierarchy_of
from afa.planner import BinaryPlanner, Stop
from afa.session import load_session, save_session

UNARY = """entity,feature,potential,p_high_with
flu,fever,,0.9
flu,high fever,,0.5
cold,running nose,,0.8
cold,fever,,0.2
measles,rash,,0.9
measles,spots,,0.8
measles,high fever,,0.6
"""
FEATURES = """feature,kind,p_low,p_high
high fever,binary,0,0.1
fever,binary,0,0.3
running nose,binary,0,0.2
spots,binary,0,0.05
rash,binary,0,0.1
"""
IMPLIES = "feature,parent\nhigh fever,fever\nspots,rash\n"


def written(folder: Path, **changes: str) -> Path:
    folder.mkdir()
    header = "name: fevers\nversion: '1'\nholds: one\nprobability_floor: 0.001\n"
    files = {"bundle": header, "unary": UNARY, "features": FEATURES, "implies": IMPLIES} | changes
    files |= {"pairwise": files.get("pairwise", "entity,feature_a,feature_b,potential\n")}
    for name, text in files.items():
        (folder / f"{name}.{'yaml' if name == 'bundle' else 'csv'}").write_text(text)
    return folder


@pytest.fixture
def fevers(tmp_path: Path) -> Bundle:
    return load_bundle(written(tmp_path / "fevers"))


def test_posterior_and_gain_are_those_of_the_answers(fevers: Bundle) -> None:
    planner = TopKPlanner(fevers)
    known, place = hierarchy_of(fevers)
    assert (planner.gain, planner.holds) == ("information", "one")
    planner.observe_all({"rash": 1, "high fever": 0})
    at = {name: int(place[j]) for j, name in enumerate(fevers.features)}
    answers = Answers.of(known, [at["rash"]], [at["high fever"]])
    np.testing.assert_allclose(planner.posterior(), answers.posterior)
    open_ = ["fever", "running nose", "spots"]
    told = answers.information([at[name] for name in open_])
    table = planner.explain().set_index("feature")["gain"]
    np.testing.assert_allclose(table[open_], told)
    assert planner.next_feature() == open_[int(np.argmax(told))]
    assert planner.top_k() == [fevers.entities[int(np.argmax(answers.posterior))]]
    assert not planner.certain()


def test_what_is_implied_is_no_evidence_and_is_never_asked(fevers: Bundle) -> None:
    planner = TopKPlanner(fevers)
    planner.observe("spots", 1)
    before = planner.posterior()
    asked = []
    while item := planner.suggest():
        asked += item.features
        planner.observe(item.features[0], 0)
    assert "rash" not in asked
    assert set(asked) <= {"fever", "high fever", "running nose"}
    if "fever" in asked:
        assert "high fever" not in asked[asked.index("fever") :], "its absence is implied"
    assert planner.reason == "every feature has been observed"
    again = TopKPlanner(fevers)
    again.observe_all({"rash": 1, "spots": 1})
    np.testing.assert_allclose(again.posterior(), before)


def test_answers_that_contradict_each_other_are_refused(fevers: Bundle) -> None:
    planner = TopKPlanner(fevers)
    planner.observe("spots", 1)
    with pytest.raises(PlannerError, match=r"(spots at 1 and rash at 0|rash at 0 and spots at 1)"):
        planner.observe("rash", 0)
    assert planner.observed == {"spots": 1}
    planner.correct("spots", 0)
    planner.observe("rash", 1)
    assert set(planner.observed) == {"spots", "rash"}


def test_costs_panels_and_stopping(fevers: Bundle) -> None:
    cheap = TopKPlanner(fevers, costs={name: 1000.0 for name in fevers.features if name != "running nose"})
    assert cheap.next_feature() == "running nose"
    panel = TopKPlanner(fevers, panels={"skin": ["rash", "spots"]}, first=["skin"])
    assert panel.suggest().features == ("spots", "rash")
    assert TopKPlanner(fevers, stop=Stop(gain=10.0)).suggest() is None
    drawn = TopKPlanner(fevers, allocation="random")
    assert drawn.next_feature() in fevers.features
    assert [item.name for item in TopKPlanner(fevers).runners_up()]


def test_a_session_comes_back(fevers: Bundle, tmp_path: Path) -> None:
    planner = TopKPlanner(fevers, tau=0.5)
    planner.observe("fever", 1)
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", fevers)
    np.testing.assert_allclose(again.posterior(), planner.posterior())
    assert again.suggest() == planner.suggest()
    assert again.outcomes("rash")["value"].tolist() == [0, 1]


def test_ranks_and_ties(fevers: Bundle) -> None:
    planner = TopKPlanner(fevers)
    assert planner.undecided() == sorted(fevers.entities)
    assert planner.wins().tolist() == [1.0, 1.0, 1.0]
    planner.observe("rash", 1)
    assert planner.ranking()[0] == "measles"
    assert planner.wins()[fevers.entities.index("measles")] == 2.0
    assert planner.boundary_probability() > 0.5
    assert planner.resolved() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gain": "cmi"}, "gain 'cmi'"),
        ({"holds": "several"}, "holds 'several'"),
        ({"coupling": "differential"}, "differential with implications"),
        ({"allocation": "greedy"}, "'greedy' with gain 'information'"),
    ],
)
def test_what_needs_duels_is_refused(fevers: Bundle, options: dict[str, str], words: str) -> None:
    with pytest.raises(PlannerError, match=words):
        TopKPlanner(fevers, **options)


def test_one_entity_and_bundles_that_do_not_fit_are_refused(fevers: Bundle, tmp_path: Path) -> None:
    with pytest.raises(PlannerError, match="entity flu"):
        BinaryPlanner(fevers, entity="flu")
    couplings = "entity,feature_a,feature_b,potential\nflu,fever,rash,1\n"
    with pytest.raises(BundleError, match="couplings"):
        TopKPlanner(load_bundle(written(tmp_path / "coupled", pairwise=couplings)))


@pytest.mark.parametrize(
    "command",
    [("stage", "binary", "--cohort", "cohort")],
)
def test_experiments_leave_such_a_bundle_alone(command: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = afa(*command, "--bundle", written(tmp_path / "fevers"), "--out", out)
    assert refused.returncode == 2
    assert "implications (implies.csv)" in refused.stderr
    assert "leave the file out" in refused.stderr
    assert not out.exists()


def test_information_of_the_papers_models_is_the_sum_over_entities() -> None:
    planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), gain="information", costs="equal")
    planner.observe("MUC2", -1)
    view = planner._view()
    w = planner.posterior()
    state = planner._state
    predictive = np.full((len(w), len(planner.bundle.features), 3), 1 / 3)
    m, q = state.state.m, state.state.q
    predictive[state.packed.owner, state.packed.feature] = np.stack([(q - m) / 2, 1 - q, (q + m) / 2], axis=-1)
    mixed = np.einsum("v,vfs->fs", w, predictive)
    open_ = ~state.state.observed
    parts = predictive[:, open_] * np.log(predictive[:, open_] / mixed[open_])
    told = np.zeros(len(open_))
    told[open_] = np.einsum("v,vfs->f", w, parts)
    np.testing.assert_allclose(view.information(), told, atol=1e-9)
    chosen = planner.bundle.features.index(planner.next_feature())
    assert told[chosen] == pytest.approx(told.max())


def test_of_two_entities_information_is_the_duels_own(tmp_path: Path) -> None:
    unary = "".join(UNARY.splitlines(keepends=True)[:5])
    folder = written(tmp_path / "two", unary=unary)
    (folder / "implies.csv").unlink()
    bundle = load_bundle(folder)
    by_entity, by_duel = (TopKPlanner(bundle, gain=gain) for gain in ("information", "cmi"))
    duel = by_duel._state.gains(np.array([True]))[0]
    np.testing.assert_allclose(by_entity._view().information(), duel, atol=1e-12)
    one_by_one = TopKPlanner(bundle, gain="information", holds="several")
    np.testing.assert_allclose(
        one_by_one._view().information(), TopKPlanner(bundle, holds="several")._state.gains(np.array([True]))[0]
    )


def test_the_command_takes_a_phenopacket(tmp_path: Path) -> None:
    aliases = "feature,alias\nspots,HP:0000001\nrash,HP:0000002\nfever,HP:0000003\n"
    folder = written(tmp_path / "fevers", aliases=aliases)
    packet = tmp_path / "p.json"
    signs = [{"type": {"id": f"HP:000000{n}"}, "excluded": n != 1} for n in (1, 2, 3, 9)]
    document = {"id": "p", "phenotypicFeatures": signs, "diseases": [{"term": {"id": "measles"}}]}
    packet.write_text(json.dumps(document))
    found = afa("plan", folder, "--json", "--phenopacket", packet)
    assert '"observed": 2' in found.stdout
    assert "not in the bundle: HP:0000009" in found.stderr
    assert "excluded, but implied by what is seen: rash" in found.stderr
    made = afa("simulate", folder, packet, "--out", tmp_path / "made")
    assert made.returncode == 0, made.stderr
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"full.parquet", "walks.parquet", "summary.csv"}
    refused = afa("simulate", folder, packet, "--out", tmp_path / "no", "--k", "1")
    assert (refused.returncode, "--k" in refused.stderr) == (2, True)
