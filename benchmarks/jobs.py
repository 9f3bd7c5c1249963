"""What is measured: every job runs in a process of its own, `python jobs.py NAME ARGUMENT ...`, and answers with JSON.

A job returns `seconds` and the `units` of work they took, and leaves in the scratch folder what is compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import growth
import numpy as np
import plain
import stages
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads, kernel
from afa.engine.layout import Packed, pack
from afa.engine.paths import SignPaths, sign_paths
from afa.engine.run import ENGINE_SCORES
from afa.engine.state import condition, new_state, solve_entity
from afa.engine.sweeps import Iteration
from afa.evaluate.inputs import load_inputs
from afa.inference.exact import exact
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.paper.experiments.settings import Inference, RandomOrder
from afa.paper.experiments.sign import run as sign_convergence
from afa.planner import TopKPlanner

Result = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """What a job works on; of `repeats` calls the median is kept."""

    bundle: Bundle
    cohort: Cohort
    scratch: Path
    quick: bool

    @property
    def batch(self) -> int:
        """Patients that the plain version solves together: the more, the less time it takes for each."""
        return min(2 if self.quick else 40, len(self.cohort.patients))

    @property
    def subset(self) -> int:
        """Patients whose decisions the plain version makes too."""
        return min(2 if self.quick else 10, len(self.cohort.patients))

    @property
    def repeats(self) -> int:
        return 1 if self.quick else 5

    @property
    def patients(self) -> list[int]:
        return list(range(4 if self.quick else len(self.cohort.patients)))[: len(self.cohort.patients)]

    def orders(self, n: int) -> NDArray[np.int64]:
        """(n, 1, M) random orders of the first n patients."""
        names = self.cohort.patients[:n]
        return np.array([[random_order(self.bundle.features, patient=name, seed=0)] for name in names])

    def rounds(self, gain: str) -> list[int]:
        """Rounds at which the plain version decides too."""
        return list(range(0, len(self.bundle.features), 50 if gain == "f_target" else 10))


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds of the calls after a first one that is not counted, and the last result."""
    work()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), result


def peak_mb(status: str) -> float:
    """Peak resident memory from the text of `/proc/self/status`; unlike `getrusage` it forgets the parent process."""
    return next(float(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM"))


def scored_solves(inputs: Inputs, start: str) -> Result:
    values, orders = inputs.cohort.values[inputs.patients], inputs.orders(len(inputs.patients))
    seconds, paths = timed(lambda: sign_paths(inputs.bundle, values, orders, start=start), inputs.repeats)
    signs = np.stack([paths.signs[name][: inputs.batch, 0] for name in ENGINE_SCORES])
    np.savez_compressed(inputs.scratch / f"solves_{start}.npz", decisions=signs)
    n = int(paths.solves.sum())
    shown = f"{paths.iterations.sum() / n:.1f} sweeps a solve, {int(paths.capped.sum())} met the cap"
    return {"seconds": seconds, "units": n, "note": shown, "trajectories": len(values)}


def bare_solves(inputs: Inputs, start: str) -> Result:
    """The same solves without a score, a vote or a cross expectation."""
    packed, values = pack(inputs.bundle), inputs.cohort.values[inputs.patients]
    orders = inputs.orders(len(values))[:, 0]
    solver, solves = Solver(), np.zeros(len(values), dtype=np.int64)
    first = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    later = first._replace(warm=start == "warm")

    def run() -> None:
        in_threads(lambda i, j: _solve_along(packed, values, orders, first, later, solves, i, j), len(values), None)

    seconds, _ = timed(run, inputs.repeats)
    return {"seconds": seconds, "units": int(solves.sum()), "note": "kernels only"}


@kernel(entrance=True)
def _solve_along(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    first_round: Iteration,
    later: Iteration,
    solves: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    for patient in range(first, last):
        state = new_state(packed)
        for entity in range(len(packed.prior)):
            solve_entity(packed, state, entity, first_round)
        solves[patient] = len(packed.prior)
        for feature in orders[patient]:
            condition(packed, state, feature, values[patient, feature])
            for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
                solve_entity(packed, state, packed.owner[packed.feature_slots[h]], later)
                solves[patient] += 1


def plain_solves(inputs: Inputs, start: str) -> Result:
    """The plain version on a batch of patients, on the first patient alone, and on a batch of ten."""
    models = plain.Models.of(inputs.bundle)
    plain.sign_paths(models, inputs.cohort.values[:1], inputs.orders(1)[:, 0, :2], start=start)
    results = {}
    ten = min(10, inputs.batch)
    for n in (1, ten, inputs.batch):
        begin = time.perf_counter()
        signs, solves = plain.sign_paths(models, inputs.cohort.values[:n], inputs.orders(n)[:, 0], start=start)
        results[n] = {"seconds": time.perf_counter() - begin, "units": solves, "trajectories": n}
    np.savez_compressed(inputs.scratch / f"plain_{start}.npz", decisions=signs)
    return {**results[inputs.batch], "alone": results[1], "ten": results[ten]}


def convergence(inputs: Inputs, _: str) -> Result:
    seeds = (0, 1, 2)
    orders = {"random_order": RandomOrder(seeds=seeds, starts=("uniform",)), "inference": Inference()}
    seconds, _ = timed(
        lambda: sign_convergence(inputs.bundle, inputs.cohort, inputs.patients, **orders),
        1 if inputs.quick else 3,
    )
    n = len(inputs.patients) * len(seeds)
    duels = len(inputs.bundle.entities) * (len(inputs.bundle.entities) - 1) // 2
    shown = f"{len(inputs.patients)} patients x 3 orders x {duels} duels x {len(inputs.bundle.features) + 1} rounds"
    return {"seconds": seconds, "units": n, "note": f"{shown} x {len(ENGINE_SCORES)} scores"}


def decisions(inputs: Inputs, gain: str) -> Result:
    """Whole greedy trajectories of the subset; keeps the choices and, where the plain version decides, the scores."""
    bundle, n, m = inputs.bundle, inputs.subset, len(inputs.bundle.features)
    index = {name: j for j, name in enumerate(bundle.features)}
    chosen, deciding, observing = np.empty((n, m), dtype=np.int64), np.empty((n, m)), np.empty((n, m))
    scores = np.zeros((n, m, len(bundle.entities), len(bundle.entities)))
    TopKPlanner(bundle, k=1, gain=gain, allocation="greedy", costs="equal").next_feature()
    for patient in range(n):
        planner = TopKPlanner(bundle, k=1, gain=gain, allocation="greedy", costs="equal")
        for t in range(m):
            scores[patient, t] = planner.scores()
            begin = time.perf_counter()
            name = str(planner.next_feature())
            decided = time.perf_counter()
            planner.observe(name, int(inputs.cohort.values[patient, index[name]]))
            observing[patient, t] = time.perf_counter() - decided
            deciding[patient, t], chosen[patient, t] = decided - begin, index[name]
    at = inputs.rounds(gain)
    np.savez_compressed(
        inputs.scratch / f"decisions_{gain}.npz", path=chosen, decisions=chosen[:, at], scores=scores[:, at]
    )
    milliseconds = 1e3 * deciding
    tail = f"p99 {np.quantile(milliseconds, 0.99):.3g} ms, max {milliseconds.max():.3g} ms"
    shown = f"{tail}, first {np.median(milliseconds[:, 0]):.3g} ms"
    return {
        "seconds": float(np.median(deciding)),
        "units": 1,
        "compared_seconds": float(np.median(deciding[:, at])),
        "note": f"median of {n} patients x {m} rounds; {shown}; observe() {1e3 * np.median(observing):.3g} ms",
        "p99": float(np.quantile(deciding, 0.99)),
        "max": float(deciding.max()),
        "observe": float(np.median(observing)),
    }


def plain_decisions(inputs: Inputs, gain: str) -> Result:
    """The plain version led along the engine's path, asked for its own choice at some rounds."""
    models, at = plain.Models.of(inputs.bundle), inputs.rounds(gain)
    path = np.load(inputs.scratch / f"decisions_{gain}.npz")["path"]
    a, b = models.pairs.T
    chosen, deciding = np.empty((len(path), len(at)), dtype=np.int64), np.empty((len(path), len(at)))
    scores = np.zeros((*chosen.shape, models.n_entities, models.n_entities))
    for patient, features in enumerate(path):
        planner = plain.Planner(models, gain)
        for t, feature in enumerate(features):
            if t in at:
                column = at.index(t)
                begin = time.perf_counter()
                chosen[patient, column] = planner.next_feature()
                deciding[patient, column] = time.perf_counter() - begin
                scores[patient, column, a, b] = planner.patient.linearity()[:, 0]
            if t < at[-1]:
                planner.observe(int(feature), int(inputs.cohort.values[patient, feature]))
    scores -= scores.swapaxes(2, 3)
    np.savez_compressed(inputs.scratch / f"plain_{gain}.npz", decisions=chosen, scores=scores)
    return {"seconds": float(np.median(deciding)), "units": 1}


def importing(inputs: Inputs, module: str) -> Result:
    """Wall time of a whole fresh interpreter that imports one module."""
    command = [sys.executable, "-c", f"import {module}\nprint(open('/proc/self/status').read())"]
    seconds, done = timed(lambda: subprocess.run(command, check=True, capture_output=True, text=True), inputs.repeats)
    return {"seconds": seconds, "units": 1, "note": "the whole process", "peak_mb": peak_mb(done.stdout)}


def first_call(inputs: Inputs, _: str) -> Result:
    values, orders = inputs.cohort.values[:1], inputs.orders(1)
    begin = time.perf_counter()
    sign_paths(inputs.bundle, values, orders)
    seconds = time.perf_counter() - begin
    again, _ = timed(lambda: sign_paths(inputs.bundle, values, orders), inputs.repeats)
    return {"seconds": seconds, "units": 1, "note": f"one patient, one order; a second call {1e3 * again:.3g} ms"}


def first_decision(inputs: Inputs, _: str) -> Result:
    begin = time.perf_counter()
    TopKPlanner(inputs.bundle, k=1, gain="cmi").next_feature()
    return {"seconds": time.perf_counter() - begin, "units": 1, "note": "TopKPlanner made and asked once, cmi"}


def exact_all(inputs: Inputs, _: str) -> Result:
    models = [inputs.bundle.mrf(entity) for entity in inputs.bundle.entities]
    seconds, solved = timed(lambda: [exact(model) for model in models], 1)
    return {
        "seconds": seconds,
        "units": len(models),
        "note": f"elimination width at most {max(s.width for s in solved)}",
    }


def same_bytes(inputs: Inputs, _: str) -> Result:
    values, orders = inputs.cohort.values[inputs.patients], inputs.orders(len(inputs.patients))
    seconds, digests = [], []
    for threads in (1, 2):
        sign_paths(inputs.bundle, values[:1], orders[:1], threads=threads)
        begin = time.perf_counter()
        paths = sign_paths(inputs.bundle, values, orders, threads=threads)
        seconds.append(time.perf_counter() - begin)
        digests.append(_digest(paths))
    equal = len(set(digests)) == 1
    shown = f"{'equal' if equal else 'NOT EQUAL'}, sha256 {digests[0][:12]}"
    shown += f"; 2 threads {seconds[0] / seconds[1]:.2f} times as fast"
    return {"seconds": sum(seconds), "units": 2, "note": shown, "equal": equal}


def _digest(paths: SignPaths) -> str:
    digest = hashlib.sha256()
    for array in (*paths.signs.values(), paths.solves, paths.iterations, paths.capped, paths.ascended):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def decision_growth(_: Inputs, sizes: str) -> Result:
    n_entities, n_features = map(int, sizes.split("x"))
    return growth.decision_point(n_entities, n_features)


def convergence_growth(inputs: Inputs, patients: str) -> Result:
    return growth.convergence_point(inputs.bundle, inputs.cohort, int(patients))


JOBS: dict[str, Callable[[Inputs, str], Result]] = {
    "scored_solves": scored_solves,
    "bare_solves": bare_solves,
    "plain_solves": plain_solves,
    "convergence": convergence,
    "decisions": decisions,
    "plain_decisions": plain_decisions,
    "importing": importing,
    "first_call": first_call,
    "first_decision": first_decision,
    "exact_all": exact_all,
    "same_bytes": same_bytes,
    "allocation_stage": stages.allocation_stage,
    "binary_stage": stages.binary_stage,
    "by_how_often": stages.by_how_often,
    "gauge_stage": stages.gauge_stage,
    "exact_states": stages.exact_states,
    "decision_growth": decision_growth,
    "convergence_growth": convergence_growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one job of the benchmark.")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("argument")
    for folder in ("bundle", "cohort", "scratch"):
        parser.add_argument(f"--{folder}", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    bundle, cohort = load_inputs(given.bundle, given.cohort)
    result = JOBS[given.job](Inputs(bundle, cohort, given.scratch, given.quick), given.argument)
    sys.stdout.write(json.dumps({"peak_mb": peak_mb(Path("/proc/self/status").read_text()), **result}))


if __name__ == "__main__":
    main()
