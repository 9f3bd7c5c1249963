"""Estimates from stored runs, on tables worked by hand."""

import pandas as pd
import pytest

from afa.config import check_run_config
from afa.doctor import SPACE_MB, described, estimate, growth, nearest, stage_of
from afa.report.benchmarks import StoredRun

RULES = pd.DataFrame(
    [
        ("gauge_shard", 4, 200.0, 60.0, 300.0),
        ("gauge_summary", 1, 10.0, 10.0, 1000.0),
        ("layer0_synthetic", 1, 100.0, 100.0, 400.0),
        ("simulate_series", 1, 5.0, 5.0, 200.0),
    ],
    columns=["rule", "jobs", "seconds", "longest_seconds", "max_rss_mb"],
)
STORED = StoredRun("demo", 100, RULES)
AS_STORED = check_run_config({"shards": 4})


def of(run=None, *, stored=STORED, patients=100, simulated=True, cores=2):
    return estimate(stored, run or AS_STORED, patients=patients, simulated=simulated, cores=cores)


def by_stage(whole, column):
    return dict(zip(whole.stages["stage"], whole.stages[column], strict=True))


def test_jobs_and_seconds_are_summed_by_stage_in_the_order_of_the_workflow():
    whole = of()
    assert by_stage(whole, "jobs") == {"cohort": 1, "layer0_synthetic": 1, "gauge": 5}
    assert by_stage(whole, "seconds") == {"cohort": 5.0, "layer0_synthetic": 100.0, "gauge": 210.0}
    assert list(whole.stages["stage"]) == ["cohort", "gauge", "layer0_synthetic"]


def test_the_cores_share_the_work_but_the_longest_job_stays():
    assert of(cores=2).elapsed_seconds == pytest.approx(315 / 2)
    assert of(cores=64).elapsed_seconds == 100


def test_twice_the_patients_take_twice_as_long_where_there_are_patients():
    assert by_stage(of(patients=200), "seconds") == {"cohort": 10.0, "layer0_synthetic": 100.0, "gauge": 420.0}
    assert of(patients=200).largest_mb == 2000


def test_fewer_patients_are_not_promised_to_be_quicker():
    assert by_stage(of(patients=10), "seconds") == by_stage(of(), "seconds")
    assert growth(100, 10) == growth(100, None) == 1


def test_memory_together_is_that_of_the_largest_jobs_of_so_many_cores():
    assert of(cores=1).together_mb == 1000
    assert of(cores=3).together_mb == 1000 + 400 + 300
    assert of(cores=64).together_mb == 1000 + 400 + 4 * 300 + 200


def test_fewer_shards_are_fewer_and_longer_jobs():
    whole = of(check_run_config({"shards": 1}), cores=64)
    assert by_stage(whole, "jobs")["gauge"] == 2
    assert by_stage(whole, "seconds")["gauge"] == 210
    assert whole.elapsed_seconds == 4 * 60


def test_the_grid_has_its_shards_once_for_each_gain_and_once_without():
    rules = RULES.assign(rule=["allocation_shard", *RULES["rule"][1:]])
    run = check_run_config({"shards": 3, "allocation": {"gains": ["cmi"]}})
    assert by_stage(of(run, stored=StoredRun("demo", 100, rules)), "jobs")["allocation"] == 3 * 2


def test_a_cohort_that_is_not_simulated_needs_no_simulation():
    assert "cohort" not in by_stage(of(simulated=False), "jobs")


def test_space_grows_with_patients_where_there_are_patients_and_holds_the_shards_too():
    small, large = of(patients=167), of(patients=334)
    assert by_stage(small, "space_mb") == {name: SPACE_MB[name] for name in ("cohort", "layer0_synthetic", "gauge")}
    assert by_stage(large, "space_mb")["gauge"] == pytest.approx(2 * SPACE_MB["gauge"])
    assert by_stage(large, "space_mb")["layer0_synthetic"] == SPACE_MB["layer0_synthetic"]
    assert small.space_mb > sum(by_stage(small, "space_mb").values()) + SPACE_MB["gauge"]


@pytest.mark.parametrize(
    ("rule", "stage"),
    [
        ("allocation_truth", "allocation_truth"),
        ("layer0_synthetic", "layer0_synthetic"),
        ("summary", "report"),
        ("copy_bundle", "bundle"),
        ("sanity_notebook", "notebooks"),
    ],
)
def test_a_rule_belongs_to_its_stage(rule, stage):
    assert stage_of(rule) == stage


def test_the_stored_run_is_that_of_the_cohort_or_of_most_nearly_as_many_patients():
    runs = [STORED, StoredRun("large", 600, RULES)]
    assert nearest(runs, "large", 10).cohort == "large"
    assert nearest(runs, "mine", 500).cohort == "large"
    assert nearest(runs, "mine", 90).cohort == "demo"
    assert nearest(runs, "mine", None).cohort == "demo"
    assert nearest([], "mine", 90) is None


def told(patients=100, on_cluster=False):
    return described(STORED, of(patients=patients), patients=patients, cores=2, on_cluster=on_cluster)


def test_the_words_say_whose_numbers_they_are_and_what_was_scaled():
    assert "7 jobs, 5 min of work, some 3 min on 2 cores" in told()
    assert "stored run of demo (100 patients)" in told()
    assert "other settings and another bundle" in told()
    assert "scaled" not in told()
    assert "scaled to 200" in told(patients=200)
    assert "scaled" not in told(patients=50)
    assert "queue" in told(on_cluster=True)
