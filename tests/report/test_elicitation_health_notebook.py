"""The notebook on the elicitation's health with a record; test_every_figure.py draws it without one."""

import re

import numpy as np
import pandas as pd
import pytest
from test_every_figure import alike, draw, invoke, panels, unreadable

from afa.bundle import save_bundle
from afa.cohort.cohort import Cohort, write_cohort


@pytest.fixture(scope="module")
def run(recorded_bundle, recorded_elicitation, tmp_path_factory):
    """A run of twenty random patients on the recorded bundle; half of its phenotypes have labels."""
    folder = tmp_path_factory.mktemp("health")
    random = np.random.default_rng(5)
    names = tuple(f"p{i}" for i in range(20))
    values = random.integers(-1, 2, (20, len(recorded_bundle.features))).astype(np.int8)
    chosen = list(recorded_bundle.entities[::2])
    labels = pd.DataFrame(random.integers(0, 2, (20, len(chosen))), list(names), chosen).astype("Int8")
    cohort = Cohort("tiny", recorded_bundle.features, names, values, labels, {"origin": "simulated"})
    write_cohort(cohort, folder / "cohort")
    save_bundle(recorded_bundle, folder / "bundle")
    tables, rows = f"{folder}/tables/elicitation_health", f"{folder}/curves/elicitation_health.parquet"
    inputs = ("--bundle", f"{folder}/bundle", "--cohort", f"{folder}/cohort", f"--input=study={recorded_elicitation}")
    quick = ("--settings", '{"bootstrap": {"resamples": 100}}')
    invoke("stage", "elicitation_health", *inputs, *quick, "--out", tables)
    invoke("summarise", "elicitation_health", tables, *quick, "--out", rows)
    return folder


def test_all_panels_have_something_to_show_and_can_be_read_and_told_apart(run, tmp_path):
    figure = draw("elicitation_health", run, tmp_path / "drawn.svg")
    assert unreadable(figure) == []
    assert alike(figure) == []
    assert len(panels(figure)) == 6
    assert all(axes.get_xticks().size for axes in panels(figure))
    assert all(re.search(r"\nn = [1-9][\d,]* [a-z]", axes.get_title(loc="left")) for axes in panels(figure))
