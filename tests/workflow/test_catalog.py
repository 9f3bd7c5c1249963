"""What the Snakemake workflow catalog asks of a workflow with *standardized usage*."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_the_catalog_finds_the_workflow_and_its_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    for name in ("workflow/Snakefile", "config/README.md", "config/config.yaml", "profiles/default/config.yaml"):
        assert (ROOT / name).is_file(), name
    assert list((ROOT / "workflow" / "rules").glob("*.smk"))


def test_the_catalog_is_told_how_the_workflow_is_used() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert usage["mandatory-flags"]["flags"] == ""
    assert "Install the package" in usage["mandatory-flags"]["desc"]
    assert usage["report"] is True
    # What has never been built here is not promised.
    assert usage["software-stack-deployment"] == {"conda": False, "apptainer": False, "apptainer+conda": False}


def test_the_table_of_parameters_in_the_catalog_has_a_meaning_for_every_key() -> None:
    schema = yaml.safe_load((ROOT / "workflow" / "schemas" / "config.schema.yaml").read_text(encoding="utf-8"))
    parts = [schema]
    while parts:
        part = parts.pop()
        parts.extend(part.get("properties", {}).values())
        assert "properties" in part or (part["description"] and "default" in part), part
