"""The demo cohort: what is simulated, and the files it is written as."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from afa.cohort.build import build_cohort
from afa.cohort.config import CohortConfig, SimulationConfig, load_cohort_config, simulation_config
from afa.cohort.geo import fetch, read_samples
from afa.cohort.simulate import SimulatedCohort, simulate_cohort, write_geo_layout
from afa.errors import ConfigError
from afa.model.bundle import Bundle, load_bundle, write_bundle

DEMO = Path(__file__).parents[2] / "config" / "cohorts" / "demo.yaml"
ENTITIES = ("inflamed", "bleeding", "stiff")
MakeBundle = Callable[..., Bundle]


@pytest.fixture(scope="module")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """A bundle of entities with `per_entity` genes of their own, signs by turns, and `shared` genes that all name."""

    def make(entities: tuple[str, ...] = ENTITIES, per_entity: int = 10, shared: int = 0) -> Bundle:
        rows = [(name, f"{name}_{i}", (-1) ** i) for name in entities for i in range(per_entity)]
        rows += [(name, f"SHARED{i}", (-1) ** i) for name in entities for i in range(shared)]
        path = tmp_path_factory.mktemp("bundles") / "bundle"
        write_bundle(
            path,
            name="small",
            version="1",
            entities=entities,
            features=sorted({feature for _, feature, _ in rows}),
            unary=pd.DataFrame(rows, columns=["entity", "feature", "potential"]),
            pairwise=pd.DataFrame(columns=["entity", "feature_a", "feature_b", "potential"]),
        )
        return load_bundle(path)

    return make


@pytest.fixture(scope="module")
def demo_config() -> CohortConfig:
    return load_cohort_config(DEMO)


@pytest.fixture(scope="module")
def demo_bundle(demo_config: CohortConfig, make_bundle: MakeBundle) -> Bundle:
    return make_bundle(tuple(demo_config.labels), per_entity=6, shared=12)


@pytest.fixture(scope="module")
def demo(demo_config: CohortConfig, demo_bundle: Bundle) -> SimulatedCohort:
    return simulate_cohort(simulation_config(demo_config), demo_bundle)


@pytest.fixture(scope="module")
def many(demo_config: CohortConfig, demo_bundle: Bundle) -> SimulatedCohort:
    """The demo's parameters with so many patients that sampling error is small."""
    changes = {"n_patients": 4000, "n_controls": 100, "n_background_genes": 300}
    return simulate_cohort(simulation_config(demo_config).model_copy(update=changes), demo_bundle)


@pytest.fixture(scope="module")
def small() -> SimulationConfig:
    return SimulationConfig(
        seed=1,
        n_patients=20,
        n_controls=8,
        n_background_genes=30,
        prevalences=dict.fromkeys(ENTITIES, 0.4),
        factors={"inflammation": {"inflamed": 0.8}},
    )


def patients(cohort: SimulatedCohort) -> pd.Index:
    return cohort.truth.people.index[cohort.truth.people["diagnosis"] == "IBD"]


def log2_cpm(cohort: SimulatedCohort) -> pd.DataFrame:
    return np.log2(cohort.counts / cohort.counts.sum() * 1e6 + 1)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_demo_config_states_every_parameter_and_a_label_rule_for_every_prevalence(demo_config):
    assert set(demo_config.simulation or {}) == set(SimulationConfig.model_fields)
    assert set(demo_config.labels) == set(simulation_config(demo_config).prevalences)
    assert {rule.key for rule in demo_config.labels.values()} == {f"phenotype_{name}" for name in demo_config.labels}


def test_the_demo_has_the_stated_size(demo, demo_bundle):
    assert demo.counts.shape == (len(demo_bundle.features) + 5000, 167 + 60)
    assert demo.counts.to_numpy().dtype == np.int64
    assert (demo.counts.to_numpy() >= 0).all()
    assert demo.samples["diagnosis"].value_counts().to_dict() == {"IBD": 167, "Control": 60}


def test_library_size_does_not_carry_any_phenotype(many):
    log_size = np.log(many.counts.sum()[patients(many)])
    labels = many.truth.labels.loc[patients(many)]
    correlation = labels.corrwith(log_size)
    assert (correlation.abs() < 4 / np.sqrt(len(log_size))).all()


def test_library_size_does_not_carry_the_diagnosis_or_the_severity(many):
    log_size = np.log(many.truth.people["library_size"])
    is_patient = many.truth.people["diagnosis"] == "IBD"
    standard_error = log_size.std() * np.sqrt(1 / is_patient.sum() + 1 / (~is_patient).sum())
    assert abs(log_size[is_patient].mean() - log_size[~is_patient].mean()) < 4 * standard_error
    assert abs(log_size[is_patient].corr(many.truth.people["severity"][is_patient])) < 4 / np.sqrt(is_patient.sum())


def test_library_sizes_spread_as_stated(many):
    log_size = np.log(many.truth.people["library_size"])
    assert log_size.std() == pytest.approx(many.config.library_size_spread, rel=0.1)
    assert np.exp(log_size.median()) == pytest.approx(many.config.library_size_median, rel=0.05)


def test_prevalences_are_met_within_sampling_error(many):
    labels = many.truth.labels.loc[patients(many)]
    for name, prevalence in many.config.prevalences.items():
        low, high = binom.interval(1 - 1e-5, len(labels), prevalence)
        assert low <= labels[name].sum() <= high, name


def test_activity_labels_occur_together(many):
    labels = many.truth.labels.loc[patients(many)]
    activity = ["endoscopic_activity", "histologic_activity", "clinical_activity", "elevated_calprotectin"]
    correlation = labels[activity].corr().to_numpy()
    assert (correlation[np.triu_indices(4, 1)] > 0.2).all()
    assert labels["arthropathy"].corr(labels["skin_manifestation"]) > 0.05
    assert labels["ileal_involvement"].corr(labels["extensive_colitis"]) < 0


def test_severity_is_higher_in_patients_with_active_disease(many):
    people, labels = many.truth.people.loc[patients(many)], many.truth.labels.loc[patients(many)]
    mean = people["severity"].groupby(labels["endoscopic_activity"]).mean()
    assert mean[1] > mean[0] + 0.3


@pytest.mark.parametrize("flipped_share", [0.0, 0.25, 0.6])
def test_the_share_of_flipped_signs_is_the_stated_one(flipped_share, small, make_bundle):
    bundle = make_bundle(per_entity=40)
    config = small.model_copy(update={"flipped_share": flipped_share, "null_share": 0.1})
    effects = simulate_cohort(config, bundle).truth.effects
    agreement = np.sign(effects["effect"]) * np.sign(effects["potential"])
    assert (agreement == -1).sum() == round(flipped_share * len(effects))
    assert (agreement == 0).sum() == round(0.1 * len(effects))
    assert (effects.loc[agreement == -1, "kind"] == "flipped").all()
    assert (effects.loc[agreement == 0, "kind"] == "no_effect").all()


def test_effects_point_the_way_the_truth_says(small, make_bundle):
    config = small.model_copy(
        update={"n_patients": 1500, "n_background_genes": 400, "factors": {}, "inflamed_sd_bundle": 0.0}
    )
    cohort = simulate_cohort(config, make_bundle())
    expression = log2_cpm(cohort)[patients(cohort)]
    expression -= expression[expression.index.str.startswith("BG")].mean()
    truth = cohort.truth.effects
    seen = []
    for entity, feature in zip(truth["entity"], truth["feature"], strict=True):
        has = cohort.truth.labels.loc[patients(cohort), entity] == 1
        seen.append(expression.loc[feature, has].mean() - expression.loc[feature, ~has].mean())
    strong = truth["effect"].abs() > 0.2
    assert set(truth.loc[strong, "kind"]) == {"agrees", "flipped"}
    assert (np.sign(seen) == np.sign(truth["effect"]))[strong].all()
    np.testing.assert_allclose(seen, truth["effect"], atol=0.2)


def test_controls_carry_no_phenotype_effect(small, make_bundle):
    config = small.model_copy(
        update={
            "n_patients": 1000,
            "n_controls": 1000,
            "n_background_genes": 400,
            "severity_mean": 0.0,
            "severity_sd": 0.0,
        }
    )
    cohort = simulate_cohort(config, make_bundle(("inflamed",)))
    expression = log2_cpm(cohort)
    expression = expression - expression[expression.index.str.startswith("BG")].mean()
    is_patient = cohort.truth.people["diagnosis"] == "IBD"
    has = cohort.truth.labels["inflamed"] == 1
    assert not has[~is_patient].any()
    named = cohort.truth.effects.set_index("feature")["effect"]
    without = (expression.loc[:, is_patient & ~has].mean(axis=1) - expression.loc[:, ~is_patient].mean(axis=1))[
        named.index
    ]
    within = (expression.loc[:, has].mean(axis=1) - expression.loc[:, ~is_patient].mean(axis=1))[named.index]
    assert without.abs().max() < 0.15
    assert within[named.abs() > 0.3].abs().min() > 0.15


def test_inflammation_moves_patients_away_from_controls_as_its_loadings_say(demo):
    expression = log2_cpm(demo)
    background = expression.index.str.startswith("BG")
    controls = demo.counts.columns.difference(patients(demo))
    change = (expression[patients(demo)].mean(axis=1) - expression[controls].mean(axis=1))[background]
    loading = demo.truth.genes["inflammation"].reindex(expression.index)[background]
    assert np.corrcoef(change, loading)[0, 1] > 0.9
    assert loading.ne(0).mean() == pytest.approx(0.4, abs=0.03)


def test_counts_disperse_as_those_of_real_biopsies(demo):
    """Squared variation coefficient of frequent genes in controls: medians 0.035 and 0.09 in two real series."""
    controls = demo.counts.columns.difference(patients(demo))
    scaled = demo.counts[controls] / demo.counts[controls].sum() * demo.config.library_size_median
    mean, variance = scaled.mean(axis=1), scaled.var(axis=1)
    dispersion = (variance - mean) / mean**2
    assert 0.03 < dispersion[mean > 500].median() < 0.2
    assert dispersion[mean.between(5, 20)].median() > 1.5 * dispersion[mean > 500].median()
    assert 1.5 < np.log2(mean[mean > 0]).std() < 2.5


def test_a_change_of_one_thing_does_not_reshuffle_the_others(small, make_bundle):
    bundle = make_bundle()
    before = simulate_cohort(small, bundle).truth
    after = simulate_cohort(
        small.model_copy(update={"flipped_share": 0.5, "n_background_genes": 60, "effect_median": 1.0}), bundle
    ).truth
    pd.testing.assert_frame_equal(before.labels, after.labels)
    kept = ["severity", "composition", "depth", "accession"]
    pd.testing.assert_frame_equal(before.people[kept], after.people[kept])
    sizes = [truth.effects["effect"].abs() for truth in (before, after)]
    moving = (sizes[0] > 0) & (sizes[1] > 0)
    np.testing.assert_allclose(2 * sizes[0][moving], sizes[1][moving])


def test_another_entity_leaves_the_labels_of_the_first_ones(small, make_bundle):
    longer = small.model_copy(update={"default_prevalence": 0.3})
    before = simulate_cohort(small, make_bundle()).truth.labels
    after = simulate_cohort(longer, make_bundle(("new", *ENTITIES))).truth.labels
    pd.testing.assert_frame_equal(before, after[before.columns])


def test_the_demo_parameters_serve_another_bundle(demo_config, make_bundle):
    config = simulation_config(demo_config).model_copy(update={"n_background_genes": 100})
    cohort = simulate_cohort(config, make_bundle())
    assert {f"phenotype_{name}" for name in (*ENTITIES, *demo_config.labels)} <= set(cohort.samples.columns)


def test_a_feature_named_like_a_background_gene_stays_one_row(small, tmp_path):
    write_bundle(
        tmp_path / "bundle",
        name="clash",
        version="1",
        entities=["inflamed"],
        features=["BG00002"],
        unary=pd.DataFrame([("inflamed", "BG00002", 1)], columns=["entity", "feature", "potential"]),
        pairwise=pd.DataFrame(columns=["entity", "feature_a", "feature_b", "potential"]),
    )
    counts = simulate_cohort(small, load_bundle(tmp_path / "bundle")).counts
    assert counts.index.is_unique
    assert len(counts) == 1 + small.n_background_genes


def test_an_entity_without_a_prevalence_is_refused_by_name(small, make_bundle):
    with pytest.raises(ConfigError, match=r"prevalences\.unheard: found nothing"):
        simulate_cohort(small, make_bundle((*ENTITIES, "unheard")))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"flipped_share": 0.7, "null_share": 0.4}, "must not exceed 1 together"),
        ({"flipped_shares": 0.1}, "rename it to flipped_share"),
        ({"prevalences": {"inflamed": 1.2}}, "less than 1"),
        ({"factors": {"f": {"inflamed": 0.8}, "g": {"inflamed": 0.8}}}, "squared loadings of inflamed"),
        ({"factors": {"f": {"inflammed": 0.8}}}, "without a prevalence: inflammed"),
        ({"effect_strengths": {"inflammed": 2}}, "without a prevalence: inflammed"),
    ],
)
def test_impossible_parameters_are_refused(wrong, message, demo_config):
    simulation = {"seed": 1, "prevalences": {"inflamed": 0.4}} | wrong
    with pytest.raises(ConfigError, match=message):
        simulation_config(demo_config.model_copy(update={"simulation": simulation}))


def test_a_cohort_without_simulation_parameters_is_refused(demo_config):
    with pytest.raises(ConfigError, match="cohort demo, simulation: found nothing"):
        simulation_config(demo_config.model_copy(update={"simulation": None}))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(small, make_bundle, demo_config, tmp_path):
    bundle = make_bundle()
    for folder, seed in (("first", 1), ("again", 1), ("other", 2)):
        cohort = simulate_cohort(small.model_copy(update={"seed": seed}), bundle)
        write_geo_layout(cohort, demo_config, tmp_path / folder)
    first, again, other = (bytes_of(tmp_path / folder) for folder in ("first", "again", "other"))
    assert first == again
    assert set(first) == set(other)
    assert all(first[name] != other[name] for name in first)


@pytest.fixture(scope="module")
def written(demo, demo_config, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "mirror"
    write_geo_layout(demo, demo_config, folder)
    return folder / "series" / "GSE000nnn" / "GSE000000"


def test_the_count_matrix_is_written_as_by_write_table(written, demo):
    path = written / "suppl" / "GSE000000_counts.txt.gz"
    with gzip.open(path, "rt") as stream:
        header, first = (next(stream).rstrip("\n").split(" ") for _ in range(2))
    assert len(header) == 227
    assert len(first) == 228
    assert all(field.startswith('"') and field.endswith('"') for field in [*header, first[0]])
    assert first[1].isdigit()
    read = pd.read_csv(path, sep=" ", index_col=0)
    assert (read.to_numpy() == demo.counts.to_numpy()).all()
    assert list(read.index) == list(demo.counts.index)
    assert list(read.columns) == list(demo.counts.columns)


def test_the_columns_are_the_titles_before_the_comma_out_of_accession_order(written, demo):
    columns = list(pd.read_csv(written / "suppl" / "GSE000000_counts.txt.gz", sep=" ", index_col=0, nrows=1).columns)
    by_accession = [title.partition(",")[0] for title in demo.samples["title"]]
    assert sorted(columns) == sorted(by_accession)
    assert columns != by_accession


def test_the_family_file_has_a_part_for_each_sample_and_lists_them_and_the_counts(written, demo):
    with gzip.open(written / "soft" / "GSE000000_family.soft.gz", "rt") as stream:
        lines = [tuple(line.rstrip("\n").split(" = ", 1)) for line in stream]
    accessions = list(demo.samples.index)
    assert [value for key, value in lines if key == "^SAMPLE"] == accessions
    assert [value for key, value in lines if key == "!Series_sample_id"] == accessions
    assert ("!Series_supplementary_file", "GSE000000_counts.txt.gz") in lines
    keys = [value.partition(": ")[0] for key, value in lines if key == "!Sample_characteristics_ch1"]
    assert keys == [*demo.samples.columns[1:]] * 227


def test_controls_answer_na_and_patients_yes_or_no_as_in_the_truth(demo):
    labels = demo.truth.labels.set_axis(demo.truth.people["accession"]).reindex(demo.samples.index)
    is_patient = demo.samples["diagnosis"] == "IBD"
    for name in labels.columns:
        answers = demo.samples[f"phenotype_{name}"]
        assert set(answers[~is_patient]) == {"NA"}
        assert (answers[is_patient] == labels.loc[is_patient, name].map({1: "yes", 0: "no"})).all()


@pytest.mark.parametrize("name", ["soft/GSE000000_family.soft.gz", "matrix/GSE000000_series_matrix.txt.gz"])
def test_either_file_of_geo_gives_the_sample_table_back(demo, demo_config, tmp_path, name):
    config = demo_config.model_copy(update={"metadata_file": name.partition("/")[2]})
    write_geo_layout(demo, config, tmp_path / "out")
    source = fetch(config, cache=tmp_path, mirror=tmp_path / "out")
    assert source.metadata.path.as_posix().endswith(f"GSE000000/{name}")
    samples = read_samples(source)
    assert list(samples.index) == list(demo.samples.index)
    for key in demo.samples.columns:
        assert (samples[key].replace("", "NA") == demo.samples[key]).all(), key


def test_the_written_series_passes_through_the_code_for_real_ones(written, demo, demo_config, demo_bundle, tmp_path):
    source = fetch(demo_config, cache=tmp_path, mirror=written.parents[2])
    cohort = build_cohort(demo_config, source, demo_bundle.features, demo_bundle.entities)
    truth = demo.truth.labels.set_axis(demo.truth.people["accession"])
    assert len(cohort.patients) == 167
    assert (cohort.labels == truth.reindex(list(cohort.patients))[cohort.labels.columns]).all(axis=None)
    assert cohort.features == demo_bundle.features
    change = pd.Series(np.mean(cohort.values, axis=0), index=list(cohort.features))
    loading = demo.truth.genes["inflammation"][change.index]
    strong = loading.abs() > 0.8
    assert (np.sign(change) == np.sign(loading))[strong].mean() > 0.9


def test_the_truth_lies_beside_the_series(written, demo):
    truth = written.parents[2] / "truth"
    effects = pd.read_csv(truth / "effects.csv")
    assert (effects["kind"] == demo.truth.effects["kind"]).all()
    np.testing.assert_allclose(effects["effect"], demo.truth.effects["effect"], rtol=1e-8)
    assert SimulationConfig.model_validate_json((truth / "simulation.json").read_text()) == demo.config


def test_a_mirror_of_real_series_is_not_overwritten(small, make_bundle, demo_config, tmp_path):
    real = tmp_path / "series" / "GSE117nnn" / "GSE117993" / "a.txt"
    real.parent.mkdir(parents=True)
    real.write_text("real")
    with pytest.raises(ConfigError, match="GSE117993"):
        write_geo_layout(simulate_cohort(small, make_bundle()), demo_config, tmp_path)
    assert real.read_text() == "real"
