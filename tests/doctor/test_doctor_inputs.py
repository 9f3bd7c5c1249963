"""Checks of the bundle, the cohort's file, what an earlier run left, and the series behind a cohort."""

import gzip
import shutil
from pathlib import Path

import pytest
import yaml
from cohort.geo_layout import config, put, series_matrix
from doctored import gathered, listed

from afa.bundle import load_bundle, save_bundle
from afa.cohort.geo import GEO_URL, fetch, places, series_folder
from afa.config import carried_extract, check_run_config
from afa.doctor import checks

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"
GSM = [f"GSM{number}" for number in range(1, 26)]
GROUPS = ["diagnosis: Control"] * 20 + ["diagnosis: UC"] * 5
SCORES = ["score: "] * 20 + [f"score: {score}" for score in (0, 1, 2, 3, "NA")]
MATRIX = gzip.compress(series_matrix(GSM, GSM, [GROUPS, SCORES]).encode(), mtime=0)
VALUES = gzip.compress(b"gene\tGSM1\nA1\t1.5\n", mtime=0)
LABELS = {"bleeding": {"key": "score", "at_least": 2, "reason": "made up"}}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the project's own files, in which the test works."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def levels(findings):
    return [each.level for each in findings]


def words(findings, level="fault"):
    return " | ".join(each.found for each in findings if each.level == level)


def test_a_folder_with_a_snakefile_is_that_of_a_project(here):
    assert levels(listed(checks.check_project)) == ["ok"]


def test_a_folder_without_a_snakefile_is_a_fault(here):
    (here / "workflow/Snakefile").unlink()
    assert "no workflow/Snakefile" in words(listed(checks.check_project))


def test_a_locked_folder_is_a_warning(here):
    put(here / ".snakemake/locks/0.input.lock", b"")
    assert levels(listed(checks.check_project)) == ["ok", "warning"]


def test_the_recorded_bundle_has_the_entities_of_the_study(here, recorded_bundle):
    findings, entities = gathered(checks.check_bundle, check_run_config({}))
    assert levels(findings) == ["ok"]
    assert entities == recorded_bundle.entities


def test_every_fault_of_a_bundle_of_ones_own_is_a_finding(tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(TINY, folder)
    with (folder / "pairwise.csv").open("a") as table:
        table.write("bleeding,MUC2,MUC2,1,,\nbleeding,MUC2,CXCL8,high,,\n")
    findings, content = gathered(checks.check_bundle, check_run_config({"bundle": str(folder)}))
    assert levels(findings) == ["fault"] * len(findings)
    assert "pairwise.csv, line 6" in words(findings)
    assert "pairwise.csv, line 7" in words(findings)
    assert content is None


def test_a_bundle_of_ones_own_without_a_fault_is_described():
    findings, entities = gathered(checks.check_bundle, check_run_config({"bundle": str(TINY)}))
    assert "fault" not in levels(findings)
    assert "3 entities, 5 features" in words(findings, "ok")
    assert entities == load_bundle(TINY).entities


def test_a_bundle_of_one_entity_is_a_fault(tmp_path):
    save_bundle(load_bundle(TINY).restrict_entities(["bleeding"]), tmp_path / "one")
    findings, _ = gathered(checks.check_bundle, check_run_config({"bundle": str(tmp_path / "one")}))
    assert "one entity" in words(findings)


def test_every_cohort_of_the_project_has_a_sound_file(here):
    for path in (here / "config/cohorts").glob("*.yaml"):
        assert levels(gathered(checks.check_cohort_file, check_run_config({"cohort": path.stem}))[0]) == ["ok"]


def test_a_cohort_without_a_file_and_one_with_faults_are_faults(here):
    assert "'nowhere'" in words(gathered(checks.check_cohort_file, check_run_config({"cohort": "nowhere"}))[0])
    path = here / "config/cohorts/demo.yaml"
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "controls": {"key": "x"}, "titel": "y"}))
    findings, found = gathered(checks.check_cohort_file, check_run_config({"cohort": "demo"}))
    assert levels(findings) == ["fault", "fault"]
    assert found is None


def test_a_simulation_with_a_fault_is_found_before_it_is_simulated(here):
    path = here / "config/cohorts/demo.yaml"
    path.write_text(path.read_text().replace("n_patients: 167", "n_patients: none"))
    assert "simulation, key n_patients" in words(
        gathered(checks.check_cohort_file, check_run_config({"cohort": "demo"}))[0]
    )


@pytest.fixture
def mirror(tmp_path):
    """A mirror with GEO's own file of the samples and a joined one of the values."""
    folder = tmp_path / "mirror" / series_folder("GSE123456")
    put(folder / "matrix/GSE123456_series_matrix.txt.gz", MATRIX)
    put(folder / "suppl/GSE123456_TPM_matrix.txt.gz", VALUES)
    return tmp_path / "mirror"


def look(settings, mirror=None, cache=Path("nowhere"), entities=()):
    """The findings, what is to be fetched, and the number of patients."""
    places = {"geo_cache": str(cache)} | ({} if mirror is None else {"geo_mirror": str(mirror)})
    findings, (to_fetch, patients) = gathered(checks.check_series, settings, check_run_config(places), entities)
    return findings, to_fetch, patients


def test_a_whole_mirror_has_nothing_left_to_fetch(mirror):
    findings, to_fetch, _ = look(config(), mirror)
    assert levels(findings) == ["ok", "ok"]
    assert "whole" in findings[0].found
    assert to_fetch == ()


@pytest.mark.parametrize("metadata", ["GSE123456_series_matrix.txt.gz", "GSE123456_family.soft.gz"])
def test_files_are_looked_for_where_the_run_will_look(tmp_path, metadata):
    settings = config(metadata_file=metadata)
    samples, values = ([place.name for place in choices] for choices in places(settings))
    for chosen in ((samples[0], values[0]), (samples[1], values[1])):
        folder = tmp_path / chosen[0].replace("/", "_")
        for name in chosen:
            put(folder / series_folder("GSE123456") / name, b"\0" * 10240 if name.endswith(".tar") else MATRIX)
        source = fetch(settings, cache=tmp_path, mirror=folder)
        assert str(source.metadata.path).endswith(chosen[0])
        assert str(source.expression.path).endswith(chosen[1])


def test_a_mirror_that_is_not_there_is_a_fault(tmp_path):
    findings, *known = look(config(), tmp_path / "nowhere")
    assert "nowhere" in words(findings)
    assert known == [None, None]


def test_a_truncated_file_of_a_mirror_is_a_fault(mirror):
    path = next(mirror.rglob("*TPM*"))
    path.write_bytes(VALUES[:-4])
    assert "truncated" in words(look(config(), mirror)[0])


def test_without_a_mirror_what_the_cache_lacks_is_to_be_fetched(mirror, tmp_path):
    folder = series_folder("GSE123456")
    urls = (f"{GEO_URL}/{folder}/matrix/GSE123456_series_matrix.txt.gz", f"{GEO_URL}/{folder}/suppl/GSE123456_RAW.tar")
    assert look(config(), cache=tmp_path / "empty")[1] == urls
    assert look(config(), cache=mirror)[1] == urls[1:]
    put(mirror / folder / "suppl/GSE123456_RAW.tar", b"any")
    assert look(config(), cache=mirror)[1] == ()
    expression = {**config().expression.model_dump(), "sha256": "0" * 64}
    assert look(config(expression=expression), cache=mirror)[1] == urls[1:]


def test_a_simulated_series_needs_no_file_and_no_mirror(here, mirror):
    _, demo = gathered(checks.check_cohort_file, check_run_config({"cohort": "demo"}))
    assert levels(look(demo)[0]) == ["ok"]
    assert levels(look(demo, mirror)[0]) == ["ok"]
    assert look(demo, mirror)[1] == ()


def test_the_samples_are_selected_and_labelled_as_the_run_will(mirror):
    (_, found), _, patients = look(config(labels=LABELS), mirror, entities=["bleeding"])
    assert found.found == "5 patients and 20 controls of 25 samples; positive labels: bleeding 2 of 4"
    assert patients == 5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"patients": {"key": "disease", "values": ["UC"]}}, "no sample characteristic 'disease'"),
        ({"controls": {"key": "diagnosis", "values": ["Healthy"]}}, "'Healthy'"),
        ({"labels": {"bleeding": {"key": "mayo", "above": 1, "reason": "made up"}}}, "labels.bleeding"),
    ],
)
def test_a_cohort_file_that_does_not_fit_the_series_is_a_fault(mirror, changes, expected):
    settings = config(**{"labels": LABELS, **changes})
    findings, _, patients = look(settings, mirror, entities=["bleeding"])
    assert expected in words(findings)
    assert patients is None


def test_samples_that_are_still_to_be_fetched_are_no_fault(tmp_path):
    findings, _, patients = look(config(), cache=tmp_path)
    assert levels(findings) == ["ok", "ok"]
    assert "not at hand" in findings[1].found
    assert patients is None


def test_a_live_elicitation_tells_what_it_lacks_before_it_asks(here, monkeypatch):
    for name in ("AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    told = words(
        gathered(checks.check_bundle, check_run_config({"elicitation": {"live": True, "record": "nowhere"}}))[0],
        "warning",
    )
    assert "75 of 75 questions for genes are still to be asked" in told
    assert "AFA_LLM_API_KEY is not set" in told
    assert "no cap on calls, tokens or money is set" in told


def test_a_record_that_lacks_answers_is_a_fault(here):
    findings, content = gathered(checks.check_bundle, check_run_config({"elicitation": {"record": "nowhere"}}))
    assert levels(findings) == ["fault"]
    assert "nowhere, unary, run r1: found no answer to 75 of 75 questions (75 never asked)" in words(findings)
    assert content is None


def test_carried_answers_of_a_language_model_are_replayed_where_they_fit_and_else_nothing_is(here):
    for settings, words in (({"cohort": "demo"}, "300 answers, replayed"), ({"cohort": "gse117993"}, "off: not live")):
        (found,) = listed(checks.check_baselines, check_run_config(settings), ())
        assert found.level == "ok"
        assert words in found.found


def test_live_planning_tells_what_it_lacks_before_it_asks(here, monkeypatch):
    for name in ("AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY", "NCBI_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    told = words(listed(checks.check_baselines, check_run_config({"baselines": {"live": True}}), ()), "warning")
    assert all(f"{name} is not set" in told for name in ("AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"))
    assert "NCBI_EMAIL is not set" in told
    assert "no cap on calls, tokens or money is set" in told
    by_potentials = {"live": True, "methods": ["mrf_llm"], "model": "m", "calls": 1}
    told = words(listed(checks.check_baselines, check_run_config({"baselines": by_potentials}), ()), "warning")
    assert "NCBI_EMAIL" not in told
    assert "AFA_LLM_MODEL" not in told
    assert "no cap" not in told


def test_a_record_of_planning_without_answers_and_an_unknown_entity_are_faults(here):
    settings = {"baselines": {"record": "nowhere", "entities": ["nosuch"]}}
    findings = listed(checks.check_baselines, check_run_config(settings), ("bleeding",))
    assert levels(findings) == ["fault", "fault"]
    assert "nosuch, which the bundle has not" in words(findings)
    assert "nowhere: found no answer" in words(findings)


def test_a_carried_extract_has_nothing_left_to_fetch(here):
    run = check_run_config({"cohort": "gse109142"})
    _, settings = gathered(checks.check_cohort_file, run)
    findings, (to_fetch, patients) = gathered(checks.check_series, settings, run, ())
    assert levels(findings) == ["ok", "ok"]
    assert (to_fetch, patients) == ((), 206)
    assert carried_extract(check_run_config({"cohort": "gse109142", "source": "geo"}), settings.series) is None
