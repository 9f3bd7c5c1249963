"""Steps of tasks, spread over rounds or over the features of the support."""

import numpy as np
import pandas as pd
import pytest

from afa.evaluate.long_tables import Cube


def steps(rows):
    return pd.DataFrame(rows, columns=["patient", "entity", "seed", "step", "t", "wald"]).assign(allocation="random")


TWO_TASKS = steps(
    [
        ("p", "b", 0, 0, 0, 0.0),
        ("p", "b", 0, 1, 4, -1.0),
        ("p", "a", 0, 0, 0, 0.0),
        ("p", "a", 0, 1, 1, 2.0),
        ("p", "a", 0, 2, 3, 3.0),
    ]
)


@pytest.fixture
def cube():
    return Cube.of(TWO_TASKS, ["p"], ["a", "b"], 4)


def test_a_step_holds_from_its_round_until_the_next(cube):
    assert cube.by_round(cube.columns["wald"]).tolist() == [[[[0, 2, 2, 3, 3]], [[0, 0, 0, 0, -1]]]]


def test_counted_over_the_support_a_smaller_task_stays_at_its_end(cube):
    assert cube.by_step(cube.columns["wald"]).tolist() == [[[[0, 2, 3]], [[0, -1, -1]]]]


def test_the_order_of_rows_does_not_matter(cube):
    shuffled = Cube.of(TWO_TASKS.sample(frac=1, random_state=1), ["p"], ["a", "b"], 4)
    assert np.array_equal(shuffled.by_round(shuffled.signs("wald")), cube.by_round(cube.signs("wald")))


def test_a_patient_without_one_of_the_tasks_is_refused():
    with pytest.raises(ValueError, match="lacks a run"):
        Cube.of(TWO_TASKS[TWO_TASKS["entity"] == "a"], ["p"], ["a", "b"], 4)
