"""The paper's tables as CSV with a dictionary that names the unit of each column."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from afa.cohort.cohort import Cohort
from afa.errors import ReportError
from afa.evaluate.inputs import paper_tables
from afa.evaluate.long_tables import write_tables
from afa.paper.experiments import binary
from afa.paper.experiments.base import meaning_of
from afa.paper.experiments.binary import summarise
from afa.paper.experiments.settings import Bootstrap, ClosureSettings, Inference, RandomOrder
from afa.paper.report.paper_tables import PRINTED_TABLES
from afa.paper.report.publish import DICTIONARY, dictionary_of, publish

PAPER = Path(__file__).parents[3] / "resources" / "paper"
ONE = {"random_order": RandomOrder(seeds=(0,)), "inference": Inference()}


@pytest.fixture(scope="module")
def published(bundle_tiny, tmp_path_factory):
    """The published folder of a small binary stage."""
    folder = tmp_path_factory.mktemp("published")
    values = np.random.default_rng(2).integers(-1, 2, (5, len(bundle_tiny.features))).astype(np.int8)
    names = tuple(f"p{i}" for i in range(5))
    cohort = Cohort("tiny", bundle_tiny.features, names, values, pd.DataFrame(index=list(names)))
    tables = binary.run(bundle_tiny, cohort, **ONE, closure=ClosureSettings())
    write_tables(tables, folder / "binary")
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    publish(rows, paper_tables(PAPER), [folder / "binary"], folder / "out", n_features=len(bundle_tiny.features))
    return folder / "out", rows


def test_the_papers_tables_and_the_dictionary_are_there_once_and_the_summary_is_not_written_again(published):
    folder, rows = published
    assert {path.name for path in folder.iterdir()} == {f"{name}.csv" for name in (*PRINTED_TABLES, DICTIONARY)}
    assert "binary" in set(rows["table"])
    assert "binary" in set(pd.read_csv(folder / f"{DICTIONARY}.csv")["table"])


def test_the_dictionary_has_every_column_of_every_table_of_stages_and_readers(published):
    folder, _ = published
    dictionary = pd.read_csv(folder / f"{DICTIONARY}.csv", keep_default_na=False)
    listed = set(zip(dictionary["table"], dictionary["column"], strict=True))
    for path in folder.glob("*.csv"):
        if path.stem != DICTIONARY:
            assert {(path.stem, column) for column in pd.read_csv(path, nrows=0).columns} <= listed
    assert ("binary/steps", "two_elbo") in listed
    assert dictionary.set_index(["table", "column"]).loc[("binary/steps", "two_elbo"), "unit"] == "nats"
    assert (dictionary["meaning"] != "").all()


def test_a_column_without_a_meaning_is_refused_by_name():
    with pytest.raises(ReportError, match="stage/table: found the column mystery"):
        dictionary_of({"stage/table": pa.schema([("mystery", pa.int64())])})


def test_a_table_may_give_a_column_a_meaning_of_its_own():
    schema = pa.schema([("clinical", pa.int8())])
    found = dictionary_of({"gauge/targets": schema, "binary/targets": schema}).set_index("table")["unit"]
    assert found.to_dict() == {"gauge/targets": "sign", "binary/targets": ""}


def test_percentages_of_a_support_are_said_alike_in_the_tables_and_the_rows_of_the_labels():
    for table in ("labels", "controls", "labels_needed", "null", "specificity"):
        for column in ("t", "reference"):
            assert meaning_of(table, column) == meaning_of("labels/scores", column)
