"""Bundles of up to 2,000 entities on 5,000 features: what one decision takes, and how it grows.

    python benchmarks/scale.py --out FOLDER [--quick]

Prints the tables and writes `scale.json` and `scale.md`. Each point is measured in a process of its own
(`--point NxMxSxD`: entities, features, features an entity, couplings a feature).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from growth import exponent, planted_bundle

from afa.engine.layout import pack
from afa.engine.sharing import sharing_of
from afa.model.arrays import Floats
from afa.model.bundle import Bundle, load_bundle, save_bundle
from afa.planner import TopKPlanner
from afa.planner.cluster import CLUSTER_EVERY

GOAL_MS = 200.0
FRONTIER_MS = 10.0
ROUNDS, QUICK_ROUNDS = 120, 4
Point = tuple[int, int, int, int]
Result = dict[str, Any]


def goal_points(*, quick: bool) -> list[Point]:
    """The size of the goal, by the number of features an entity holds."""
    return [(12, 60, 8, 3), (12, 60, 16, 3)] if quick else [(2000, 5000, 25, 8), (2000, 5000, 100, 8)]


def curves(*, quick: bool) -> list[tuple[str, str, list[tuple[int, Point]]]]:
    """Name, setting and points of each curve."""
    if quick:
        return [("N", "M = 60", [(n, (n, 60, 8, 3)) for n in (8, 12)])]
    entities = [(n, (n, 5000, 25, 8)) for n in (250, 500, 1000, 2000)]
    features = [(m, (1000, m, 25, 8)) for m in (1250, 2500, 5000, 10000)]
    supports = [(size, (1000, 5000, size, 8)) for size in (12, 25, 50, 100)]
    degrees = [(degree, (1000, 5000, 50, degree)) for degree in (2, 4, 8, 16)]
    return [
        ("N, entities", "M = 5000, 25 features an entity, 8 couplings a feature", entities),
        ("M, features", "N = 1000, 25 features an entity, 8 couplings a feature", features),
        ("features an entity", "N = 1000, M = 5000, 8 couplings a feature", supports),
        ("couplings a feature", "N = 1000, M = 5000, 50 features an entity", degrees),
    ]


def measure(point: Point, rounds: int, *, loads: bool) -> Result:
    """Everything about one point; times in seconds, memory in bytes. With `loads` a folder is written and read too."""
    warm = planted_bundle(12, 60, 8, 3)
    _follow(TopKPlanner(warm, k=5, score="linearity", gain="cmi", allocation="priority_clusters"), warm, 3)
    bundle = planted_bundle(*point)
    loading = _load_seconds(bundle) if loads else None
    before = _resident()
    packing, _ = _timed(lambda: (pack(bundle, overlaps=False), sharing_of(bundle)))
    making, planner = _timed(
        lambda: TopKPlanner(bundle, k=5, score="linearity", gain="cmi", allocation="priority_clusters")
    )
    seconds, processor, fallbacks = _follow(planner, bundle, rounds)
    certifying, _ = _timed(planner.certified)
    grown = _resident() - before
    again, _ = _timed(lambda: TopKPlanner(bundle, k=5, allocation="priority_clusters"))
    believing = TopKPlanner(bundle, k=5, background="uniform")  # the rule `frontier` and the score `background`
    of_frontier, processor_of_frontier, _ = _follow(believing, bundle, rounds)
    return {
        "point": point,
        "couplings": len(bundle.packed.value),
        "load_seconds": loading,
        "pack_seconds": packing,
        "first_planner": making,
        "next_planner": again,
        "median": float(np.median(seconds)),
        "p99": float(np.quantile(seconds, 0.99)),
        "max": float(seconds.max()),
        "processor_median": float(np.median(processor)),
        "processor_max": float(processor.max()),
        "clustering_rounds": float(np.median(processor[::CLUSTER_EVERY])),
        "frontier_median": float(np.median(of_frontier)),
        "frontier_processor": float(np.median(processor_of_frontier)),
        "decisions": len(seconds),
        "fallbacks": fallbacks,
        "certified_seconds": certifying,
        "planner_bytes": grown,
        "resident_bytes": _resident(),
        **_bytes(bundle),
    }


def _follow(planner: TopKPlanner, bundle: Bundle, rounds: int) -> tuple[Floats, Floats, int]:
    """Follow a patient like the first entity: seconds of each decision by the clock and of the processor, fall-backs.

    A decision is `next_feature` and `observe` together. Without other work on the machine the two times are the same.
    """
    rng, index = np.random.default_rng(0), {name: j for j, name in enumerate(bundle.features)}
    like = np.sign(bundle.unary[0]).astype(int)
    drawn = np.where(rng.random(len(like)) < 0.7, like, rng.integers(-1, 2, len(like)))
    seconds, fallbacks = np.zeros((rounds, 2)), 0
    for t in range(rounds):
        begin = time.perf_counter(), time.process_time()
        feature = str(planner.next_feature())
        value = int(drawn[index[feature]])
        planner.observe(feature, value)
        seconds[t] = time.perf_counter() - begin[0], time.process_time() - begin[1]
        fallbacks += "largest total effective unary" in planner.reason
    return seconds[:, 0], seconds[:, 1], fallbacks


def _load_seconds(bundle: Bundle) -> float:
    """Seconds to read the bundle from a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        save_bundle(bundle, Path(scratch) / "bundle")
        return _timed(lambda: load_bundle(Path(scratch) / "bundle"))[0]


def _bytes(bundle: Bundle) -> Result:
    """Bytes of what is stored by coupling, by slot and by entity and feature."""
    packed, sharing, of_bundle = pack(bundle, overlaps=False), sharing_of(bundle), bundle.packed
    in_bundle = sum(array.nbytes for array in (of_bundle.row, of_bundle.column, of_bundle.value))
    for_kernels = packed.other_slot.nbytes + packed.coupling.nbytes
    shared = (sharing.member, sharing.value, sharing.partner, sharing.first_member)
    n, n_couplings = len(bundle.entities), max(len(of_bundle.value), 1)
    return {
        "bytes_per_coupling": (in_bundle + for_kernels + sum(array.nbytes for array in shared)) / n_couplings,
        "bytes_per_coupling_in_bundle": in_bundle / n_couplings,
        "dense_unary_bytes": bundle.unary.nbytes,
        "square_bytes": 2 * 8 * n * n,
    }


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def in_a_process(point: Point, *, quick: bool, loads: bool = False) -> Result:
    """`measure` in a fresh interpreter, single-threaded."""
    sys.stderr.write(f"scale {'x'.join(map(str, point))}\n")
    command = [sys.executable, __file__, "--point", "x".join(map(str, point))]
    command += ["--quick"] * quick + ["--loads"] * loads
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **threads})
    result: Result = json.loads(done.stdout)
    return result


def as_markdown(found: Result) -> str:
    """The tables as text."""
    lines = [
        "# Scale",
        "",
        f"Load {found['load']} at the start; {found['rounds']} decisions a point, `next_feature` and `observe`, by "
        "`priority_clusters` with gain `cmi` and score `linearity`; clusters are made anew at 0, 50 and 100 rounds. "
        "Times of the clock, but where it says processor: on a busy machine the first are longer.",
        "",
        "## The size of the goal",
        "",
        f"Goal: a median below {GOAL_MS:g} ms at 2000 x 5000. By `frontier` with a uniform background the goal is "
        f"{FRONTIER_MS:g} ms with 25 features an entity.",
        "",
        "| N x M | features an entity | couplings | median | p99 | max | met | median, processor | new clusters | max "
        "| fall-backs | certified() | `frontier`, median | processor |",
        "|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["goals"]:
        n, m, size, _ = row["point"]
        ms = [f"{1e3 * row[key]:.1f} ms" for key in ("median", "p99", "max")]
        processor = [f"{1e3 * row[key]:.1f} ms" for key in ("processor_median", "clustering_rounds", "processor_max")]
        over = 1e3 * row["median"] - GOAL_MS
        met = "yes" if over < 0 else f"**no**, {over:.0f} ms over"
        cells = [f"{n} x {m}", str(size), f"{row['couplings']:,}", *ms, met, *processor, str(row["fallbacks"])]
        cells += [f"{1e3 * row[key]:.1f} ms" for key in ("certified_seconds", "frontier_median", "frontier_processor")]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| N x M | features an entity | bytes a coupling | dense unary | two N x N tables | resident | load | pack "
        "| first planner | next planner |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["goals"]:
        n, m, size, _ = row["point"]
        memory = [f"{row[key] / 1e6:.0f} MB" for key in ("dense_unary_bytes", "square_bytes", "resident_bytes")]
        times = [f"{row[key]:.2f} s" for key in ("load_seconds", "pack_seconds", "first_planner", "next_planner")]
        cells = [f"{n} x {m}", str(size), f"{row['bytes_per_coupling']:.0f}", *memory, *times]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Growth"]
    for curve in found["curves"]:
        lines += [
            "",
            f"Against {curve['size']} ({curve['setting']}): median ~ {_power(curve['processor_median'])}, rounds with "
            f"new clusters ~ {_power(curve['clustering_rounds'])}, memory of a planner ~ "
            f"{_power(curve['planner_bytes'])}",
            "",
        ]
        lines += [
            f"| {curve['size']} | median, processor | new clusters, processor | median | p99 | max | planner MB |",
            "|---:|" + "---:|" * 6,
        ]
        for row in curve["points"]:
            shown = ("processor_median", "clustering_rounds", "median", "p99", "max")
            ms = [f"{1e3 * row[key]:.2f} ms" for key in shown]
            lines.append(f"| {row['size']} | " + " | ".join([*ms, f"{row['planner_bytes'] / 1e6:.0f}"]) + " |")
    return "\n".join(lines) + "\n"


def _power(slope: float | None) -> str:
    return "too few points" if slope is None else f"x^{slope:.2f}"


def _curve(size: str, setting: str, points: Sequence[tuple[int, Point]], *, quick: bool) -> Result:
    """One curve measured, and its exponents by least squares in log-log."""
    found = [{"size": at, **in_a_process(point, quick=quick)} for at, point in points]
    sizes = [float(at) for at, _ in points]
    slopes = {
        key: exponent(sizes, [max(row[key], 1e-9) for row in found])
        for key in ("processor_median", "clustering_rounds", "planner_bytes")
    }
    return {"size": size, "setting": setting, "points": found, **slopes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--point", help="measure one point and answer with JSON")
    parser.add_argument("--loads", action="store_true", help="with --point: write the bundle and time its reading")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    rounds = QUICK_ROUNDS if given.quick else ROUNDS
    if given.point:
        n, m, size, degree = map(int, given.point.split("x"))
        sys.stdout.write(json.dumps(measure((n, m, size, degree), rounds, loads=given.loads)))
        return
    if given.out is None:
        parser.error("--out is missing")
    found = {
        "load": round(os.getloadavg()[0], 2),
        "rounds": rounds,
        "goals": [in_a_process(point, quick=given.quick, loads=True) for point in goal_points(quick=given.quick)],
        "curves": [_curve(*curve, quick=given.quick) for curve in curves(quick=given.quick)],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "scale.json").write_text(json.dumps(found, indent=2) + "\n")
    text = as_markdown(found)
    (given.out / "scale.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
