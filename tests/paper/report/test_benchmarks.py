"""Benchmarks of a run: one row per job, sums by rule, nothing of an earlier number of shards."""

import subprocess
import sys
from pathlib import Path

import pytest

from afa.errors import ReportError
from afa.paper.report.benchmarks import by_rule, read_jobs

JOB = Path(__file__).parents[3] / "workflow/scripts/job.sh"


def measured(folder, name, seconds, memory, processor):
    path = folder / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:01\t{memory}\t{processor}\n")


def test_a_job_is_its_rule_and_its_wildcards(tmp_path):
    measured(tmp_path, "summary", 1.5, 200.0, 1.0)
    measured(tmp_path, "shard/cmi/2-of-2", 4.0, 300.0, 3.5)
    jobs = read_jobs(tmp_path)
    assert jobs[["rule", "job"]].to_numpy().tolist() == [["shard", "cmi/2-of-2"], ["summary", ""]]
    assert jobs["seconds"].tolist() == [4.0, 1.5]


def test_shards_of_another_number_are_left_out(tmp_path):
    measured(tmp_path, "shard/1-of-2", 1.0, 1.0, 1.0)
    measured(tmp_path, "shard/1-of-4", 9.0, 1.0, 1.0)
    measured(tmp_path, "summary", 1.0, 1.0, 1.0)
    assert read_jobs(tmp_path, shards=2)["job"].tolist() == ["1-of-2", ""]


def test_rules_have_sums_of_time_and_the_largest_memory_the_longest_first(tmp_path):
    measured(tmp_path, "summary", 3.0, 500.0, 1.0)
    measured(tmp_path, "shard/1-of-2", 1.0, 100.0, 0.5)
    measured(tmp_path, "shard/2-of-2", 4.0, 300.0, 3.5)
    rules = by_rule(read_jobs(tmp_path))
    assert rules.to_numpy().tolist() == [["shard", 2, 5.0, 4.0, 4.0, 300.0], ["summary", 1, 3.0, 3.0, 1.0, 500.0]]


def test_a_job_too_short_to_be_read_has_no_memory(tmp_path):
    measured(tmp_path, "quick", 0.01, "NA", "-")
    row = read_jobs(tmp_path).iloc[0]
    assert row["seconds"] == 0.01
    assert row[["max_rss_mb", "cpu_seconds"]].isna().all()


def test_processor_time_is_what_the_jobs_shell_wrote_where_it_did(tmp_path):
    measured(tmp_path, "shard/1-of-2", 20.0, 300.0, 3.5)
    (tmp_path / "shard/1-of-2.times").write_text("0m0.004s 0m0.001s\n1m2.500s 0m1.250s\n")
    assert read_jobs(tmp_path)["cpu_seconds"].tolist() == pytest.approx([63.755])


@pytest.mark.parametrize("times", ["", "soon", "0m1s 0m1s\n"])
def test_processor_time_that_cannot_be_read_is_named(tmp_path, times):
    measured(tmp_path, "odd", 1.0, 1.0, 1.0)
    (tmp_path / "odd.times").write_text(times)
    with pytest.raises(ReportError, match=r"odd.tsv: found no measurement"):
        read_jobs(tmp_path)


def test_the_shell_of_a_job_writes_the_processor_time_of_its_children(tmp_path):
    for name in ("logs", "benchmarks"):
        (tmp_path / f"r/{name}/shard").mkdir(parents=True)
    work = f"{sys.executable} -c 'sum(range(20_000_000))' > r/logs/shard/1-of-2.log 2>&1"
    subprocess.run(["bash", "-c", f"set -euo pipefail; source '{JOB}'; {work}"], cwd=tmp_path, check=True)
    measured(tmp_path / "r/benchmarks", "shard/1-of-2", 1.0, 1.0, 0.0)
    assert read_jobs(tmp_path / "r/benchmarks")["cpu_seconds"].item() > 0.1


@pytest.mark.parametrize("text", ["", "s\n", "s\tmax_rss\tcpu_time\nx\t1\t1\n", "other\n1\n"])
def test_a_file_that_is_no_benchmark_is_named(tmp_path, text):
    (tmp_path / "odd.tsv").write_text(text)
    with pytest.raises(ReportError, match=r"odd.tsv: found no measurement"):
        read_jobs(tmp_path)


def test_a_run_without_benchmarks_is_named(tmp_path):
    with pytest.raises(ReportError, match="no such folder"):
        read_jobs(tmp_path / "benchmarks")
