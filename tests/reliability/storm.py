"""Random changes, failures and kills of a finished run, until time is up: `make storm`.

After each, calls without any disturbance must end well, with the bytes of a clean run. The first that does not ends the
storm, with the seed and the last steps; the project is left for a look at it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import yaml
from finished_run import call, clean_run, contents, jobs_of, make_project, plan_of
from small_run import RUN
from test_never_stale import BUNDLE, CHANGES, COHORT, FAULTS, IN_A_JOB, MOMENTS, remove

SOURCES = (BUNDLE, COHORT, "resources/paper/claims.csv", "resources/genes/aliases.csv", "notebooks/chaos.ipynb")


class Storm:
    """A project and what has been done to it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.project = make_project(folder / "project")
        self.steps: list[str] = []

    def disturb(self) -> None:
        """One random thing that happens to a project between calls of Snakemake, or during one."""
        happen = [self.change, self.older, self.touch, self.shards, self.remove, self.fault, self.fail, self.kill]
        self.chance.choices(happen, weights=[3, 1, 1, 1, 2, 1, 4, 4])[0]()

    def change(self) -> None:
        name = self.chance.choice(list(CHANGES))
        self.note(f"change of a {name}")
        CHANGES[name](self.project)

    def older(self) -> None:
        """An edited file with the date of years ago, as `cp -p` leaves it."""
        path = self.project / self.chance.choice(SOURCES[:4])
        self.note(f"{path.name} edited, with an older date")
        path.write_bytes(path.read_bytes() + (b"# another line\n" if path.suffix == ".yaml" else b"\n"))
        os.utime(path, (1e9, 1e9))

    def touch(self) -> None:
        path = self.project / self.chance.choice(SOURCES)
        self.note(f"{path.name} touched")
        path.touch()

    def shards(self) -> None:
        number = self.chance.randint(1, 3)
        self.note(f"{number} shards")
        path = self.project / "config/config.yaml"
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        path.write_text(yaml.safe_dump({**settings, "shards": number}), encoding="utf-8")

    def remove(self) -> None:
        """A result, or a folder of them, that somebody removed."""
        found = [path for path in (self.project / RUN).rglob("[!.]*.*") if path.relative_to(self.project).parts[2:3]]
        found = [path for path in found if path.relative_to(self.project / RUN).parts[0] not in ("logs", "benchmarks")]
        if found:
            path = self.chance.choice(sorted(found))
            path = path.parent if path.suffix == ".parquet" and self.chance.random() < 0.5 else path
            self.note(f"removed: {path.relative_to(self.project)}")
            remove(path)

    def fault(self) -> None:
        """A faulty file for one call, which has to refuse it."""
        way = self.chance.choice(list(FAULTS))
        path, text = self.project / FAULTS[way][0], FAULTS[way][1]
        self.note(way)
        whole = path.read_bytes()
        path.write_bytes(whole + text.encode())
        if call(self.project).code == 0:
            self.end(f"{way} was not refused")
        path.write_bytes(whole)

    def fail(self) -> None:
        """A failure at a moment of a job that would run."""
        plan_of(self.project)
        planned = jobs_of(call(self.project, "-n").said)
        if planned:
            way, moment = self.chance.choice(IN_A_JOB), self.chance.choice(MOMENTS)
            output = self.chance.choice(planned).output
            self.note(f"{way}, {moment}: {output}")
            call(self.project, fail=f"{way}|{moment}|{output}|{self.folder / 'failed'}")

    def kill(self) -> None:
        """A kill of Snakemake and all its jobs at any time."""
        plan_of(self.project)
        seconds = self.chance.uniform(1, 20)
        self.note(f"kill after {seconds:.1f} s")
        call(self.project, seconds=seconds)

    def calm(self) -> None:
        """A call that nothing disturbs, and what it must have made."""
        plan = plan_of(self.project)
        ended = call(self.project)
        if ended.code != 0:
            self.end(f"the call ended with {ended.code}\n{ended.said[-4000:]}")
        shutil.rmtree(self.folder / "clean", ignore_errors=True)
        expected, found = clean_run(self.project, plan, self.folder / "clean"), contents(self.project)
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        if wrong:
            self.end(f"not as in a clean run: {wrong}")
        if "Nothing to be done" not in (again := call(self.project)).said:
            self.end(f"something is to be done again\n{again.said[-4000:]}")

    def note(self, step: str) -> None:
        self.steps.append(step)
        print(f"  {step}", flush=True)  # noqa: T201 (what a storm is watched by)

    def end(self, why: str) -> None:
        sys.exit(f"storm: {why}\nproject: {self.project}\nlast steps: {'; '.join(self.steps[-12:])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end, rounds = time.monotonic() + 60 * options.minutes, 0
    folder = Path(tempfile.mkdtemp(prefix="storm."))
    storm = Storm(folder, random.Random(options.seed))
    storm.calm()
    while time.monotonic() < end:
        for _ in range(storm.chance.randint(1, 4)):
            storm.disturb()
        storm.calm()
        rounds += 1
        print(f"{rounds} times as a clean run, seed {options.seed}", flush=True)  # noqa: T201
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
