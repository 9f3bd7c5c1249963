"""Read and store the time and memory of the jobs of a run, as measured by Snakemake.

On a cluster, the workflow requests memory and time for each job. The requested memory and time are computed from stored
runs. Each time a job is repeated after a failure, the requested memory and time are doubled. When a run starts, the
workflow prints how long a stored run took.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from afa.cohort.cohort import load_cohort
from afa.errors import Fault, ReportError
from afa.io.files import write_csv

JOB_COLUMNS = ["rule", "job", "seconds", "max_rss_mb", "cpu_seconds"]
STORED_COLUMNS = ["rule", "jobs", "seconds", "longest_seconds", "max_rss_mb", "patients"]

WORKFLOW_MB = 600
"""Memory to add to the measured memory. It is needed because a job on a cluster runs Snakemake twice around its
command.
"""
MEMORY_MARGIN = 1.5
"""Factor on the measured memory, for cohorts and bundles larger than those of the stored runs."""
STEP_MB = 250
TIME_MARGIN = 10
"""Factor on the measured time, for slower machines and larger cohorts; unused time only costs a place in the queue."""
LEAST_MINUTES = 10


def read_jobs(folder: Path, *, shards: int | None = None) -> pd.DataFrame:
    """Return a table with one row for each job of a run, and the columns `JOB_COLUMNS`.

    `folder` is the subfolder `benchmarks` of the run.

    Rows are sorted by rule and job. The name of a job consists of the wildcards of its rule, such as `f_target/3-of-4`,
    and is empty for a rule without wildcards. `seconds` is wall time. `max_rss_mb` is the largest resident set in MiB.
    If a job ended before Snakemake measured its memory, `max_rss_mb` is missing. `cpu_seconds` is read from a file that
    the job's shell writes. If the shell wrote no file, `cpu_seconds` is read from Snakemake's benchmark file.

    Parameters
    ----------
    shards : number of shards of the run. Files with another number belong to an earlier run and are skipped

    Raises
    ------
    ReportError : the folder does not exist, or a file is no benchmark.

    """
    if not folder.is_dir():
        raise ReportError(Fault(str(folder), "no such folder", "a run's benchmarks", "run the workflow first"))
    rows = [_read_benchmark(path, path.relative_to(folder)) for path in sorted(folder.rglob("*.tsv"))]
    kinds = dict.fromkeys(JOB_COLUMNS[:2], "str") | dict.fromkeys(JOB_COLUMNS[2:], "float64")
    jobs = pd.DataFrame(rows, columns=JOB_COLUMNS).astype(kinds)
    parts = jobs["job"].str.extract(r"(?:^|/)\d+-of-(\d+)$", expand=False)
    if shards is not None:
        jobs = jobs[parts.isna() | (parts == str(shards))]
    return jobs.sort_values(["rule", "job"], ignore_index=True)


def by_rule(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return a table of time and memory with one row for each workflow rule.

    The rule with the longest total time is first.

    `seconds` and `cpu_seconds` are sums over the rule's jobs. `longest_seconds` and `max_rss_mb` are maxima over the
    jobs.
    """
    rules = jobs.groupby("rule").agg(
        jobs=("job", "size"),
        seconds=("seconds", "sum"),
        longest_seconds=("seconds", "max"),
        cpu_seconds=("cpu_seconds", "sum"),
        max_rss_mb=("max_rss_mb", "max"),
    )
    return rules.reset_index().sort_values(["seconds", "rule"], ascending=[False, True], ignore_index=True)


def store_run(run: Path, path: str | Path) -> None:
    """Write a CSV file of a run's time and memory, with one row for each workflow rule.

    The columns are `STORED_COLUMNS`. In every row, the column `patients` contains the number of patients of the cohort.

    Parameters
    ----------
    run : folder of a finished run, `results/<run>`

    Raises
    ------
    ReportError : the run is missing, or has no measured job.
    CohortError : the run has no cohort.

    """
    try:
        shards = json.loads((run / "config.json").read_text(encoding="utf-8"))["shards"]
    except (OSError, ValueError, KeyError) as error:
        fault = Fault(str(run / "config.json"), f"no settings of a run ({error!r})", "a finished run", "run it first")
        raise ReportError(fault) from None
    rules = by_rule(read_jobs(run / "benchmarks", shards=shards))
    if rules.empty:
        raise ReportError(Fault(str(run / "benchmarks"), "no measured job", "a finished run", "run it first"))
    table = rules.assign(patients=len(load_cohort(run / "cohort").patients)).sort_values("rule")
    write_csv(table[STORED_COLUMNS], path, float_format="%.1f")


@dataclass(frozen=True)
class StoredRun:
    """Time and memory of a stored run.

    The table `rules` has one row for each workflow rule, and the columns `STORED_COLUMNS` except `patients`.
    """

    cohort: str
    patients: int
    rules: pd.DataFrame


def read_stored(folder: str | Path) -> list[StoredRun]:
    """Return the stored runs in a folder. Each stored run is a file `<cohort>.csv` that `store_run` wrote.

    If the folder contains any other CSV file, raise a `ReportError`.
    """
    runs = []
    for path in sorted(Path(folder).glob("*.csv")):
        try:
            table = pd.read_csv(path, comment="#")
            rules = table[STORED_COLUMNS[:-1]].astype(dict.fromkeys(STORED_COLUMNS[2:-1], "float64"))
            patients = int(table["patients"].iloc[0])
        except (KeyError, ValueError, IndexError) as error:
            step = "write it again from a run: afa benchmarks results/<run> --out this file"
            fault = Fault(str(path), f"no stored run ({error!r})", f"columns {', '.join(STORED_COLUMNS)}", step)
            raise ReportError(fault) from None
        runs.append(StoredRun(path.stem, patients, rules))
    return runs


@dataclass(frozen=True)
class Need:
    """The largest memory (in MiB) and the longest time (in seconds) of any job of a rule."""

    max_rss_mb: float
    longest_seconds: float

    def mem_mb(self, attempt: int) -> int:
        """Return the memory that is requested for a job, in MB.

        Each further attempt at the job doubles the requested memory. The first attempt has the number `attempt` = 1.
        """
        asked = (WORKFLOW_MB + MEMORY_MARGIN * self.max_rss_mb) * 2.0 ** (attempt - 1)
        return STEP_MB * math.ceil(asked / STEP_MB)

    def runtime(self, attempt: int) -> int:
        """Return the time limit that is requested for a job, in minutes.

        Each further attempt at the job doubles the requested time. The first attempt has the number `attempt` = 1.
        """
        return max(LEAST_MINUTES, math.ceil(TIME_MARGIN * self.longest_seconds / 60)) << (attempt - 1)


UNMEASURED = Need(max_rss_mb=1_000, longest_seconds=180)
"""The need of a rule that is in no stored run."""


def read_needs(folder: str | Path) -> dict[str, Need]:
    """Return, for each rule, the largest memory and time of the rule's jobs in all stored runs in `folder`."""
    runs = read_stored(folder)
    if not runs:
        return {}
    largest = pd.concat([run.rules for run in runs]).groupby("rule")[["max_rss_mb", "longest_seconds"]].max()
    # Snakemake measures no memory for jobs of a few milliseconds. A missing measurement counts as 0.
    return {str(rule): Need(*took) for rule, *took in largest.fillna(0.0).itertuples(name=None)}


def _read_benchmark(path: Path, inside: Path) -> tuple[str, str, float, float, float]:
    """Return the rule, the job and the measurements in a benchmark file. NA and - in the file mean "not measured"."""
    rule, *job = inside.with_suffix("").parts
    try:
        last = pd.read_csv(path, sep="\t", na_values=["-"]).iloc[-1]
        seconds, memory, processor = (float(last[name]) for name in ("s", "max_rss", "cpu_time"))
        if (times := path.with_suffix(".times")).exists():  # the user time and the system time of the job's shell
            parts = [part.removesuffix("s").split("m") for part in times.read_text(encoding="ascii").split()]
            if len(parts) != 4:
                raise ValueError(f"times are {parts!r}")
            processor = sum(60 * int(minutes) + float(rest) for minutes, rest in parts)
    except (IndexError, KeyError, ValueError) as error:
        expected = "columns s, max_rss and cpu_time"
        raise ReportError(Fault(str(path), f"no measurement ({error})", expected, "remove it, or run again")) from None
    return rule, "/".join(job), seconds, memory, processor
