from __future__ import annotations

import gzip

import pytest
from cohort.geo_layout import family_soft, put, series_matrix

from afa.cohort.samples import read_series_matrix, read_soft
from afa.errors import CohortError

SAMPLES = {
    "GSM11": ("first, UC", ["diagnosis: UC", "Total Mayo Score: NA"], [("a", [1.5]), ("b", ["null"])]),
    "GSM12": ("second", ["diagnosis: Control"], [("b", [4]), ("a", [3])]),
}


def read(tmp_path, samples, name="GSE123456_family.soft.gz"):
    return read_soft(put(tmp_path / name, family_soft(samples)))


@pytest.mark.parametrize("name", ["f.soft.gz", "f.soft"])
def test_samples_have_titles_and_characteristics_by_accession(tmp_path, name):
    samples = read(tmp_path, SAMPLES, name)
    assert samples.index.tolist() == ["GSM11", "GSM12"]
    assert samples["title"].tolist() == ["first, UC", "second"]
    assert samples["diagnosis"].tolist() == ["UC", "Control"]
    assert samples["total_mayo_score"].tolist() == ["NA", ""]


def test_a_family_file_and_a_series_matrix_give_the_same_samples(tmp_path):
    lines = [["diagnosis: UC", "diagnosis: Control"], ["Total Mayo Score: NA", ""]]
    path = put(tmp_path / "m.txt.gz", series_matrix(list(SAMPLES), ["first, UC", "second"], lines))
    assert read(tmp_path, SAMPLES).equals(read_series_matrix(path))


def test_nothing_is_printed(tmp_path, capfd):
    read(tmp_path, SAMPLES)
    assert capfd.readouterr() == ("", "")


def test_a_sample_given_twice_is_refused(tmp_path):
    text = family_soft(SAMPLES)
    path = put(tmp_path / "f.soft.gz", text + text[text.index("^SAMPLE = GSM12") :])
    with pytest.raises(CohortError, match=r"\^SAMPLE = GSM12 twice"):
        read_soft(path)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(family_soft(SAMPLES).encode())[:-40],
        family_soft(SAMPLES).removesuffix("!sample_table_end\n"),
        "<html></html>",
        "",
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, content):
    path = put(tmp_path / "f.soft.gz", content)
    with pytest.raises(CohortError) as caught:
        read_soft(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CohortError, match="No such file"):
        read_soft(tmp_path / "none.soft.gz")


def test_a_sample_table_that_another_sample_interrupts_is_refused(tmp_path):
    path = put(tmp_path / "f.soft", family_soft(SAMPLES).replace("!sample_table_end\n", "", 1))
    with pytest.raises(CohortError, match=r"line [0-9]+: found a sample table without its end"):
        read_soft(path)


def test_a_sample_without_a_name_is_refused(tmp_path):
    path = put(tmp_path / "f.soft", family_soft(SAMPLES) + "^SAMPLE = \n")
    with pytest.raises(CohortError, match="sample accessions: found nothing; expected a GSM accession"):
        read_soft(path)
