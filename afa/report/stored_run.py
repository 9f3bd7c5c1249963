"""What a finished run took, kept as one small table: later runs derive from it what they ask of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from afa.cohort.cohort import load_cohort
from afa.errors import Fault, ReportError
from afa.files import atomic_file
from afa.report.benchmarks import by_rule, read_jobs
from afa.report.resources import STORED_COLUMNS


def store_run(run: Path, path: str | Path) -> None:
    """Write time and memory of a run by rule, with the columns of `STORED_COLUMNS`, rules by name.

    run : folder of a finished run, `results/<run>`. patients : of its cohort, the same in all rows.

    Raises
    ------
    ReportError : no run, or one without a measured job. CohortError : the run has no cohort.

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
    with atomic_file(path) as temporary:
        table.to_csv(temporary, columns=STORED_COLUMNS, index=False, float_format="%.1f", lineterminator="\n")
