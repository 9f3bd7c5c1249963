"""What the workflow asks of a cluster: every rule something, by stored runs that know the rules there are."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
import snakemakes
import yaml

from afa.paper.experiments.declared import STAGES

ROOT = Path(__file__).parents[2]
PROFILE = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text(encoding="utf-8"))
STORED = sorted((ROOT / "resources/benchmarks").glob("*.csv"))
TARGETS = {"all", "cohort", "bundle", "tables", *STAGES}
LEAGUE = {"league", "league_field"}
"""Rules of other data than a cohort, which no run of one cohort has."""
OTHER_WAY = {"copy_bundle"}
"""Rules that the stored runs have another one for."""
"""Rules of runs that replay the answers which the project carries."""
SHARDS = 3
SPLIT = {
    "sign_shard": 1,
    "chaos_shard": 1,
    "gauge_shard": 1,
    "layer1_shard": 1,
    "stopping_shard": 1,
    "allocation_shard": 4,
}
"""Rules of which there is a job per shard, and into how many cells each part of the patients is split."""


def snakemake(*arguments: str, folder: Path = ROOT) -> str:
    settings = ["cohort=demo", "run=planned", "bundle=tests/data/bundle_tiny"]
    done = snakemakes.snakemake(folder, "--nolock", "--config", *settings, *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def planned() -> list[tuple[str, str]]:
    """(rule, what is said of the job) of every job of a run that starts from nothing."""
    text = snakemake(f"shards={SHARDS}", "-n", "--forceall")
    return re.findall(r"^ *(?:local)?rule (\w+):\n((?:    .+\n)+?)(?=\S|\n| *rule|\Z)", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def listed() -> str:
    """What `snakemake --list-rules` prints: the name of each rule, and its docstring in brackets."""
    return snakemake("--list-rules")


@pytest.fixture(scope="module")
def rules(listed: str) -> set[str]:
    return set(re.findall(r"^(\w+) \(.+\)$", listed, flags=re.MULTILINE))


def test_every_rule_says_what_it_makes(listed: str) -> None:
    assert re.findall(r"^\w+$", listed, flags=re.MULTILINE) == []


def test_the_default_run_has_at_most_sixty_jobs_and_on_slurm_at_most_twenty_five_submissions() -> None:
    # The default run but for its name, so that it starts from nothing.
    done = snakemakes.snakemake(
        ROOT, "--nolock", "-n", "--forceall", "--config", "run=planned", "--profile", "workflow/profiles/slurm"
    )
    assert done.returncode == 0, done.stdout
    total = int(re.findall(r"^total +(\d+)$", done.stdout, flags=re.MULTILINE)[0])
    assert total - 1 <= 60, "jobs beside the target `all`"
    groups = re.findall(r"Group job (\w+)", done.stdout)
    alone = re.findall(r"^rule (\w+):", done.stdout, flags=re.MULTILINE)
    local = set()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        for block in re.split(r"^ *rule (?=\w+:)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            local |= {block.partition(":")[0]} if "localrule: True" in block else set()
    submitted = [*groups, *(rule for rule in alone if rule not in local | TARGETS)]
    assert len(groups) == 4
    assert len(submitted) <= 25


def test_what_fails_again_is_not_tried_again() -> None:
    """Local rules and the acceptance tests say `retries: 0` in their rules; the profile has attempts for the others."""
    assert PROFILE["retries"] == 2
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        text = path.read_text(encoding="utf-8")
        assert text.count("localrule: True") == len(re.findall(r"retries: 0\n +localrule: True", text)), path.name
    assert "retries: 0 if name in GATES else None" in (ROOT / "workflow/rules/stages.smk").read_text(encoding="utf-8")


def test_every_job_asks_for_memory_and_time(planned: list[tuple[str, str]]) -> None:
    assert len(planned) > 50
    silent = {rule for rule, said in planned if not re.search(r"resources: .*\bruntime=\d+.*\bmem_mb=\d+", said)}
    assert silent <= TARGETS


def test_stored_runs_name_rules_of_the_workflow_only(rules: set[str]) -> None:
    assert STORED
    for path in STORED:
        named = {row["rule"] for row in csv.DictReader(path.open(encoding="utf-8"))}
        elicited = {rule for rule in named if rule.startswith("elicit_")} | {"build_bundle", "voters_tables"}
        elicited |= {"llm_baselines_tables", "llm_choosing_tables", "choosing_notebook"}
        assert named - rules - elicited == set(), path.name


def test_every_rule_is_in_a_stored_run(rules: set[str]) -> None:
    named = {row["rule"] for path in STORED for row in csv.DictReader(path.open(encoding="utf-8"))}
    assert rules - named - TARGETS - LEAGUE - OTHER_WAY == set()


@pytest.mark.slow
def test_other_requests_make_nothing_again(tmp_path: Path) -> None:
    for name in ("profiles", "workflow", "config", "notebooks", "envs", "tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for part in (ROOT / "resources").iterdir():
        (tmp_path / "resources").mkdir(exist_ok=True)
        if part.name != "benchmarks":
            (tmp_path / "resources" / part.name).symlink_to(part)
    snakemake("--cores", "1", "--", "bundle", folder=tmp_path)
    stored = tmp_path / "resources/benchmarks/large.csv"
    stored.parent.mkdir()
    stored.write_text("rule,jobs,seconds,longest_seconds,max_rss_mb,patients\ncopy_bundle,1,9000,9000,90000,8\n")
    assert "mem_mb=135750" in snakemake("-n", "--forceall", "--", "bundle", folder=tmp_path)
    assert "Nothing to be done" in snakemake("-n", "--", "bundle", folder=tmp_path)


def test_the_profile_names_no_site() -> None:
    text = yaml.safe_dump(PROFILE)
    assert not re.search(r"account|partition|qos|constraint|/home|/scratch", text)


def test_the_profile_groups_rules_that_there_are_each_once(rules: set[str]) -> None:
    grouped = [entry.split("=")[0] for entry in PROFILE["groups"]]
    assert set(grouped) <= rules | {"voters_tables"}  # which needs a bundle that the run elicits
    assert len(set(grouped)) == len(grouped)


def test_a_rule_has_a_job_per_shard_and_cell_or_one(planned: list[tuple[str, str]]) -> None:
    jobs = Counter(rule for rule, _ in planned)
    expected = {rule: cells * SHARDS for rule, cells in SPLIT.items()}
    assert {rule: n for rule, n in jobs.items() if n > 1} == expected
