"""Where each second of a run goes, by stage: `make bench` makes the default run anew and this table of it.

    python benchmarks/run_parts.py --run results/profile --parts results/bench/parts --out results/bench

Processor time of a stage is what its jobs' shells wrote (getrusage, children included); its parts are what the Python
processes in it measured (`hook/sitecustomize.py`), and `other` is the rest: shells, and processes that were ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from afa.io.files import atomic_file
from afa.paper.report.benchmarks import read_jobs

PARTS = ["interpreter", "imports", "kernels", "computing", "tables", "figures"]
SUFFIXES = r"_(shard|summary|truth|computed)$"


def stage_of(rules: pd.Series) -> pd.Series:
    """A rule's stage: its shards and its summary belong to it, and all notebooks together are one."""
    return rules.str.replace(SUFFIXES, "", regex=True).str.replace(r".*_notebook$", "notebooks", regex=True)


def read_parts(folder: Path) -> pd.DataFrame:
    """Seconds by stage and part."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]
    table = pd.DataFrame(lines).reindex(columns=["rule", "program", *PARTS])
    table[PARTS] = table[PARTS].astype("float64").fillna(0.0)
    own = (table["rule"] == "") & (table["program"] == "snakemake")
    table["stage"] = stage_of(table["rule"]).mask(own, "Snakemake itself")
    return table[table["stage"] != ""].groupby("stage")[PARTS].sum()


def profile(run: Path, parts: Path) -> pd.DataFrame:
    """One row per stage, the one with the most processor time first, and the sums of all."""
    jobs = read_jobs(run / "benchmarks")
    by_stage = jobs.assign(stage=stage_of(jobs["rule"])).groupby("stage")
    table = by_stage.agg(jobs=("job", "size"), wall=("seconds", "sum"), processor=("cpu_seconds", "sum"))
    table = table.join(read_parts(parts), how="outer").fillna(0.0)
    table["processor"] = table["processor"].where(table["jobs"] > 0, table[PARTS].sum(axis=1))
    table["other"] = table["processor"] - table[PARTS].sum(axis=1)
    table = table.sort_values("processor", ascending=False)
    table.loc["all"] = table.sum()
    return table.astype({"jobs": int}).round(1)


def main() -> None:
    """Print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("run", "parts", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    table = profile(given.run, given.parts)
    with atomic_file(given.out / "profile.csv") as path:
        table.to_csv(path, lineterminator="\n")
    sys.stdout.write(f"{table.to_string()}\n")


if __name__ == "__main__":
    main()
