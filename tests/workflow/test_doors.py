"""The doors to the workflow: the project's own Snakefile, its options, and what stands beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import snakemakes
import yaml

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "workflow/profiles/default"
AT_THE_ROOT = {
    *("Snakefile", "workflow", "config", "envs", "notebooks", "afa", "results", "tests"),  # the user's own list
    *("profiles", "resources", "docs", "benchmarks", "tools"),
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff", "codemeta.json"),
    *("Makefile", "noxfile.py", "pyproject.toml"),
}


def snakemake(*arguments: str, folder: Path = ROOT) -> str:
    done = snakemakes.snakemake(folder, *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_stands_at_the_root_is_there_on_purpose() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {name.partition("/")[0] for name in listed.splitlines()}
    assert {name for name in found if not name.startswith(".")} == AT_THE_ROOT


def test_both_snakefiles_of_the_project_have_the_default_profile_and_plan_the_whole_run() -> None:
    assert len((ROOT / "Snakefile").read_text(encoding="utf-8").splitlines()) <= 24
    whole = ("-n", "--nolock", "--forceall", "--config", "run=planned")  # kernels may be there
    root, inner = snakemake(*whole), snakemake(*whole, "--snakefile", "workflow/Snakefile")
    for planned in (root, inner):
        assert "Using workflow specific profile" in planned
    jobs = [re.findall(r"^(\w+) +(\d+)$", planned, re.MULTILINE) for planned in (root, inner)]
    assert jobs[0] == jobs[1]
    assert {"elicit_unary", "build_bundle", "fetch_series", "encode_cohort", "report_page"} <= dict(jobs[0]).keys()


def test_another_folder_has_the_default_profile_of_the_snakefile(tmp_path: Path) -> None:
    planned = snakemake("-n", "--snakefile", str(ROOT / "workflow/Snakefile"), "bundle", folder=tmp_path)
    assert "Using workflow specific profile" in planned


def test_a_module_without_a_profile_is_told(tmp_path: Path) -> None:
    module = f'module afa:\n    snakefile: "{ROOT}/workflow/Snakefile"\n\n\nuse rule * from afa as afa_*\n'
    (tmp_path / "Snakefile").write_text(module, encoding="utf-8")
    told = snakemake("-n", "--cores", "1", "afa_bundle", folder=tmp_path)
    assert "afa: found no profile; expected the workflow's" in told


def test_one_stage_by_name_is_planned_with_what_it_stands_on_alone() -> None:
    planned = snakemake("-n", "--nolock", "gauge", "--config", "run=planned")
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", planned, re.MULTILINE))
    assert {"gauge", "gauge_tables", "encode_cohort", "build_bundle"} <= jobs.keys()
    assert not {"sign_tables", "summary", "report_page"} & jobs.keys()


def test_the_default_profile_decides_by_content() -> None:
    profile = yaml.safe_load((PROFILE / "config.yaml").read_text(encoding="utf-8"))
    assert profile["max-checksum-file-size"] == "1TB"
    assert profile["rerun-incomplete"] is True
    assert set(profile["rerun-triggers"]) == {"code", "input", "mtime", "params"}
