"""The real workflow, small: a checkout of its own, three phenotypes, twelve simulated patients.

`python tests/reliability/small_run.py FOLDER` makes such a checkout, in which `snakemake` makes the whole report.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ON_CUE = Path(__file__).with_name("on_cue")
RUN = Path("results/r")

COHORT: dict[str, Any] = {
    "name": "small",
    "title": "A few simulated patients",
    "series": "GSE000000",
    "origin": "simulated",
    "metadata_file": "GSE000000_series_matrix.txt.gz",
    "expression": {
        "layout": "count_matrix",
        "file": "GSE000000_counts.txt.gz",
        "unit": "counts",
        "row_ids": "symbol",
        "sample_column": "title_before_comma",
    },
    "controls": {"key": "diagnosis", "values": ["Control"]},
    "patients": {"key": "diagnosis", "values": ["IBD"]},
    "labels": {
        "bleeding": {"key": "phenotype_bleeding", "positive": ["yes"], "negative": ["no"], "reason": "simulated label"}
    },
    "simulation": {
        "seed": 1,
        "n_patients": 12,
        "n_controls": 24,
        "n_background_genes": 40,
        "prevalences": {"bleeding": 0.5, "diarrhea": 0.5, "fistula": 0.4},
    },
}
SETTINGS: dict[str, Any] = {
    "cohort": "small",
    "bundle": str(ROOT / "tests/data/bundle_tiny"),
    "run": RUN.name,
    "top_k": 1,
    "shards": 2,
    "random_order": {"seeds": [0], "starts": ["uniform"]},
    "gauge": {"seeds": [0], "rounds": [2]},
    "accurate": {"patients": 4, "linearity_patients": 2, "rounds": [2], "limit": 30},
    "calibration": {"rounds": [2]},
    "labels": {"seeds": [0], "percents": [50], "permutations": 2, "whole_permutations": 20},
    "labels_needed": {"sizes": [4], "repeats": 1, "tested": 2, "of_each_class": 1},
    "chaos": {"selecting_seeds": [0], "measuring_seeds": [1]},
    "allocation": {"rules": ["random", "greedy"], "gains": ["cmi"], "schedules": ["every"], "seeds": [0]},
    "layer0": {"clusters": [2], "simulated": 20},
    "layer1": {"seeds": [0]},
    "sanity": {"seeds": [0]},
    "bootstrap": {"resamples": 100},
    "explorer": {"patients": 1},
}

SHORT = (f"{RUN}/curves/sign.parquet",)
"""Eight jobs, with two shards and their gathering."""

WHOLE = (
    f"{RUN}/summary.csv",
    f"{RUN}/published/data_dictionary.csv",
    f"{RUN}/comparison/comparison.csv",
    f"{RUN}/notebooks/cohort.ipynb",
    f"{RUN}/notebooks/sanity.ipynb",
)
"""All stages, the summary and what is made of it, and two of the figures: more than fifty jobs."""

COMPARED = ("tables", "curves", "summary.csv", "published", "comparison", "notebooks", "cohort", "bundle")
"""What must have the same bytes however often a run was killed."""

TEMPORARY = re.compile(r"\..+\.afa-[a-z0-9_]{8}(\.\w+)?")
OWN_TO_SNAKEMAKE = ".snakemake_timestamp"


class SmallRun:
    """A checkout in `folder`: the project's files by links, settings and results of its own.

    What Snakemake prints goes to files in `logs`, by default the same folder.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any] | None = None, cohort: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.logs = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("Makefile", "Snakefile", "docs", "envs", "notebooks", "profiles", "resources", "workflow"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "config/cohorts").mkdir(parents=True)
        self.set(settings, cohort)
        portfolio = yaml.safe_load((ROOT / "config/portfolio.yaml").read_text(encoding="utf-8"))
        _write(folder / "config/portfolio.yaml", dict([next(iter(portfolio.items()))]))

    def set(self, settings: Mapping[str, Any] | None = None, cohort: Mapping[str, Any] | None = None) -> None:
        """Write the settings and the cohort's file, with these values in place of the small run's."""
        _write(self.folder / "config/config.yaml", {**SETTINGS, **(settings or {})})
        _write(self.folder / "config/cohorts/small.yaml", {**COHORT, **(cohort or {})})

    def start(self, *targets: str, cue: tuple[str, str] | None = None, before: str = "") -> Attempt:
        """Snakemake for these targets, in a session of its own.

        cue : an event and a path at which it kills itself (`on_cue/sitecustomize.py`); before : a shell command.
        """
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AFA_CUE_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        done = None
        if cue is not None:
            done = self.folder / f"cue-{time.monotonic_ns()}"
            environment |= {"AFA_CUE_EVENT": cue[0], "AFA_CUE_PATH": cue[1], "AFA_CUE_DONE": str(done)}
            environment["PYTHONPATH"] = f"{ON_CUE}:{ROOT}"
        command = f"{before} exec snakemake --cores 2 {' '.join(targets)}"
        log = self.logs / f"attempt-{time.monotonic_ns()}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Attempt(process, log, done)

    def finish(self, *targets: str) -> str:
        """Run to the end, and return what Snakemake said."""
        attempt = self.start(*targets)
        code = attempt.wait()
        assert code == 0, attempt.said()
        return attempt.said()

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that is compared, by its path in the run's folder."""
        run = self.folder / RUN
        files = [file for name in COMPARED for file in (run / name, *(run / name).rglob("*")) if file.is_file()]
        return {
            str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
            if file.name != OWN_TO_SNAKEMAKE
        }

    def leftovers(self) -> list[str]:
        """What should be gone at the end: temporary files and folders, shards, and Snakemake's lock."""
        found = [path for path in (self.folder / "results").rglob(".*") if TEMPORARY.fullmatch(path.name)]
        found += [path for path in (self.folder / RUN / "shards").rglob("*") if path.is_file()]
        found += (self.folder / ".snakemake/locks").glob("*")
        return sorted(str(path.relative_to(self.folder)) for path in found)


class Attempt:
    """One Snakemake at work, with all its jobs in one process group."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, done: Path | None) -> None:
        self.process, self._log, self._done = process, log, done

    def said(self) -> str:
        """All that it and its jobs have printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def finished_jobs(self) -> int:
        """How many jobs it has reported as finished."""
        return self.said().count("Finished jobid")

    def wait(self, seconds: float = 7200) -> int:
        """Its exit code; fails after hours, as a busy machine needs many times the minutes of an idle one."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def wait_until(self, holds: Callable[[], bool], seconds: float = 3600) -> bool:
        """Whether `holds()` came true before the end of the run."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if holds():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        raise TimeoutError(self.said())

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_after(self, jobs: int, pause: float) -> bool:
        """Kill when so many more jobs have finished and `pause` seconds have passed; whether it was still running."""
        alive = self.wait_until(lambda: self.finished_jobs() >= jobs)
        if alive:
            time.sleep(pause)
        alive = self.process.poll() is None
        self.kill()
        return alive

    def killed_on_cue(self, jobs: int = 1000) -> str:
        """Wait for the cue, or kill when so many jobs have finished before it: `cue`, `jobs`, or `` if it ended."""
        alive = self.wait_until(lambda: self.finished_jobs() >= jobs)
        self.kill()
        assert self._done is not None
        return "cue" if self._done.exists() else "jobs" if alive else ""


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    SmallRun(Path(sys.argv[1]))
