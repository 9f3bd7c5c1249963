"""Tables of a stage carry checksums: a reader notices a changed byte."""

import numpy as np
import pandas as pd
import pytest

from afa.errors import ConfigError
from afa.evaluate.long_tables import gather_tables, read_table, write_tables
from afa.paper.experiments.base import Stage, stored

TABLE = pd.DataFrame({"patient": [f"p{i:03}" for i in range(200)], "score": np.linspace(0, 1, 200)})


def test_a_table_is_read_as_it_was_written(tmp_path):
    write_tables({"scores": TABLE}, tmp_path / "sign")
    pd.testing.assert_frame_equal(read_table(tmp_path / "sign", "scores"), TABLE)
    few = read_table(tmp_path / "sign", "scores", columns=["score"], filters=[("patient", "in", ["p001", "p007"])])
    pd.testing.assert_frame_equal(few, TABLE.loc[[1, 7], ["score"]].reset_index(drop=True))


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5])
def test_a_changed_byte_among_the_values_is_refused_by_each_reader(tmp_path, place):
    write_tables({"scores": TABLE}, tmp_path / "sign")
    path = tmp_path / "sign/scores.parquet"
    content = bytearray(path.read_bytes())
    values = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # what follows describes the values
    content[int(place * values)] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"scores.parquet: found a damaged table \(.*\); expected what was written"):
        read_table(tmp_path / "sign", "scores")
    with pytest.raises(ConfigError, match="found a damaged table"):
        read_table(tmp_path / "sign", "scores", columns=["score", "patient"], filters=[("score", ">=", 0)])
    with pytest.raises(ConfigError, match="found a damaged table"):
        gather_tables([tmp_path / "sign"], tmp_path / "gathered")
    assert not (tmp_path / "gathered").exists()


def test_long_tables_of_scores_are_stored_in_single_precision_and_read_in_double(tmp_path):
    random = np.random.default_rng(2)
    long = pd.DataFrame({"patient": "p", "score": random.normal(size=30_000), "seed": 3})
    tables = {"long": long, "short": long.head(5)}
    kept = stored(tables, Stage(single=("long",)))
    write_tables(kept, tmp_path / "a")
    write_tables(tables, tmp_path / "b")
    for name, table in tables.items():
        found = read_table(tmp_path / "a", name)
        assert (found["seed"] == 3).all()
        assert found["score"].dtype == float
        assert (np.sign(found["score"]) == np.sign(table["score"])).all()
        np.testing.assert_allclose(found["score"], table["score"], rtol=1e-7)
    assert (read_table(tmp_path / "a", "short")["score"] == long["score"].head(5)).all()
    sizes = [(tmp_path / folder / "long.parquet").stat().st_size for folder in ("a", "b")]
    assert sizes[0] < 0.7 * sizes[1]
    gather_tables([tmp_path / "a"], tmp_path / "gathered")
    pd.testing.assert_frame_equal(read_table(tmp_path / "gathered", "long"), read_table(tmp_path / "a", "long"))


def test_rows_that_all_parts_of_a_stage_have_are_gathered_once(tmp_path):
    halves, own = [TABLE.head(120), TABLE.tail(80)], [TABLE.head(3), TABLE.tail(3)]
    for part, own_rows in zip("ab", own, strict=True):
        for i, half in enumerate(halves):
            write_tables({"common": half, "own": own_rows}, tmp_path / part / str(i))
    gather_tables([tmp_path / part / str(i) for part in "ab" for i in range(2)], tmp_path / "gathered", ["common"])
    pd.testing.assert_frame_equal(read_table(tmp_path / "gathered", "common"), TABLE)
    assert len(read_table(tmp_path / "gathered", "own")) == 2 * 3 + 2 * 3
