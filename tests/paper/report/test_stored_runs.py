"""What a job asks of a cluster follows from what stored runs took, and grows from attempt to attempt."""

import json
from pathlib import Path

import pandas as pd
import pytest

from afa.errors import ReportError
from afa.paper.report import benchmarks
from afa.paper.report.benchmarks import Need, read_needs, read_stored, store_run

HEADER = "rule,jobs,seconds,longest_seconds,max_rss_mb,patients\n"


def test_memory_is_the_measured_with_a_margin_and_what_the_workflow_itself_takes() -> None:
    assert Need(max_rss_mb=500, longest_seconds=0).mem_mb(1) == 1500  # 600 + 1.5 x 500 = 1350, in steps of 250


def test_time_is_ten_times_the_measured_in_whole_minutes_and_at_least_ten() -> None:
    assert Need(0, longest_seconds=20).runtime(1) == 10
    assert Need(0, longest_seconds=121).runtime(1) == 21


@pytest.mark.parametrize(("attempt", "times"), [(2, 2), (3, 4)])
def test_each_attempt_asks_for_twice_as_much_as_the_one_before(attempt: int, times: int) -> None:
    need = Need(max_rss_mb=600, longest_seconds=600)  # 1500 MB, 100 minutes
    assert need.mem_mb(attempt) == times * need.mem_mb(1)
    assert need.runtime(attempt) == times * need.runtime(1)


def test_a_rule_needs_what_it_took_in_the_largest_of_all_stored_runs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "sign,1,2.0,2.0,900.0,10\nonly_here,1,1.0,1.0,50.0,10\n")
    (tmp_path / "b.csv").write_text(HEADER + "sign,1,7.0,7.0,100.0,10\n")
    assert read_needs(tmp_path) == {"sign": Need(900, 7), "only_here": Need(50, 1)}


def test_a_job_too_short_to_be_measured_needs_nothing_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "sign,1,0.0,0.0,,10\n")
    assert read_needs(tmp_path) == {"sign": Need(0, 0)}


@pytest.mark.parametrize(
    "text",
    [
        "rule,jobs\nsign,1\n",
        "",
        HEADER + "sign,1,2.0,soon,900.0,10\n",
        HEADER.replace(",patients", "") + "sign,1,2.0,2.0,900.0\n",
    ],
)
def test_a_file_that_is_no_stored_run_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ReportError, match=r"a\.csv: found no stored run .* afa benchmarks"):
        read_needs(tmp_path)


def test_a_stored_run_has_the_name_and_the_patients_of_its_cohort(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(HEADER + "sign,1,2.0,2.0,900.0,135\n")
    assert {run.cohort: run.patients for run in read_stored(tmp_path)} == {"real": 135}
    assert read_stored(tmp_path / "nothing") == []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two rules, one in two shards, with a file of an earlier number of shards, on three patients."""
    folder = tmp_path / "results/mine"
    for job, seconds in {
        "sign": 3.0,
        "gauge_shard/1-of-2": 5.0,
        "gauge_shard/2-of-2": 4.0,
        "gauge_shard/1-of-1": 99,
    }.items():
        path = folder / "benchmarks" / f"{job}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"s\tmax_rss\tcpu_time\n{seconds}\t300.0\t1.0\n")
    (folder / "config.json").write_text(json.dumps({"shards": 2}))
    patients = type("Cohort", (), {"patients": ["a", "b", "c"]})
    monkeypatch.setattr(benchmarks, "load_cohort", lambda _: patients)
    return folder


def test_a_stored_run_has_a_row_for_each_rule_of_this_number_of_shards(run: Path, tmp_path: Path) -> None:
    store_run(run, tmp_path / "stored/mine.csv")
    kept = pd.read_csv(tmp_path / "stored/mine.csv")
    assert kept.values.tolist() == [["gauge_shard", 2, 9.0, 5.0, 300.0, 3], ["sign", 1, 3.0, 3.0, 300.0, 3]]
    assert read_needs(tmp_path / "stored") == {"gauge_shard": Need(300, 5), "sign": Need(300, 3)}


def test_a_folder_that_is_no_run_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="run it first"):
        store_run(tmp_path, tmp_path / "stored.csv")
    assert not (tmp_path / "stored.csv").exists()
