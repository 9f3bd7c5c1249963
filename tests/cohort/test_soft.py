from __future__ import annotations

import gzip
import sys

import GEOparse
import pytest
from cohort.geo_layout import family_soft, put, series_matrix

from afa.cohort.config import LabelRule
from afa.cohort.samples import make_labels, read_family, read_series_matrix
from afa.errors import CohortError

SAMPLES = {
    "GSM11": ("first, UC", ["diagnosis: UC", "Total Mayo Score: NA"], [("a", [1.5]), ("b", ["null"])]),
    "GSM12": ("second", ["diagnosis: Control"], [("b", [4]), ("a", [3])]),
}


NAME = "GSE123456_family.soft.gz"


def read(tmp_path, samples, name=NAME):
    return read_family(put(tmp_path / name, family_soft(samples))).samples


def refusal(tmp_path, content) -> str:
    with pytest.raises(CohortError) as caught:
        read_family(put(tmp_path / NAME, content))
    assert "Next step: " in str(caught.value)
    return str(caught.value)


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


def test_the_samples_are_those_that_geoparse_reads(tmp_path, monkeypatch):
    read_by_geoparse, paths = GEOparse.get_GEO, []

    def renamed(**options):
        series = read_by_geoparse(**options)
        series.gsms["GSM12"].metadata["title"] = ["renamed"]
        paths.append(options["filepath"])
        return series

    monkeypatch.setattr(GEOparse, "get_GEO", renamed)
    assert read(tmp_path, SAMPLES)["title"].to_dict() == {"GSM11": "first, UC", "GSM12": "renamed"}
    assert paths == [str(tmp_path / NAME)]


def test_without_geoparse_the_extra_that_brings_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "GEOparse", None)
    message = refusal(tmp_path, family_soft(SAMPLES))
    assert "found no package GEOparse" in message
    assert "pip install 'afa[geo]', or set metadata_file to GSE123456_series_matrix.txt.gz" in message


def test_the_supplementary_files_of_the_series_are_named(tmp_path):
    names = ["GSE123456_RAW.tar", "GSE123456_a+b.txt.gz"]
    text = family_soft(SAMPLES, supplementary=names)
    assert read_family(put(tmp_path / NAME, text)).supplementary == tuple(names)
    none = text.replace("!Series_supplementary_file = ftp", "!Series_supplementary_files = ftp")
    assert read_family(put(tmp_path / NAME, none)).supplementary == ()


def test_characteristics_of_the_second_channel_have_names_of_their_own(tmp_path):
    samples = {"GSM11": ("x", ["diagnosis: UC", "rectum", "title: Dr"], [])}
    text = family_soft(samples, channel=2).replace(
        "!Sample_data", "!Sample_characteristics_ch1 = diagnosis: pool\n!Sample_data"
    )
    frame = read_family(put(tmp_path / NAME, text)).samples
    expected = {"diagnosis": "pool", "diagnosis_ch2": "UC", "characteristics_ch2": "rectum", "title_ch2": "Dr"}
    assert frame.loc["GSM11"].to_dict() == {"title": "x"} | expected


def test_nothing_is_printed(tmp_path, capfd):
    read(tmp_path, SAMPLES)
    assert capfd.readouterr() == ("", "")


def test_lines_may_end_as_on_windows(tmp_path):
    text = family_soft(SAMPLES)
    frame = read_family(put(tmp_path / NAME, text.replace("\n", "\r\n"))).samples
    assert frame.equals(read(tmp_path, SAMPLES))


def test_a_lone_carriage_return_is_part_of_a_value(tmp_path):
    text = family_soft(SAMPLES).replace("diagnosis: UC", "stool: gross\r blood").replace("second", "sec\rond")
    frame = read_family(put(tmp_path / NAME, text)).samples
    assert frame["stool"].tolist() == ["gross\r blood", ""]
    assert frame["title"].tolist() == ["first, UC", "sec\rond"]
    rule = LabelRule(key="stool", positive=("gross\r blood",), negative=("none",), reason="a test")
    assert make_labels(frame, {"bleeding": rule}, ["bleeding"])["bleeding"].tolist()[0] == 1


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("first, UC", "a\r!Sample_title = b", "line 11: found '!Sample_' within a value"),
        ("diagnosis: UC", "note: see!my_file", "line 13: found '!my_' within a value"),
        ("diagnosis: UC", "note: x_table_end", "line 13: found '_table_end' within a value"),
        ("diagnosis: UC", "stool: gross\n blood", "line 14: found 'blood'; expected a line that starts with ^, ! or #"),
        ("^SAMPLE = GSM12", "^SAMPLE = GSM99\n^SAMPLE = GSM12", "^SAMPLE = GSM99 without a line below it, before"),
        ("^SAMPLE = GSM12", "^SAMPL = GSM12", "found an entry of the unknown type '^SAMPL'"),
        ("^PLATFORM", "^SERIES = GSE2\n!Series_title = b\n^PLATFORM", "only one series entry"),
        ("!Series_sample_id = GSM11", "!Series_sample_id = GSM10", "no description of 1 of the 2 samples"),
        ("!sample_table_end\n^", "^", "line 22: found a table without its end before ^SAMPLE = GSM12"),
        (
            "^SAMPLE = GSM12",
            "^SAMPLE = \n!Sample_title = x\n^SAMPLE = GSM12",
            "found nothing; expected a GSM accession",
        ),
        ("#VALUE = ", "#OTHER = ", "GEOparse cannot read (DataIncompatibilityException: Data columns do not match"),
    ],
)
def test_what_geoparse_would_lose_or_change_is_refused(tmp_path, before, after, said):
    text = family_soft(SAMPLES)
    assert before in text
    message = refusal(tmp_path, text.replace(before, after, 1))
    assert said in message


def test_a_refusal_names_the_file_to_read_instead(tmp_path):
    message = refusal(tmp_path, family_soft(SAMPLES).replace("^SAMPLE", "^SAMPL"))
    assert (
        "fetch the file again; if it is as GEO has it, set metadata_file to GSE123456_series_matrix.txt.gz" in message
    )


@pytest.mark.parametrize("before", [b"Rectal biopsies", b"first, UC", b"1.5"])
def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path, before):
    content = family_soft(SAMPLES).encode()
    number = content[: content.index(before)].count(b"\n") + 1
    message = refusal(tmp_path, gzip.compress(content.replace(before, b"\xb5g/g", 1)))
    assert f"line {number}: found bytes that are not UTF-8 (b'\\xb5g/g" in message


def test_a_sample_given_twice_is_refused(tmp_path):
    text = family_soft(SAMPLES)
    assert "^SAMPLE = GSM12 twice" in refusal(tmp_path, text + text[text.index("^SAMPLE = GSM12") :])


WHOLE = family_soft(SAMPLES)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(WHOLE.encode())[:-40], "truncated or damaged gzip"),
        (WHOLE.removesuffix("!sample_table_end\n"), "a table without its end"),
        (WHOLE[: WHOLE.index("^SAMPLE = GSM12")], "no description of 1 of the 2 samples of the series: GSM12"),
        (WHOLE[: WHOLE.index("!Sample_title = second")], "^SAMPLE = GSM12 without a line below it"),
        (WHOLE[: WHOLE.index("agnosis: Control")], "the end of the file within a line"),
        ("<html></html>", "line 1: found '<html></html>'"),
        ("", "no sample"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, content, said):
    message = refusal(tmp_path, content)
    assert said in message
    assert str(tmp_path / NAME) in message


def test_a_file_that_goes_bad_while_geoparse_reads_it_is_refused(tmp_path, monkeypatch):
    content = bytearray(gzip.compress(family_soft(SAMPLES).encode()))
    read_by_geoparse = GEOparse.get_GEO

    def read_damaged(**options):
        content[-5] ^= 1  # of the checksum: an error that GEOparse swallows
        (tmp_path / NAME).write_bytes(content)
        return read_by_geoparse(**options)

    monkeypatch.setattr(GEOparse, "get_GEO", read_damaged)
    assert "found 2 samples, of which GEOparse reads " in refusal(tmp_path, bytes(content))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CohortError, match="No such file"):
        read_family(tmp_path / NAME)
