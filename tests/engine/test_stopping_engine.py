"""Where the engine ends an acquisition is where the planners end it, with the same answer and for the same reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from bundles import bundle_of
from numpy.typing import NDArray

from afa.engine.paths import stopping_quantities, task_stopping_quantities
from afa.engine.tasks import follow_gain, task_of
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.paper.experiments.settings import Stopping
from afa.paper.experiments.stopping import Halt, stops
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.planner.base import ALL_OBSERVED, Planner

LEVELS = Stopping(probabilities=(0.6, 0.8, 0.9, 0.99), gains=(0.3, 0.05, 0.001), budgets=(0.0, 0.25, 0.6))
REASONS = {
    "certain": "no remaining measurement can change the answer",
    "probability": "the answer stays with probability",
    "posterior": "the answer has posterior probability",
    "gain": "the largest gain left",
    "budget": "no remaining feature is affordable",
}


@pytest.fixture
def six() -> Bundle:
    """Six entities on eight features, couplings at a quarter of the pairs."""
    random = np.random.default_rng(11)
    unary = random.integers(-2, 3, (6, 8)) / 2
    couplings = random.integers(-2, 3, (6, 8, 8)) / 2 * (random.random((6, 8, 8)) < 0.25)
    return bundle_of(unary, couplings)


def patients(bundle: Bundle, n: int) -> NDArray[np.int8]:
    return np.random.default_rng(3).integers(-1, 2, (n, len(bundle.features))).astype(np.int8)


def option(halt: Halt, bundle: Bundle) -> dict[str, Any]:
    """What `Stop` is asked for."""
    stopping, level = halt
    if stopping == "certain":
        return {"certain": True}
    return {stopping: level * len(bundle.features) if stopping == "budget" else level}


def walk(planner: Planner, row: NDArray[np.int8]) -> list[int]:
    """Ask and tell until the planner stops; the features in their order."""
    column = {name: j for j, name in enumerate(planner.bundle.features)}
    order = []
    while (feature := planner.next_feature()) is not None:
        planner.observe(feature, int(row[column[feature]]))
        order.append(column[feature])
    return order


def why(planner: Planner) -> str:
    """The rule of stopping that the planner names."""
    if planner.reason == ALL_OBSERVED:
        return "all observed"
    return next(stopping for stopping, words in REASONS.items() if planner.reason.startswith(words))


def top_k_cases() -> Iterator[tuple[str, int, str]]:
    for name, k in (("bundle_tiny", 1), ("six", 2), ("six", 5)):
        for allocation in ("greedy", "priority_all", "random"):
            yield name, k, allocation


@pytest.mark.parametrize(("name", "k", "allocation"), [*top_k_cases()])
def test_every_rule_stops_a_top_k_planner_where_the_engine_says(
    name: str, k: int, allocation: str, request: pytest.FixtureRequest
) -> None:
    bundle: Bundle = request.getfixturevalue(name)
    values = patients(bundle, 3)

    def planner(patient: int, stop: Stop | None) -> TopKPlanner:
        return TopKPlanner(bundle, k=k, allocation=allocation, costs="equal", stop=stop, patient=f"p{patient}", seed=4)

    orders = np.array([walk(planner(i, None), row) for i, row in enumerate(values)])
    watched, early = stopping_quantities(bundle, values, orders, k=k, threads=1), set()
    for halt, rounds in stops(LEVELS, watched):
        for i, row in enumerate(values):
            ours = planner(i, Stop(**option(halt, bundle)))
            walk(ours, row)
            assert len(ours.observed) == rounds[i], halt
            assert why(ours) == (halt[0] if rounds[i] < len(row) else "all observed"), halt
            inside = {bundle.entities[v] for v in np.flatnonzero(watched.inside[i, rounds[i]])}
            assert set(ours.top_k()) == inside, halt
            early |= {halt[0]} if rounds[i] < len(row) else set()
    assert early >= {"probability", "gain", "budget"}, "a bundle on which no rule stops early tests nothing"


@pytest.mark.parametrize("allocation", ["greedy", "random"])
@pytest.mark.parametrize("name", ["bundle_tiny", "six"])
def test_every_rule_stops_a_binary_planner_where_the_engine_says(
    name: str, allocation: str, request: pytest.FixtureRequest
) -> None:
    bundle: Bundle = request.getfixturevalue(name)
    values, early = patients(bundle, 2), set()
    random = np.array([random_order(bundle.features, patient=f"p{i}", seed=4) for i in range(len(values))])
    for entity in bundle.entities:
        watched = task_stopping_quantities(
            task_of(bundle, entity), values, random if allocation == "random" else None, threads=1
        )
        for halt, rounds in stops(LEVELS, watched):
            for i, row in enumerate(values):
                planner = BinaryPlanner(
                    bundle,
                    entity=entity,
                    allocation=allocation,
                    costs="equal",
                    stop=Stop(**option(halt, bundle)),
                    patient=f"p{i}",
                    seed=4,
                )
                walk(planner, row)
                assert len(planner.observed) == rounds[i], (entity, halt)
                assert why(planner) == (halt[0] if rounds[i] < len(row) else "all observed"), (entity, halt)
                assert planner.decision() == watched.decision[i, rounds[i]], (entity, halt)
                early |= {halt[0]} if rounds[i] < len(row) else set()
    assert early == set(REASONS) - {"posterior"}


def test_the_numbers_that_rules_look_at_are_the_planners_at_every_round(six: Bundle) -> None:
    values = patients(six, 2)
    orders = np.array([random_order(six.features, patient=f"p{i}", seed=0) for i in range(len(values))])
    watched = stopping_quantities(six, values, orders, k=2, threads=1)
    of_task = task_stopping_quantities(task_of(six, "v3"), values, orders, threads=1)
    for i, row in enumerate(values):
        planner, task = TopKPlanner(six, k=2), BinaryPlanner(six, entity="v3")
        for t, feature in enumerate([*orders[i], None]):
            for one, seen in ((planner, watched), (task, of_task)):
                assert one.certain() == seen.certain[i, t]
                assert one.confidence() == pytest.approx(seen.probability[i, t], abs=1e-12)
                if feature is not None:
                    gain = one.explain(1)["gain"].max()
                    assert gain == pytest.approx(seen.gain[i, t], abs=1e-12)
                    one.observe(six.features[feature], int(row[feature]))


def test_greedy_stops_of_a_task_lie_on_the_path_of_its_decision_tree(six: Bundle) -> None:
    values, walked = patients(six, 20), 0
    for entity in six.entities:
        task = task_of(six, entity)
        watched, paths = task_stopping_quantities(task, values, None, threads=1), follow_gain(task, values, gain="cmi")
        for i in range(len(values)):
            # both choose alike until one of them is certain: of the posterior's side here, of the sign of S there
            resolved_sign = watched.certain[i, paths.t[i, 0]] | (paths.calls[i, 0, :, 0] != 0)
            alike = int(np.argmax(resolved_sign)) + 1 if resolved_sign.any() else len(resolved_sign)
            odds = paths.two_elbo[i, 0, :alike] - task.shift
            expected = np.where(np.abs(odds) <= task.tie, 0, np.sign(odds))
            assert (watched.decision[i, paths.t[i, 0, :alike]] == expected).all()
            walked += alike
    assert walked > 3 * len(values) * len(six.entities)


def test_a_certain_task_is_decided_as_every_completion_decides_it(six: Bundle) -> None:
    values, seen = patients(six, 6), 0
    orders = np.array([random_order(six.features, patient=f"p{i}", seed=1) for i in range(len(values))])
    for entity in six.entities:
        task = task_of(six, entity)
        watched = task_stopping_quantities(task, values, orders, threads=1)
        one, zero = (task.bundle.mrf(name) for name in task.bundle.entities)
        for i, row in enumerate(values):
            for t in np.flatnonzero(watched.certain[i]):
                open_ = orders[i, t:]
                completions = np.tile(row, (3 ** len(open_), 1))
                completions[:, open_] = list(product((-1, 0, 1), repeat=len(open_)))
                odds = one.energies(completions) - zero.energies(completions) - task.shift
                assert (np.sign(odds) == watched.decision[i, t]).all()
                seen += 1
    assert seen > 50


def test_the_number_of_threads_changes_no_byte(six: Bundle) -> None:
    values = patients(six, 9)
    orders = np.array([random_order(six.features, patient=str(i), seed=0) for i in range(len(values))])
    task = task_of(six, "v0")
    for one, three in (
        (
            stopping_quantities(six, values, orders, k=2, threads=1),
            stopping_quantities(six, values, orders, k=2, threads=3),
        ),
        (
            task_stopping_quantities(task, values, None, threads=1),
            task_stopping_quantities(task, values, None, threads=3),
        ),
    ):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, three, strict=True))
