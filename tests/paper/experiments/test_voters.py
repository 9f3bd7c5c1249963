"""The bundle of each voter has that voter's answers and no other, and its numbers come from the same stages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cohorts import cohort_of

from afa.elicit.stages import all_stages, build_recorded_bundle, bundle_stage, of_one_voter, recorded_answers
from afa.elicit.tables import write_stage
from afa.errors import ElicitationError
from afa.model.study import load_study
from afa.paper.experiments import binary, chaos, gauge, voters
from afa.paper.experiments.base import check_tables, columns_of, with_declared_columns
from afa.paper.experiments.declared import STAGES
from afa.paper.experiments.settings import Bootstrap, Chaos, ClosureSettings, Gauge, Inference, RandomOrder

RECORDED = Path(__file__).parents[3] / "resources" / "elicitation"
PHENOTYPES = 6
SETTINGS = {"inference": Inference(), "chaos": Chaos(selecting_seeds=(0,), measuring_seeds=(1,))}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A copy of the recorded study with its first six phenotypes, enough to compare numbers in less time."""
    folder = tmp_path_factory.mktemp("study") / "of_six"
    shutil.copytree(RECORDED, folder, ignore=shutil.ignore_patterns("raw"))
    lines = (RECORDED / "phenotypes.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "phenotypes.csv").write_text("".join(lines[: 1 + PHENOTYPES]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def stages(study):
    asked = load_study(study)
    return all_stages(asked, recorded_answers(asked, study / "record"), None, min_agree=2)


@pytest.fixture(scope="module")
def consensus(study, tmp_path_factory):
    return build_recorded_bundle(study, tmp_path_factory.mktemp("made") / "bundle", min_agree=2)[0]


@pytest.fixture(scope="module")
def cohort(consensus):
    return cohort_of(consensus, np.random.default_rng(3).integers(-1, 2, (5, len(consensus.features))))


@pytest.fixture(scope="module")
def tables(tmp_path_factory, study, stages, consensus, cohort):
    folder = tmp_path_factory.mktemp("stages")
    for name in ("unary", "pairwise"):
        write_stage(folder / name, stages[name])
    return voters.run(
        cohort=cohort,
        bundle=consensus,
        study=study,
        unary=folder / "unary",
        pairwise=folder / "pairwise",
        random_order=RandomOrder(seeds=(0, 1)),
        top_k=5,
        closure=ClosureSettings(),
        bootstrap=Bootstrap(resamples=100),
        threads=1,
        **SETTINGS,
    )


def answers_of(voter, study):
    """(phenotype, gene) -> direction, as in the voter's own files, of the phenotypes of a study."""
    asked = load_study(study).phenotypes["phenotype"]
    files = [json.loads((RECORDED / f"raw/unary/{voter}/{name}.json").read_text(encoding="utf-8")) for name in asked]
    return {
        (file["phenotype"], gene["gene_symbol"]): gene["direction_in_disease"]
        for file in files
        for gene in file["genes"]
    }


@pytest.mark.parametrize("voter", ["r1", "r2", "r3"])
def test_a_bundle_has_every_answer_of_its_voter_and_no_other(tmp_path, study, stages, voter):
    made, _ = bundle_stage(*of_one_voter(load_study(study), stages, voter), tmp_path / "bundle", min_agree=1)
    unary = pd.read_csv(tmp_path / "bundle" / "unary.csv")
    found = {(row.entity, row.feature): row.potential for row in unary.itertuples()}
    assert found == {pair: 1 if word == "Upregulated" else -1 for pair, word in answers_of(voter, study).items()}
    pairs = pd.read_csv(tmp_path / "bundle" / "pairwise.csv")
    both = [{(row.entity, row.feature_a), (row.entity, row.feature_b)} <= found.keys() for row in pairs.itertuples()]
    assert len(pairs) > 300
    assert all(both)
    assert made.name == "recorded-1of1"


def test_a_voter_without_an_answer_is_an_error(study, stages):
    with pytest.raises(ElicitationError, match="no gene left"):
        of_one_voter(load_study(study), stages, "r9")


def test_the_counts_are_those_of_the_voters_files(study, tables, consensus):
    kept = {(entity, consensus.features[j]) for entity in consensus.entities for j in consensus.support(entity)}
    for row in tables["bundles"].itertuples():
        named_here = {pair for pair in answers_of(row.voter, study) if pair[1] in consensus.features}
        assert (row.pairs, row.shared) == (len(named_here), len(named_here & kept))
        assert row.features == len({gene for _, gene in named_here})


def test_the_numbers_are_those_of_the_stages_on_the_voters_bundle(tmp_path, study, stages, cohort, tables):
    made, _ = bundle_stage(*of_one_voter(load_study(study), stages, "r2"), tmp_path / "bundle", min_agree=1)
    made = made.restrict([name for name in made.features if name in cohort.features]).contrasts()
    people = voters.on_features(cohort, made.features)
    assert people.values[2].tolist() == [cohort.values[2][cohort.features.index(name)] for name in made.features]
    rows = chaos.summarise(chaos.run(made, people, range(5), **SETTINGS), bootstrap=Bootstrap(resamples=100))
    lead = {"metric": "gap", "reference": "linearity_minus_wald", "t": 2.0}
    own = tables["numbers"].query("voter == 'r2' and table == 'chaos_gap'").drop(columns="voter")

    def of(table):
        chosen = table[(table[list(lead)] == pd.Series(lead)).all(axis=1) & table["stratum"].isna()]
        return chosen[["value", "low", "high", "n"]].to_numpy().tolist()

    assert len(of(rows)) >= 1
    assert of(own) == of(rows)


def test_informed_orders_and_gauges_are_those_of_the_whole_stages(tmp_path, study, stages, cohort, tables):
    """Fewer orders and the first rounds alone leave the numbers that they have in common as they are."""
    made, _ = bundle_stage(*of_one_voter(load_study(study), stages, "r1"), tmp_path / "bundle", min_agree=1)
    made = made.restrict([name for name in made.features if name in cohort.features]).contrasts()
    people, bootstrap = voters.on_features(cohort, made.features), Bootstrap(resamples=100)
    whole = {
        "binary": binary.summarise(
            binary.run(
                made,
                people,
                random_order=RandomOrder(seeds=(0,)),
                inference=Inference(),
                closure=ClosureSettings(),
                threads=1,
            ),
            bootstrap=bootstrap,
        ),
        "gauge_agreement": gauge.summarise(
            gauge.run(made, people, range(5), gauge=Gauge(rounds=(10,)), inference=Inference(), threads=1),
            bootstrap=bootstrap,
        ),
    }
    numbers = tables["numbers"]
    for table, every in whole.items():
        own = numbers[(numbers["voter"] == "r1") & (numbers["table"] == table)].drop(columns="voter")
        keys = list(own.columns[: list(own.columns).index("value")])
        both = own.merge(every, on=keys, suffixes=("", "_whole"))
        assert len(both) == len(own) > 5
        assert both["value"].to_numpy() == pytest.approx(both["value_whole"].to_numpy(), nan_ok=True)
        assert both["low"].to_numpy() == pytest.approx(both["low_whole"].to_numpy(), nan_ok=True)


def test_every_voter_has_the_rows_of_the_effects_and_the_tables_are_as_declared(tables):
    numbers = tables["numbers"]
    assert numbers["voter"].unique().tolist() == ["r1", "r2", "r3"]
    per_voter = numbers.groupby("voter")["table"].unique().map(set)
    effects = {"sign_accuracy_random", "chaos_gap", "allocation_sign", "binary", "gauge_agreement"}
    assert all(effects <= found for found in per_voter)
    expected = columns_of("voters", STAGES["voters"].tables)
    check_tables("voters", with_declared_columns(tables, expected, cohort="made", bundle="b"), expected)
