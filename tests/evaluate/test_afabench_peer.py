"""Our methods under AFABench's own classes where they are present, and under calls recorded from its evaluator.

`AFA_AFABENCH` names a checkout of the benchmark, `../shared/peers/afabench` unless given; its code needs Python 3.12
and torch. There, `PYTHONPATH=CHECKOUT:. python tests/evaluate/test_afabench_peer.py` records the calls anew.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afa.evaluate.afabench import REGISTRY, TopKMethod

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("afabench_calls.json")
CHECKOUT = Path(os.environ.get("AFA_AFABENCH", ROOT.parent / "shared" / "peers" / "afabench"))
CUBE = runpy.run_path(str(ROOT / "benchmarks" / "cube.py"))
CONTEXTS = 5


def cube_nm(folder: Path) -> TopKMethod:
    method: TopKMethod = CUBE["planner"](CUBE["cube_nm_bundle"](folder))
    return method


@pytest.fixture
def method(tmp_path: Path) -> TopKMethod:
    return cube_nm(tmp_path / "knowledge")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Torch, once the benchmark's classes can be imported."""
    if sys.version_info < (3, 12):
        pytest.skip("AFABench needs Python 3.12")
    torch = pytest.importorskip("torch", reason="AFABench needs torch")
    if not (CHECKOUT / "afabench").is_dir():
        pytest.skip("no checkout of AFABench: set AFA_AFABENCH")
    monkeypatch.syspath_prepend(str(CHECKOUT))
    return torch


def evaluated(method: Any, samples: int, budget: int, calls: list[dict[str, Any]] | None = None) -> Any:
    """The benchmark's table of CUBE-NM, its unmasker and its evaluator."""
    from afabench.common.datasets.datasets import CubeNMDataset
    from afabench.common.unmaskers import CubeNMUnmasker

    def act(**given: Any) -> Any:
        answer = method.act(**given)
        if calls is not None:
            masks = {name: given[name].tolist() for name in ("feature_mask", "selection_mask")}
            seen = {"masked_features": given["masked_features"].numpy().round(3).tolist()}
            shape = {"feature_shape": list(given["feature_shape"])}
            calls.append(seen | masks | shape | {"action": answer.tolist()})
        return answer

    dataset = CubeNMDataset(n_samples=samples, seed=0)
    return CUBE["followed"](dataset, CubeNMUnmasker(CONTEXTS), act, method, budget)


def test_the_selections_are_those_of_the_benchmark_s_unmasker(method: TopKMethod) -> None:
    calls = json.loads(CALLS.read_text(encoding="utf-8"))
    assert any([1] in call["action"] for call in calls[:-1])  # the context, five features at once
    for call, after in pairwise(calls):
        revealed = np.array(after["feature_mask"]) & ~np.array(call["feature_mask"])
        for row, (action,) in zip(revealed, call["action"], strict=True):
            assert tuple(np.flatnonzero(row)) == method._selections[action - 1]


def test_recorded_calls_are_answered_by_the_protocol(method: TopKMethod) -> None:
    for call in json.loads(CALLS.read_text(encoding="utf-8")):
        seen, known = np.array(call["masked_features"], dtype=np.float32), np.array(call["feature_mask"])
        asked = np.array(call["selection_mask"])
        assert seen.shape == (3, 55)
        assert asked.shape == (3, 51)
        action = method.act(seen, known, asked, None, tuple(call["feature_shape"]))
        assert action.dtype == np.int64
        assert action.shape == (3, 1)
        assert not asked[np.arange(3), action[:, 0] - 1].any()
        predicted = method.predict(seen, known, None, tuple(call["feature_shape"]))
        np.testing.assert_allclose(predicted.sum(axis=1), 1, atol=1e-6)


def test_their_evaluator_runs_the_planner_to_its_budget(benchmark: Any, method: TopKMethod) -> None:
    table = evaluated(method, samples=4, budget=3)
    last = table.groupby("idx").tail(1)
    assert last["prev_selections_performed"].map(len).tolist() == [3] * 4
    assert last["forced_stop"].all()
    assert last["builtin_predicted_class"].between(0, 7).all()


def test_their_bundles_hold_our_method(benchmark: Any, method: TopKMethod, tmp_path: Path) -> None:
    from afabench.common.bundle import load_bundle, save_bundle
    from afabench.common.registry import REGISTERED_CLASSES

    REGISTERED_CLASSES.update(REGISTRY)
    save_bundle(method, tmp_path / "ours.bundle", {"dataset": "cube_nm"})
    loaded, manifest = load_bundle(tmp_path / "ours.bundle", device=benchmark.device("cpu"))
    assert manifest["class_name"] == "TopKMethod"
    assert isinstance(loaded, TopKMethod)
    assert loaded.device == benchmark.device("cpu")
    seen, known = benchmark.zeros((2, 55)), benchmark.zeros((2, 55), dtype=benchmark.bool)
    assert benchmark.equal(loaded.predict(seen, known), method.predict(seen, known))


if __name__ == "__main__":
    import tempfile

    recorded: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        evaluated(cube_nm(Path(made)), samples=3, budget=5, calls=recorded)
    CALLS.write_text(json.dumps(recorded) + "\n", encoding="utf-8")
