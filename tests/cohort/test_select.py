from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.config import CohortConfig
from afa.cohort.select import select
from afa.errors import CohortError

BASE: dict[str, Any] = {
    "name": "small",
    "title": "A small series",
    "series": "GSE1",
    "expression": {"layout": "count_matrix", "file": "counts.txt.gz", "unit": "tpm"},
    "metadata_file": "GSE1_series_matrix.txt.gz",
    "controls": {"key": "diagnosis", "values": ["Control"]},
    "patients": {"key": "diagnosis", "values": ["UC"]},
}


def config(**changes: Any) -> CohortConfig:
    return CohortConfig.model_validate(BASE | changes)


def series() -> pd.DataFrame:
    rows = [
        ("S1", "P_1_Biopsy_4, UC", "UC", "Rectum", "quiet"),
        ("S2", "P_1_Biopsy_9, UC", "UC", "Rectum", "inflamed"),
        ("S3", "P_1_Biopsy_10, UC", "UC", "Rectum", "inflamed"),
        ("S4", "P_2_Biopsy_2, Control", "Control", "Rectum", "quiet"),
        ("S5", "P_2_Biopsy_1, Control", "Control", "Rectum", "quiet"),
        ("S6", "P_3_Biopsy_3, UC", "UC", "Ileum", "inflamed"),
        ("S7", "P_4_Biopsy_5, UC", "UC_Pouch", "Rectum", "inflamed"),
    ]
    table = pd.DataFrame(rows, columns=["sample", "title", "diagnosis", "site", "state"])
    return table.set_index("sample")


FULL = {
    "derive": {
        "participant": {"source": "title", "pattern": r"P_(\d+)_"},
        "biopsy": {"source": "title", "pattern": r"Biopsy_(\d+)"},
    },
    "keep": {"site": ["Rectum"]},
    "drop": {"diagnosis": ["UC_Pouch"]},
    "one_per": {"key": "participant", "prefer": {"state": ["inflamed"]}, "then": "biopsy"},
}


def test_without_a_selection_every_sample_of_the_two_groups_takes_part() -> None:
    chosen = select(series(), config())
    assert chosen.controls == ("S4", "S5")
    assert chosen.patients == ("S1", "S2", "S3", "S6")
    assert chosen.steps == (("in the series", 7), ("controls", 2), ("patients", 4))


def test_one_per_prefers_the_listed_value_and_then_the_least_number_not_the_least_text() -> None:
    chosen = select(series(), config(select=FULL))
    assert chosen.patients == ("S2",), "inflamed before quiet, and 9 before 10"
    assert chosen.controls == ("S5",), "biopsy 1 before 2, controls by the same rule"
    assert list(chosen.samples.index) == ["S2", "S5"]


def test_the_steps_count_the_samples_left_in_the_order_of_the_rules() -> None:
    assert select(series(), config(select=FULL)).steps == (
        ("in the series", 7),
        ("keep site: Rectum", 6),
        ("drop diagnosis: UC_Pouch", 5),
        ("one per participant", 2),
        ("controls", 1),
        ("patients", 1),
    )


def test_a_value_to_drop_that_the_series_lacks_drops_nothing() -> None:
    assert select(series(), config(select={"drop": {"site": ["Pouch"]}})).steps[1][1] == 7


@given(st.permutations(range(7)))
def test_the_samples_chosen_do_not_depend_on_the_order_of_the_series(order: list[int]) -> None:
    chosen = select(series().iloc[order], config(select=FULL))
    assert (chosen.controls, chosen.patients) == (("S5",), ("S2",))


def test_the_samples_given_are_left_as_they_were() -> None:
    given_samples = series()
    select(given_samples, config(select=FULL))
    pd.testing.assert_frame_equal(given_samples, series())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"controls": {"key": "disease", "values": ["Control"]}}, "no sample characteristic 'disease'"),
        ({"select": {"keep": {"region": ["Rectum"]}}}, "one of: title, diagnosis, site, state"),
        ({"select": {"derive": {"site": {"source": "title", "pattern": "(x)"}}}}, "a new name"),
        ({"select": {"derive": {"arm": {"source": "title", "pattern": "arm (x)"}}}}, "no sample whose title matches"),
        ({"select": {"one_per": {"key": "site", "then": "state"}}}, "no number in state"),
        ({"patients": {"key": "diagnosis", "values": ["UC", "Control"]}}, "2 samples in both"),
    ],
)
def test_a_rule_that_does_not_fit_the_series_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CohortError, match=said):
        select(series(), config(**changes))


def test_a_series_without_controls_is_refused_with_the_values_that_there_are() -> None:
    with pytest.raises(CohortError, match=r"key controls.*'UC' \(4\).*cannot be encoded"):
        select(series().query("diagnosis != 'Control'"), config())


def test_a_series_without_patients_is_refused() -> None:
    with pytest.raises(CohortError, match=r"key patients.*'Control' \(2\)"):
        select(series().query("diagnosis == 'Control'"), config())


def test_a_sample_without_a_value_for_one_per_is_named() -> None:
    samples = series()
    samples.loc["S6", "participant"] = "NA"
    samples["participant"] = samples["participant"].fillna("1")
    with pytest.raises(CohortError, match="no participant in 1 samples, such as S6"):
        select(samples, config(select={"one_per": {"key": "participant"}}))


def test_missing_cells_that_a_reader_left_as_nan_count_as_empty() -> None:
    samples = series()
    samples.loc["S1", "diagnosis"] = np.nan
    assert "S1" not in select(samples, config()).patients
