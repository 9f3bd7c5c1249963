from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from afa.cohort.encode import (
    choose_rows,
    encode_by_controls,
    encode_controls,
    least_controls,
    log_values,
    reach,
    without_spread,
)
from afa.errors import CohortError

# Multiples of 1/8 of moderate size: sums are exact, so that ties are ties.
EIGHTHS = st.integers(-400, 400).map(lambda number: number / 8)


def table(values: list[list[float]] | np.ndarray) -> pd.DataFrame:
    values = np.asarray(values, dtype=float)
    return pd.DataFrame(values, [f"G{i}" for i in range(len(values))], [f"S{i}" for i in range(values.shape[1])])


def coded(controls: list[float], patients: list[float], **options: object) -> list[int]:
    is_control = [True] * len(controls) + [False] * len(patients)
    result = encode_by_controls(table([[*controls, *patients]]), is_control, **options)  # type: ignore[arg-type]
    return [int(value) for value in result.iloc[0, len(controls) :]]


def test_with_twenty_controls_only_values_beyond_all_of_them_are_significant() -> None:
    controls = [float(value) for value in range(-10, 11) if value]
    assert coded(controls, [10.5, -10.5, 9.5, 0.0, 400.0]) == [1, -1, 0, 0, 1]


def test_a_value_equal_to_the_farthest_control_counts_that_control() -> None:
    controls = [float(value) for value in range(-10, 11) if value]
    assert coded(controls, [10.0, -10.0]) == [0, 0]


def test_distance_is_from_the_mean_so_a_mirrored_control_counts_too() -> None:
    controls = [0.0] * 10 + [0.1] * 9 + [1.0]
    centre = sum(controls) / 20
    assert coded(controls, [2 * centre - 1.0]) == [0], "as far below the mean as the farthest control lies above"
    assert coded(controls, [2 * centre - 1.0 - 1e-6]) == [-1]


def test_empirical_by_hand() -> None:
    controls = np.array([[-2.0, -1.0, 1.0, 2.0]])
    reached = [float(reach(controls, "empirical", level)[0, 0]) for level in (0.2, 0.21, 0.41, 0.61, 0.81)]
    assert reached == pytest.approx([np.inf, 2.0, 2.0, 1.0, 1.0])


@given(hnp.arrays(float, (3, 7), elements=EIGHTHS), hnp.arrays(float, (3, 4), elements=EIGHTHS))
def test_empirical_equals_the_count_as_it_is_written(controls: np.ndarray, values: np.ndarray) -> None:
    p = np.empty_like(values)
    for gene in range(3):
        exact = [8 * 7 * value for value in controls[gene]]
        centre = sum(8 * value for value in controls[gene])
        for sample in range(4):
            distance = abs(8 * 7 * values[gene, sample] - centre)
            p[gene, sample] = (1 + sum(abs(value - centre) >= distance for value in exact)) / 8
    is_control = np.arange(11) < 7
    for level in (1 / 8 + 1e-9, 0.3, 0.5, 0.9):
        code = encode_by_controls(table(np.hstack([controls, values])), is_control, level=level).to_numpy()[:, 7:]
        beside = np.abs(values - controls.mean(axis=1, keepdims=True)) > 1e-9
        np.testing.assert_array_equal((code != 0) & beside, (p < level) & beside)


@given(
    hnp.arrays(float, (2, 26), elements=EIGHTHS),
    st.sampled_from(["empirical", "normal", "t"]),
    st.integers(-64, 64),
)
def test_the_code_does_not_change_when_a_gene_is_shifted(values: np.ndarray, test: str, shift: int) -> None:
    is_control = np.arange(26) < 20
    before = encode_by_controls(table(values), is_control, test=test)  # type: ignore[arg-type]
    after = encode_by_controls(table(values + shift), is_control, test=test)  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(before, after)


@given(hnp.arrays(float, (2, 26), elements=EIGHTHS), st.permutations(range(26)))
def test_the_code_follows_the_samples_when_they_are_permuted(values: np.ndarray, order: list[int]) -> None:
    is_control = np.arange(26) < 20
    whole = encode_by_controls(table(values), is_control)
    permuted = encode_by_controls(table(values).iloc[:, order], is_control[order])
    pd.testing.assert_frame_equal(permuted[whole.columns], whole)


@given(hnp.arrays(float, (2, 26), elements=EIGHTHS))
def test_mirrored_values_have_the_opposite_code(values: np.ndarray) -> None:
    is_control = np.arange(26) < 20
    np.testing.assert_array_equal(
        encode_by_controls(table(-values), is_control), -encode_by_controls(table(values), is_control)
    )


def test_a_patient_is_coded_alike_whoever_else_is_coded() -> None:
    controls = list(np.linspace(4.0, 6.0, 20))
    assert coded(controls, [9.0]) == coded(controls, [9.0, 1e9, -1e9])[:1] == [1]


def test_normal_is_the_test_of_the_z_statistic() -> None:
    controls = np.array([[1.0, 2.0, 3.0, 4.0]])
    p = 2 * stats.norm.cdf(-(6.0 - 2.5) / np.std(controls, ddof=1))
    np.testing.assert_allclose(reach(controls, "normal", p), [[6.0 - 2.5]])


def test_predictive_t_equals_the_two_sample_t_test_of_one_new_value() -> None:
    controls = np.array([[1.0, 2.0, 3.0, 4.5]])
    expected = stats.ttest_ind([6.0], controls[0], equal_var=True).pvalue
    np.testing.assert_allclose(reach(controls, "t", expected), [[6.0 - controls.mean()]])


def test_the_predictive_t_is_more_careful_than_the_normal() -> None:
    controls = [float(value) for value in range(12)]
    edge = 5.5 + 2.1 * float(np.std(controls, ddof=1))
    assert coded(controls, [edge], test="normal") == [1]
    assert coded(controls, [edge], test="t") == [0]


def test_the_level_is_strict() -> None:
    controls = [float(value) for value in range(19)]
    assert coded(controls, [100.0], level=0.0501) == [1]
    assert coded([*controls, 19.0], [100.0], level=0.05) == [1]


@pytest.mark.parametrize(("level", "needed"), [(0.05, 20), (0.01, 100), (0.1, 10), (0.5, 2), (0.9, 1), (0.3, 3)])
def test_the_least_number_of_controls_is_the_first_that_can_reach_the_level(level: float, needed: int) -> None:
    assert least_controls(level) == needed
    assert 1 / (needed + 1) < level
    assert needed == 1 or not 1 / needed < level


@pytest.mark.parametrize("count", [12, 19])
def test_empirical_with_too_few_controls_is_refused_and_names_t(count: int) -> None:
    with pytest.raises(CohortError, match=rf"{count} controls; expected at least 20.*test: t"):
        coded([float(value) for value in range(count)], [50.0])


def test_twelve_controls_are_enough_for_t() -> None:
    assert coded([float(value) for value in range(12)], [50.0, -50.0, 5.0], test="t") == [1, -1, 0]


def test_one_control_is_too_few_for_any_test() -> None:
    with pytest.raises(CohortError, match="expected at least 2"):
        coded([1.0], [2.0], test="t")


@pytest.mark.parametrize("test", ["empirical", "normal", "t"])
def test_a_gene_without_spread_among_the_controls_is_tested_by_rank(test: str) -> None:
    assert coded([0.1] * 20, [0.1, 0.1 + 1e-6, -3.0], test=test) == [0, 1, -1]


def test_a_gene_without_spread_is_refused_where_rank_cannot_reach_the_level() -> None:
    with pytest.raises(CohortError, match="12 controls and 1 genes without spread among them: G0"):
        coded([0.1] * 12, [5.0], test="t")


def test_genes_without_spread_are_told_from_those_with_little() -> None:
    np.testing.assert_array_equal(
        without_spread(np.array([[0.1] * 3, [0.1, 0.1, 0.1001], [0.0] * 3])), [True, False, True]
    )


def test_a_value_that_is_not_finite_names_gene_and_sample() -> None:
    values = table(np.zeros((2, 21)))
    values.iloc[1, 20] = np.nan
    with pytest.raises(CohortError, match="gene G1, sample S20"):
        encode_by_controls(values, np.arange(21) < 20)


def test_controls_are_coded_against_themselves_when_they_are_asked_for() -> None:
    values = table([[*map(float, range(20)), 100.0]])
    result = encode_by_controls(values, np.arange(21) < 20)
    assert result.shape == (1, 21)
    assert result.dtypes.unique().tolist() == [np.dtype("int8")]
    assert not result.iloc[0, :20].any(), "a control is never beyond all controls"


def test_tpm_becomes_log2_of_one_more_and_keeps_its_floor() -> None:
    result = log_values(table([[0.01, 3.0, 0.0]]), "tpm", pd.Series(dtype=float))
    np.testing.assert_allclose(result, [[np.log2(1.01), 2.0, 0.0]])


def test_counts_are_divided_by_the_library_size_of_their_sample() -> None:
    sizes = pd.Series({"S1": 2e6, "S0": 1e6})
    np.testing.assert_allclose(log_values(table([[3.0, 6.0]]), "counts", sizes), [[2.0, 2.0]])


def test_log2_values_stay_as_they_are_even_below_zero() -> None:
    np.testing.assert_array_equal(log_values(table([[-2.5, 3.0]]), "log2", pd.Series(dtype=float)), [[-2.5, 3.0]])


@pytest.mark.parametrize(
    ("value", "unit", "size", "said"),
    [
        (-1.0, "tpm", 1.0, "gene G0, sample S0.*zero or more"),
        (np.inf, "log2", 1.0, "gene G0, sample S0.*finite"),
        (5.0, "counts", 0.0, "sample S0.*library of 0 counts"),
    ],
)
def test_values_that_cannot_be_of_the_unit_are_refused(value: float, unit: str, size: float, said: str) -> None:
    with pytest.raises(CohortError, match=said):
        log_values(table([[value]]), unit, pd.Series({"S0": size}))  # type: ignore[arg-type]


def test_of_several_rows_the_one_of_highest_mean_over_the_controls_is_taken() -> None:
    values = table([[1.0, 1.0, 90.0], [2.0, 3.0, 0.0], [2.0, 3.0, 5.0], [7.0, 7.0, 7.0]])
    values.index = pd.Index(["A", "A", "A", "B"])
    picked, read_from = choose_rows(values, {"B": ["B"], "gene": ["A", "C"], "absent": ["D"]}, ["S0", "S1"])
    assert list(picked.index) == ["B", "gene"]
    assert picked.loc["gene"].tolist() == [2.0, 3.0, 0.0], "the patient's 90 does not count; of equals the first"
    assert read_from == {"B": "B", "gene": "A"}


@pytest.mark.parametrize("test", ["empirical", "normal", "t"])
def test_a_control_is_coded_as_a_patient_would_be_against_the_others(test: str) -> None:
    random = np.random.default_rng(5)
    values = np.round(random.normal(size=(4, 24)) * 3, 1)
    values[0, :] = 2.0
    values[0, 7] = 9.0
    code, used = encode_controls(table(values), test=test)  # type: ignore[arg-type]
    assert used == test
    for place in range(24):
        others = np.delete(values, place, axis=1)
        seen = np.column_stack([others, values[:, place]])
        expected = encode_by_controls(table(seen), [True] * 23 + [False], test=test)  # type: ignore[arg-type]
        np.testing.assert_array_equal(code.iloc[:, place], expected.iloc[:, -1])
    assert (code != 0).to_numpy().any()
    assert code.iloc[0, 7] == 1


def test_with_one_control_too_few_for_the_ranks_t_stands_in_for_them() -> None:
    random = np.random.default_rng(6)
    values = table(random.normal(size=(40, 20)))
    values.iloc[0, 0] = 50.0
    values.iloc[1, :] = 0.0
    values.iloc[1, 3] = 8.0
    code, used = encode_controls(values)
    assert used == "t"
    assert code.iloc[0, 0] == 1
    assert code.iloc[1, 3] == 0, "its gene has no spread among the others, and 19 ranks cannot reach 0.05"
    assert 0.01 < (code.to_numpy() != 0).mean() < 0.12
    assert encode_controls(values.iloc[:, :2])[0].shape == (40, 0)
