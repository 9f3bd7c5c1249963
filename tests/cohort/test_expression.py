from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cohort.geo_layout import (
    described,
    expression_source,
    gene_matrix,
    put,
    raw_tar,
    sample_text,
    source,
)

from afa.cohort import expression
from afa.cohort.expression import read_sample_files
from afa.cohort.geo import Source, read_expression, read_samples
from afa.errors import CohortError
from afa.io.files import LARGEST_UNPACKED

GSM = ["GSM11", "GSM12", "GSM13"]
TITLES = ["P_1_Biopsy_1, UC participants,Rectum I tissue", "P_1_Biopsy_2, UC", "P_2_Biopsy_3"]
SAMPLES = pd.DataFrame({"title": TITLES}, index=pd.Index(GSM, name="sample"))
ROWS = [
    ("ENSG01", (704, 2855, 0)),
    ("ENSG02", (5, 18, 9)),
    ("ENSG03", (587, 563, 685)),
    ("ENSG02", (1, 2, 3)),
]
ALL = {"ENSG01", "ENSG02", "ENSG03"}
COUNTS = expression_source(sample_column="title_before_comma", row_ids="ensembl")
TPM_FILES = expression_source(layout="sample_files", unit="tpm")


def read_matrix(tmp_path, text, config=COUNTS, samples=SAMPLES, wanted=ALL, name="counts.txt.gz"):
    return read_expression(source(put(tmp_path / name, text)), config, samples, wanted)


def r_matrix(names, rows) -> str:
    """The form of GSE193677's counts."""
    return gene_matrix(names, rows, separator=" ", quoted=True, corner=None)


def refusal(call, *args, **keys) -> str:
    with pytest.raises(CohortError) as caught:
        call(*args, **keys)
    assert "Next step: " in str(caught.value)
    return str(caught.value)


def shuffled(rows, order):
    return [(row_id, tuple(values[i] for i in order)) for row_id, values in rows]


SHORT = [title.partition(",")[0] for title in TITLES]


@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("corner", ["Gene", "", None])
@pytest.mark.parametrize("name", ["m.txt.gz", "m.txt"])
def test_every_shape_of_a_matrix_gives_the_same_values(tmp_path, separator, quoted, corner, name):
    text = gene_matrix(SHORT, ROWS, separator=separator, quoted=quoted, corner=corner)
    result = read_matrix(tmp_path, text, name=name)
    assert result.values.index.tolist() == ["ENSG01", "ENSG02", "ENSG03", "ENSG02"]
    assert result.values.columns.tolist() == GSM
    np.testing.assert_array_equal(result.values, [values for _, values in ROWS])
    assert result.library_size.to_dict() == {"GSM11": 1297, "GSM12": 3438, "GSM13": 697}
    assert result.n_rows == 4


def test_columns_are_joined_to_samples_by_name_not_by_position(tmp_path):
    order = [2, 0, 1]
    text = r_matrix([SHORT[i] for i in order], shuffled(ROWS, order))
    np.testing.assert_array_equal(read_matrix(tmp_path, text).values, [values for _, values in ROWS])


def test_columns_may_be_named_by_accession(tmp_path):
    text = gene_matrix(GSM, ROWS)
    np.testing.assert_array_equal(read_matrix(tmp_path, text, expression_source()).values.loc["ENSG03"], ROWS[2][1])


def test_a_joined_table_is_named_by_accession_whatever_geos_own_matrix_is(tmp_path):
    path = put(tmp_path / "joined.txt.gz", gene_matrix(GSM, ROWS))
    result = read_expression(source(path, form="mirror_joined"), COUNTS, SAMPLES, ALL)
    np.testing.assert_array_equal(result.values.loc["ENSG01"], ROWS[0][1])


def test_only_wanted_rows_are_kept_but_all_count_for_the_library(tmp_path):
    result = read_matrix(tmp_path, r_matrix(SHORT, ROWS), wanted={"ENSG03", "ENSG99"})
    assert result.values.index.tolist() == ["ENSG03"]
    assert result.library_size["GSM12"] == 3438


def test_no_wanted_row_gives_an_empty_table(tmp_path):
    assert read_matrix(tmp_path, r_matrix(SHORT, ROWS), wanted=set()).values.shape == (0, 3)


def test_a_selection_of_samples_in_its_own_order_is_read(tmp_path):
    selection = SAMPLES.loc[["GSM13", "GSM11"]]
    result = read_matrix(tmp_path, r_matrix(SHORT, ROWS), samples=selection)
    assert result.values.columns.tolist() == ["GSM13", "GSM11"]
    np.testing.assert_array_equal(result.values.loc["ENSG01"], [0, 704])


def test_columns_of_other_samples_are_not_looked_at(tmp_path):
    text = r_matrix([*SHORT, "other"], [(row_id, (*values, "NA")) for row_id, values in ROWS])
    assert read_matrix(tmp_path, text).n_rows == 4


def test_blocks_do_not_change_the_result(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    rows = [(f"g{i}", tuple(rng.lognormal(2, 3, size=3).round(4))) for i in range(500)]
    text = gene_matrix(GSM, rows)
    config = expression_source(unit="tpm")
    whole = read_matrix(tmp_path, text, config, wanted={f"g{i}" for i in range(500)})
    monkeypatch.setattr(expression, "_READ_BYTES", 300)
    parts = read_matrix(tmp_path, text, config, wanted={f"g{i}" for i in range(500)})
    pd.testing.assert_frame_equal(whole.values, parts.values, check_exact=True)
    pd.testing.assert_series_equal(whole.library_size, parts.library_size, check_exact=True)


def test_values_are_read_to_the_last_digit(tmp_path):
    texts = ["0.1", "1e-7", "123456789.123456789", "4.9406564584124654e-324", "0.30000000000000004", "17"]
    rows = [(f"g{i}", (text, text, text)) for i, text in enumerate(texts)]
    result = read_matrix(tmp_path, gene_matrix(GSM, rows), expression_source(), wanted={row_id for row_id, _ in rows})
    assert result.values["GSM11"].tolist() == [float(text) for text in texts]


def test_negative_values_are_read_where_the_unit_is_log2(tmp_path):
    text = gene_matrix(GSM, [("a", (-1.5, 2, 3))])
    result = read_matrix(tmp_path, text, expression_source(unit="log2"), wanted={"a"})
    assert result.values.loc["a"].tolist() == [-1.5, 2, 3]


@pytest.mark.parametrize("cell", ["NA", "", "nan", "inf", "1,5", "1e400", '"x"'])
def test_a_bad_cell_is_refused_with_line_row_and_column(tmp_path, cell):
    text = gene_matrix(SHORT, [*ROWS, ("ENSG09", (1, cell, 3))])
    message = refusal(read_matrix, tmp_path, text)
    assert "counts.txt.gz, line 6, row 'ENSG09', column P_1_Biopsy_2" in message
    assert "expected a finite number" in message


@pytest.mark.parametrize(("values", "fields"), [((1, 2), 3), ((1, 2, 3, 4), 5)])
def test_an_uneven_line_is_refused_with_its_number(tmp_path, values, fields):
    message = refusal(read_matrix, tmp_path, r_matrix(SHORT, [*ROWS, ("ENSG09", values)]))
    assert f"line 6, row 'ENSG09': found {fields} fields; expected 4 fields" in message


def test_samples_without_a_column_are_all_named(tmp_path):
    message = refusal(read_matrix, tmp_path, r_matrix(["P_1_Biopsy_1", "x", "y"], ROWS))
    assert "no column for 2 of 3 samples: P_1_Biopsy_2 (GSM12), P_2_Biopsy_3 (GSM13)" in message


def test_a_column_that_comes_twice_is_refused(tmp_path):
    message = refusal(read_matrix, tmp_path, r_matrix([SHORT[0], SHORT[1], SHORT[1]], ROWS))
    assert "columns twice (P_1_Biopsy_2)" in message


def test_two_samples_with_one_column_are_refused(tmp_path):
    samples = SAMPLES.assign(title=["P_1_Biopsy_1, a", "P_1_Biopsy_1, b", "P_2_Biopsy_3"])
    assert "column P_1_Biopsy_1 for more than one sample" in refusal(
        read_matrix, tmp_path, r_matrix(SHORT, ROWS), samples=samples
    )


def test_an_empty_selection_of_samples_is_refused(tmp_path):
    assert "none selected" in refusal(read_matrix, tmp_path, r_matrix(SHORT, ROWS), samples=SAMPLES.iloc[:0])


def test_a_header_that_does_not_fit_is_refused(tmp_path):
    message = refusal(read_matrix, tmp_path, r_matrix([*SHORT, "a", "b"], ROWS))
    assert "line 1: found 5 names over 4 fields" in message


@pytest.mark.parametrize("text", ["", '"a" "b"\n'])
def test_a_matrix_without_rows_is_refused(tmp_path, text):
    assert "a header and at least one row" in refusal(read_matrix, tmp_path, text)


@pytest.mark.parametrize("cut", [12, 400])
def test_a_truncated_matrix_is_refused(tmp_path, cut):
    rng = np.random.default_rng(1)
    rows = [(f"g{i}", tuple(rng.integers(0, 9999, size=3))) for i in range(300)]
    content = gzip.compress(r_matrix(SHORT, rows).encode())[:-cut]
    assert "truncated or damaged gzip" in refusal(read_matrix, tmp_path, content)


def test_a_missing_matrix_is_refused(tmp_path):
    path = put(tmp_path / "m.txt.gz", r_matrix(SHORT, ROWS))
    gone = source(path)
    path.unlink()
    assert "No such file" in refusal(read_expression, gone, COUNTS, SAMPLES, ALL)


TPM = [("5S", (0.01, 3.6387, 1.7165)), ("3/1/2018", (2, 0.01, 0.5)), ("DUOX2", (7.25, 1e-3, 11))]


def members(rows=TPM, **texts: bytes) -> list[tuple[str, bytes]]:
    """One compressed member for each sample, some of them replaced."""
    made = {name: sample_text(f"lab{i}", [(row_id, v[i]) for row_id, v in rows]) for i, name in enumerate(GSM)}
    return [(f"{name}_0{i}-R.txt.gz", gzip.compress(text)) for i, (name, text) in enumerate((made | texts).items())]


def read_tar(tmp_path, files, samples=SAMPLES, wanted=("5S", "3/1/2018", "DUOX2"), config=TPM_FILES):
    return read_expression(source(put(tmp_path / "GSE123456_RAW.tar", raw_tar(files))), config, samples, wanted)


def test_sample_files_become_columns_by_the_accession_in_their_name(tmp_path):
    result = read_tar(tmp_path, reversed(members()))
    assert result.values.index.tolist() == ["5S", "3/1/2018", "DUOX2"]
    assert result.values.columns.tolist() == GSM
    np.testing.assert_array_equal(result.values, [values for _, values in TPM])
    assert result.library_size["GSM11"] == 0.01 + 2 + 7.25
    assert result.n_rows == 3


def test_sample_files_and_their_joined_table_give_the_same(tmp_path):
    path = put(tmp_path / "joined.txt.gz", gene_matrix(GSM, TPM))
    joined = read_expression(source(path, form="mirror_joined"), TPM_FILES, SAMPLES, {"DUOX2"})
    files = read_tar(tmp_path, members(), wanted={"DUOX2"})
    pd.testing.assert_frame_equal(files.values, joined.values, check_exact=True)
    pd.testing.assert_series_equal(files.library_size, joined.library_size, check_exact=True)


def test_members_of_other_samples_and_other_kinds_are_passed_over(tmp_path):
    extra = [("filelist.txt", b"x"), ("GSM99_x.txt.gz", b"not even gzip"), ("GSM11_x.CEL.gz", b"x")]
    assert read_tar(tmp_path, [*extra, *members()]).values.shape == (3, 3)


def test_a_selection_of_sample_files_is_read_in_its_own_order(tmp_path):
    result = read_tar(tmp_path, members(), samples=SAMPLES.loc[["GSM13", "GSM11"]])
    assert result.values.loc["DUOX2"].tolist() == [11, 7.25]


def test_another_order_of_rows_is_joined_by_id(tmp_path):
    text = sample_text("lab1", [(row_id, values[1]) for row_id, values in reversed(TPM)])
    result = read_tar(tmp_path, members(GSM12=text))
    np.testing.assert_array_equal(result.values, [values for _, values in TPM])


def test_a_repeated_row_id_is_kept_where_the_order_agrees(tmp_path):
    rows = [*TPM, ("5S", (9, 8, 7))]
    assert read_tar(tmp_path, members(rows)).values.loc["5S"].shape == (2, 3)
    text = sample_text("lab1", [(row_id, values[1]) for row_id, values in reversed(rows)])
    assert "row id '5S' more than once, and another order" in refusal(read_tar, tmp_path, members(rows, GSM12=text))


def test_other_row_ids_are_refused_naming_member_and_row(tmp_path):
    text = sample_text("lab1", [("5S", 1), ("OTHER", 2), ("DUOX2", 3)])
    message = refusal(read_tar, tmp_path, members(GSM12=text))
    assert "member GSM12_01-R.txt.gz, row '3/1/2018': found other row ids" in message


@pytest.mark.parametrize("cell", ["NA", "", "nan", "inf", "1\t2"])
def test_a_bad_value_is_refused_naming_member_and_row(tmp_path, cell):
    message = refusal(read_tar, tmp_path, members(GSM12=sample_text("lab1", [("5S", 1), ("X", cell)])))
    assert "member GSM12_01-R.txt.gz, line 3, row 'X'" in message


def test_a_member_that_breaks_off_or_is_not_gzip_is_named(tmp_path):
    (_, first), (name, second), third = members()
    for content in (second[:-12], b"plain text", b""):
        message = refusal(read_tar, tmp_path, [("GSM11_a.txt.gz", first), (name, content), third])
        assert f"member {name}" in message


@pytest.mark.parametrize("text", [b"", b"Gene\tlab1\n", b"Gene\n5S\n", b"Gene\tlab\tmore\n5S\t1\t2\n"])
def test_a_member_that_is_no_two_column_table_is_named(tmp_path, text):
    assert "member GSM12_01-R.txt.gz" in refusal(read_tar, tmp_path, members(GSM12=text))


def test_missing_samples_are_named(tmp_path):
    message = refusal(read_tar, tmp_path, members()[:1])
    assert "no file for 2 of 3 samples: GSM12, GSM13" in message


def test_a_second_file_of_a_sample_is_refused(tmp_path):
    message = refusal(read_tar, tmp_path, [*members(), ("GSM11_again.txt.gz", members()[0][1])])
    assert "member GSM11_again.txt.gz: found a second file of GSM11" in message


def test_a_member_that_unpacks_beyond_an_eighth_of_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(LARGEST_UNPACKED, "3.2e-5")
    path = put(tmp_path / "x.tar", raw_tar(members(GSM12=b"Gene\tlab\n" + b"0" * 5000)))
    message = refusal(read_sample_files, path, GSM, ALL)
    assert "member GSM12_01-R.txt.gz: found more than 4e-06 GB unpacked" in message


def test_a_truncated_archive_is_refused(tmp_path):
    path = put(tmp_path / "x.tar", raw_tar(members())[:1200])
    assert "breaks off after member" in refusal(read_sample_files, path, GSM, ALL)


@pytest.mark.mirror
@pytest.mark.parametrize("series", ["GSE117993", "GSE109142"])
def test_original_sample_files_equal_the_joined_matrix_value_for_value(geo_mirror, tmp_path, series):
    folder = geo_mirror / "series" / f"{series[:-3]}nnn" / series / "suppl"
    originals = sorted((folder / f"{series}_RAW").glob("*.txt.gz"))
    assert len(originals) == 2
    tar = put(tmp_path / "x.tar", raw_tar((path.name, path.read_bytes()) for path in originals))
    matrix = folder / f"{series}_TPM_matrix.txt.gz"
    names = [path.name.partition("_")[0] for path in originals]
    samples = pd.DataFrame({"title": names}, index=pd.Index(names, name="sample"))
    genes = set(pd.read_csv(originals[0], sep="\t", dtype=str, keep_default_na=False).iloc[:, 0])
    files = read_expression(source(tar), TPM_FILES, samples, genes)
    joined = read_expression(source(matrix, form="mirror_joined"), TPM_FILES, samples, genes)
    assert files.n_rows == joined.n_rows == len(files.values) == 58524
    pd.testing.assert_frame_equal(files.values, joined.values, check_exact=True)
    pd.testing.assert_series_equal(files.library_size, joined.library_size, check_exact=True)
    assert files.library_size.between(1_000_163, 1_000_334).all()


FULL_SIZE = """
import json, resource, sys, time
from pathlib import Path
from cohort.geo_layout import expression_source
from afa.cohort.geo import read_expression
from afa.cohort.geo import Source, read_samples
source = Source.read(Path(sys.argv[1]))
samples = read_samples(source)
config = expression_source(sample_column="title_before_comma", row_ids="ensembl")
start = time.perf_counter()
result = read_expression(source, config, samples, {f"ENSG{i:011d}" for i in range(0, 56632, 200)})
seconds = time.perf_counter() - start
result.library_size.to_frame().to_parquet(sys.argv[2])
print(json.dumps({
    "seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "rows": result.n_rows, "shape": result.values.shape,
}))
"""


@pytest.mark.slow
@pytest.mark.mirror
def test_a_matrix_of_the_size_of_gse193677_is_read_in_less_than_two_gigabytes(geo_mirror, tmp_path, record_property):
    n_rows = 56_632
    table = geo_mirror / "series/GSE193nnn/GSE193677/metadata/GSE193677_sample_metadata.tsv.gz"
    metadata = described(table, "mirror_joined")
    samples = read_samples(Source("GSE193677", metadata, metadata))
    rng = np.random.default_rng(193677)
    columns = rng.permutation(samples["title"].str.partition(",")[0].to_numpy())
    library = np.zeros(len(columns), dtype=np.int64)
    texts = np.array([str(i) for i in range(200_000)], dtype=object)
    mean = np.exp(rng.normal(2.5, 2.5, size=n_rows)).clip(max=20_000) * (rng.random(n_rows) < 0.6)
    path = tmp_path / "counts.txt.gz"
    with gzip.open(path, "wt", compresslevel=1, newline="") as stream:
        stream.write(" ".join(f'"{name}"' for name in columns) + "\n")
        for i in range(n_rows):
            counts = np.minimum(rng.poisson(mean[i] * rng.gamma(2.0, 0.5, size=len(columns))), 199_999)
            library += counts
            stream.write(f'"ENSG{i:011d}" ' + " ".join(texts[counts]) + "\n")
    Source("GSE193677", metadata, described(path)).write(tmp_path / "source.json")
    command = [sys.executable, "-c", FULL_SIZE, str(tmp_path / "source.json"), str(tmp_path / "library.parquet")]
    run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    measured = json.loads(run.stdout)
    record_property("full_size", measured)
    print(f"{path.stat().st_size / 1e6:.0f} MB: {measured}")  # noqa: T201  shown by pytest -s
    assert measured["megabytes"] < 2048
    assert measured["rows"] == n_rows
    assert measured["shape"] == [284, 2490]
    found = pd.read_parquet(tmp_path / "library.parquet")["library_size"]
    by_column = dict(zip(columns, library.tolist(), strict=True))
    expected = samples["title"].str.partition(",")[0].map(by_column)
    assert found.to_dict() == expected.to_dict()
