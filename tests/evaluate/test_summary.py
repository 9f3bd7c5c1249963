"""summary.csv: a fixed form, so that two runs compare with a diff."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from afa.cohort.cohort import Cohort
from afa.engine.run import ENGINE_SCORES
from afa.errors import ConfigError
from afa.evaluate.summary import (
    COLUMNS,
    KEYS,
    METRICS,
    PRINTED_ROUNDS,
    TABLES,
    headline,
    in_order,
    join_summaries,
    labelled,
    published_rows,
    read_summary,
    summary_rows,
    write_summary,
)
from afa.model.bundle import Bundle
from afa.paper.experiments.settings import Bootstrap, Inference, RandomOrder
from afa.paper.experiments.sign import run, summarise
from afa.paper.report.paper_tables import PAPER_FEATURES

PAGE = Path(__file__).parents[2] / "docs" / "summary.md"
PAPER = Path(__file__).parents[2] / "resources" / "paper"
ROW = {"metric": "accuracy", "method": "wald", "t": 0, "value": 0.5}
EMPTY_OR_TEXT = [name for name in KEYS if name not in ("level", "t")]


def rows(*changes: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([ROW | change for change in changes])


def tiny_cohort(bundle: Bundle, n: int = 6) -> Cohort:
    values = np.random.default_rng(5).integers(-1, 2, (n, len(bundle.features))).astype(np.int8)
    names = tuple(f"p{i}" for i in range(n))
    return Cohort("tiny", bundle.features, names, values, pd.DataFrame(index=list(names)))


@pytest.fixture(scope="module")
def sign_rows(bundle_tiny: Bundle) -> pd.DataFrame:
    order = RandomOrder(seeds=(0, 1), starts=("uniform",))
    tables = run(bundle_tiny, tiny_cohort(bundle_tiny), range(6), random_order=order, inference=Inference())
    return summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9))


@pytest.fixture
def written(sign_rows: pd.DataFrame, tmp_path: Path) -> pd.DataFrame:
    write_summary([sign_rows], tmp_path / "summary.csv")
    return pd.read_csv(tmp_path / "summary.csv", dtype=str, keep_default_na=False)


def test_the_columns_stand_in_their_fixed_order(written: pd.DataFrame) -> None:
    assert ",".join(written.columns) == (
        "table,metric,quantity,method,guide,gain,allocation,schedule,stratum,variant,"
        "entity,target,reference,coupling,start,level,t,value,low,high,n"
    )


def test_every_column_table_and_metric_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*COLUMNS, *TABLES, *METRICS) if f"`{name}`" not in page] == []


def test_no_table_or_metric_is_listed_twice() -> None:
    assert len(set(TABLES)) == len(TABLES)
    assert len(set(METRICS)) == len(METRICS)


def test_columns_that_do_not_apply_are_empty() -> None:
    whole = summary_rows("binary", rows({}))
    assert list(whole.columns) == COLUMNS
    assert whole["table"].tolist() == ["binary"]
    assert whole[["guide", "gain", "low", "n"]].isna().all(axis=None)


def test_a_table_that_has_no_place_of_its_own_follows_by_name() -> None:
    assert in_order(["toy", "sanity", "binary", "better"]) == ["binary", "sanity", "better", "toy"]


@pytest.mark.parametrize(
    ("change", "named"),
    [({"metric": "precision"}, "precision"), ({"patient": "p1"}, "patient")],
    ids=["metric", "column"],
)
def test_an_unknown_metric_or_column_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=f"not in the summary's form: {named}"):
        summary_rows("binary", rows(change))


@pytest.mark.parametrize("name", ["quantity", "stratum", "variant", "reference"])
def test_a_cell_of_more_than_one_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"binary, {name}: one word each, not 'clusters=5 entities'"):
        summary_rows("binary", rows({name: "clusters=5 entities"}))
    assert len(summary_rows("binary", rows({name: "l1_tight"}, {"entity": "Crohn's disease, ileal"}))) == 2


def test_the_headline_differs_in_nothing() -> None:
    differing = [{"quantity": "q25"}, {"stratum": "tied"}, {"variant": "flip"}, {"level": 0.5}]
    whole = summary_rows("binary", rows({}, {"t": 1}, *differing))
    assert headline(whole)["t"].tolist() == [0, 1]


def test_of_the_grid_the_papers_schedule_is_shown_and_two_rules_at_its_round() -> None:
    cell = {"method": "linearity", "guide": "linearity", "allocation": "greedy", "schedule": "paper", "t": 100}
    gap = cell | {"metric": "gap"}
    kept = [cell, gap | {"reference": "random"}, gap | {"reference": "clustered", "t": 150}]
    kept += [cell | {"allocation": "random", "schedule": "every"}]
    left = [cell | {"schedule": "every"}, cell | {"method": "wald"}, gap | {"reference": "clustered"}]
    whole = summary_rows("allocation_sign", rows(*kept, *left))
    pd.testing.assert_frame_equal(published_rows(whole), whole.head(len(kept)))
    of_tasks = summary_rows("binary", rows(*kept, *left))
    assert len(published_rows(of_tasks)) == len(of_tasks)


def test_two_rows_with_one_key_are_refused_whatever_their_values() -> None:
    with pytest.raises(ValueError, match="binary has two rows with the same key"):
        summary_rows("binary", rows({}, {"value": 0.7}))
    assert len(summary_rows("binary", rows({}, {"t": 1}, {"method": "linearity"}))) == 3


def test_tables_are_written_in_their_order_and_rows_as_given(tmp_path: Path) -> None:
    late = summary_rows("sanity", rows({"t": 3}, {"t": 1}))
    early = summary_rows("binary", rows({"t": 2}, {"t": 1}))
    write_summary([late, early], tmp_path / "summary.csv")
    read = pd.read_csv(tmp_path / "summary.csv")
    assert list(zip(read["table"], read["t"], strict=True)) == [
        ("binary", 2),
        ("binary", 1),
        ("sanity", 3),
        ("sanity", 1),
    ]


def test_joined_curves_are_the_file_of_their_rows_that_tables_show(sign_rows: pd.DataFrame, tmp_path: Path) -> None:
    named = {"entity": '=a, "b"\nc'}
    tables = [summary_rows("sanity", rows({"t": 10}, named)), sign_rows, summary_rows("binary", rows({"value": 1 / 3}))]
    for i, table in enumerate(tables):
        write_summary([table], tmp_path / f"{i}.parquet")
    join_summaries([tmp_path / f"{i}.parquet" for i in range(3)], tmp_path / "joined.csv")
    write_summary(
        [published_rows(table) for table in tables[:1]] + [published_rows(pd.concat(tables[1:]))],
        tmp_path / "whole.csv",
    )
    assert len(read_summary(tmp_path / "joined.csv")) == len(read_summary(tmp_path / "whole.csv")) > 50


def test_tables_show_the_rounds_and_the_end_of_a_curve_and_no_single_entity_of_it() -> None:
    curve = rows(*({"t": t} for t in range(31)), {"t": None, "entity": "v"}, {"t": 10, "entity": "v"})
    found = published_rows(summary_rows("binary", curve))
    assert found["t"].dropna().tolist() == [0, 2, 5, 10, 20, 25, 30]
    assert found["entity"].dropna().tolist() == ["v"]


def test_the_rounds_that_the_paper_prints_are_among_those_shown() -> None:
    tables = [pd.read_csv(path) for path in PAPER.glob("tab_*.csv")]
    names = pd.concat([table[name] for table in tables for name in ("row", "column")])
    printed = names.astype("str").str.extract(r"^t=(\d+)", expand=False).dropna().astype(int)
    assert set(printed) - {PAPER_FEATURES} <= set(PRINTED_ROUNDS)
    assert printed.nunique() > 5


def test_parquet_and_csv_say_the_same(sign_rows: pd.DataFrame, tmp_path: Path) -> None:
    for suffix in ("parquet", "csv"):
        write_summary([sign_rows], tmp_path / f"rows.{suffix}")
    one, other = (read_summary(tmp_path / f"rows.{suffix}") for suffix in ("parquet", "csv"))
    pd.testing.assert_frame_equal(one, other.astype(one.dtypes), rtol=1e-9)


def test_labels_are_on_all_rows_of_their_part() -> None:
    some, other = pd.DataFrame({"value": [1.0, 2.0], "stratum": ["a", None]}), pd.DataFrame({"value": [3.0]})
    table = labelled([(some, {"metric": "rate"}), (other, {"metric": "gap", "stratum": "b", "t": 5})])
    assert table["metric"].tolist() == ["rate", "rate", "gap"]
    assert table["stratum"].fillna("").tolist() == ["a", "", "b"]
    assert table["t"].fillna(-1).tolist() == [-1, -1, 5]
    assert labelled([(other, {})]).equals(other)


def test_numbers_are_written_to_ten_digits_and_whole_ones_without_a_point(tmp_path: Path) -> None:
    write_summary([summary_rows("binary", rows({"value": 1 / 3, "n": 1_000_000}))], tmp_path / "summary.csv")
    line = (tmp_path / "summary.csv").read_text().splitlines()[1]
    assert line == "binary,accuracy,,wald,,,,,,,,,,,,,0,0.3333333333,,,1000000"


def test_every_row_of_a_real_table_has_the_right_types(written: pd.DataFrame) -> None:
    assert set(written["table"]) == {"sign_accuracy_random"}
    shares = {"accuracy", "balanced_accuracy", "majority", "prevalence", "rate"}
    assert set(written["metric"]) == {*shares, "count", "iterations"}
    assert set(written["method"]) == {*ENGINE_SCORES, ""} - {"kl_reversed"}
    for name in EMPTY_OR_TEXT:
        assert not written[name].str.fullmatch(r"nan|None|[-+.\d]+").any(), name
    assert written["t"].str.fullmatch(r"\d*").all()
    assert written["n"].str.fullmatch(r"\d+").all()
    assert (written["value"].where(~written["stratum"].str.endswith("prior_wrong"), "0") != "").all()


def test_intervals_of_a_real_table_hold_their_order(sign_rows: pd.DataFrame) -> None:
    known = sign_rows.dropna(subset=["low", "high"])
    assert len(known) > 10
    assert (known["low"] <= known["high"]).all()
    shares = sign_rows[~sign_rows["metric"].isin(["count", "iterations"])]["value"].dropna()
    assert shares.between(0, 1).all()


def test_at_full_observation_every_score_but_the_sign_votes_is_right(
    sign_rows: pd.DataFrame, bundle_tiny: Bundle
) -> None:
    last = sign_rows[(sign_rows["t"] == len(bundle_tiny.features)) & (sign_rows["metric"] == "accuracy")]
    last = last[~last["method"].str.startswith("kl")]
    assert last["value"].dropna().eq(1).all()
    assert len(last) == 8  # four methods, all duels and prior_wrong


def test_a_summary_that_is_read_and_written_again_is_the_same_file(sign_rows: pd.DataFrame, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    write_summary([sign_rows], first)
    write_summary([read_summary(first)], second)
    assert first.read_bytes() == second.read_bytes()


def test_a_file_that_is_no_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"other\.csv: found columns a, b"):
        read_summary(tmp_path / "other.csv")
    with pytest.raises(ConfigError, match="no such file"):
        read_summary(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match=r"other\.csv: found columns a, b"):
        join_summaries([tmp_path / "other.csv"], tmp_path / "joined.csv")
