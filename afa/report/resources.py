"""What a job asks of a cluster: memory and time by what the same rule took in stored runs, more on each attempt.

The workflow reads this whenever it starts, on a cluster twice for each job: so no pandas here.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from afa.errors import Fault, ReportError

STORED_COLUMNS = ["rule", "jobs", "seconds", "longest_seconds", "max_rss_mb", "patients"]

WORKFLOW_MB = 600
"""Beside what is measured: a job on a cluster is a Snakemake that starts a Snakemake that starts the command."""
MARGIN = 1.5
"""Of memory, for cohorts and bundles that are larger than the stored ones."""
STEP_MB = 250
SLOWER = 10
"""Of time, for slower machines and larger cohorts: what is asked for and not used costs a place in the queue only."""
LEAST_MINUTES = 10


@dataclass(frozen=True)
class Need:
    """What the largest and the longest job of a rule took."""

    max_rss_mb: float
    longest_seconds: float

    def mem_mb(self, attempt: int) -> int:
        """Memory to ask for at the n-th attempt, from 1, in MB: each asks for twice as much as the one before."""
        asked = (WORKFLOW_MB + MARGIN * self.max_rss_mb) * 2.0 ** (attempt - 1)
        return _up(asked, STEP_MB)

    def runtime(self, attempt: int) -> int:
        """Wall time to ask for at the n-th attempt, from 1, in minutes: each asks for twice as much."""
        return max(LEAST_MINUTES, _up(SLOWER * self.longest_seconds / 60, 1)) << (attempt - 1)


UNMEASURED = Need(max_rss_mb=1_000, longest_seconds=180)
"""Of a rule that no stored run has."""


def _up(value: float, step: int) -> int:
    """The next multiple of `step`."""
    return math.ceil(value / step) * step


def read_needs(folder: str | Path) -> dict[str, Need]:
    """What each rule needs by the largest of all runs stored in `folder`, by the rule's name.

    Raises
    ------
    ReportError : a file is no stored run.

    """
    needs: dict[str, Need] = {}
    for path in sorted(Path(folder).glob("*.csv")):
        for rule, need in _needs_of(path).items():
            known = needs.get(rule, need)
            needs[rule] = Need(max(known.max_rss_mb, need.max_rss_mb), max(known.longest_seconds, need.longest_seconds))
    return needs


def _needs_of(path: Path) -> dict[str, Need]:
    with path.open(newline="", encoding="utf-8") as stream:
        try:
            rows = list(csv.DictReader(stream))
            # nothing is measured of a job of some milliseconds
            return {
                row["rule"]: Need(float(row["max_rss_mb"] or 0), float(row["longest_seconds"] or 0)) for row in rows
            }
        except (KeyError, TypeError, ValueError) as error:
            step = "write it again from a run: afa benchmarks results/<run> --out this file"
            fault = Fault(str(path), f"no stored run ({error!r})", f"columns {', '.join(STORED_COLUMNS)}", step)
            raise ReportError(fault) from None
