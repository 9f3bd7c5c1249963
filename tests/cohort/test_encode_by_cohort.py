"""The ternary code against the cohort itself: what is far from the median, in robust standard deviations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_build import CONFIG, ENTITIES, expression, samples

from afa.cohort.build import assemble, overridden, row_tiers
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig
from afa.cohort.encode import MAD_TO_SD, Coding, encode_by_cohort, robust_scale
from afa.cohort.samples import select
from afa.errors import CohortError

EIGHTHS = st.integers(-400, 400).map(lambda number: number / 8)


def table(values: Any) -> pd.DataFrame:
    values = np.asarray(values, dtype=float)
    return pd.DataFrame(values, [f"G{i}" for i in range(len(values))], [f"S{i}" for i in range(values.shape[1])])


def coded(values: list[float], threshold: float = 0.5) -> list[int]:
    return [int(code) for code in encode_by_cohort(table([values]), threshold=threshold).iloc[0]]


def made(**encoding: Any) -> Cohort:
    config = CohortConfig.model_validate(CONFIG | {"encoding": encoding})
    tiers = row_tiers(config, ["A", "FLAT"], {}, {})
    return assemble(config, select(samples(), config), expression(), tiers, ENTITIES)


def test_five_patients_by_hand() -> None:
    """Median 10, absolute deviations 3, 1, 0, 1, 9: a MAD of 1, so half a standard deviation is 0.7413."""
    assert coded([7.0, 9.0, 10.0, 11.0, 19.0]) == [-1, -1, 0, 1, 1]
    assert coded([7.0, 9.0, 10.0, 11.0, 19.0], threshold=1.0) == [-1, 0, 0, 0, 1]
    assert robust_scale(np.array([[7.0, 9.0, 10.0, 11.0, 19.0]])).tolist() == [MAD_TO_SD]


def test_a_value_on_the_threshold_is_not_beyond_it() -> None:
    assert coded([-2.0, -1.0, 0.0, 1.0, 2.0], threshold=2.0 / MAD_TO_SD) == [0, 0, 0, 0, 0]


def test_one_extreme_patient_moves_no_other_code() -> None:
    assert coded([7.0, 9.0, 10.0, 11.0, 1e6])[:4] == coded([7.0, 9.0, 10.0, 11.0, 19.0])[:4]


def test_a_gene_that_most_patients_share_one_value_of_says_nothing() -> None:
    assert coded([0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 0.0]) == [0] * 7


@given(hnp.arrays(float, (2, 9), elements=EIGHTHS), st.integers(-64, 64))
def test_the_code_follows_neither_shift_nor_scale_and_turns_with_the_sign(values: np.ndarray, shift: int) -> None:
    code = encode_by_cohort(table(values))
    pd.testing.assert_frame_equal(encode_by_cohort(table(4 * values + shift)), code)
    pd.testing.assert_frame_equal(encode_by_cohort(table(-values)), -code)


def test_a_value_that_is_not_finite_is_named() -> None:
    with pytest.raises(CohortError, match=r"gene G0, sample S1.*nan"):
        encode_by_cohort(table([[1.0, np.nan, 2.0]]))


def test_a_cohort_says_which_reference_it_was_encoded_against() -> None:
    """A is 900, 110 (of a library twice as deep) and 3 per million; controls play no part."""
    by_cohort = made(reference="cohort", threshold=0.25)
    assert by_cohort.provenance["encoding"] == {"reference": "cohort", "threshold": 0.25, "unit": "counts"}
    assert by_cohort.values[:, 0].tolist() == [1, 0, -1]
    assert by_cohort.provenance["genes_without_spread"] == ["FLAT"]
    by_controls = {
        "reference": "controls",
        "test": "empirical",
        "level": 0.05,
        "test_of_controls": "t",
        "unit": "counts",
    }
    assert made().provenance["encoding"] == by_controls


def test_a_given_coding_goes_before_the_cohorts_own() -> None:
    config = CohortConfig.model_validate(CONFIG | {"encoding": {"test": "t", "level": 0.01}})
    tiers = row_tiers(config, ["A"], {}, {})
    coding = Coding(reference="cohort")
    cohort = assemble(config, select(samples(), config), expression(), tiers, ENTITIES, coding=coding)
    assert cohort.provenance["encoding"]["reference"] == "cohort"
    assert overridden(Coding("controls"), config.encoding) == Coding("controls", "t", 0.01)
