from __future__ import annotations

import gzip

import pytest
from cohort.geo_layout import put, series_matrix

from afa.cohort.samples import normal_key, read_series_matrix
from afa.errors import CohortError

GSM = ["GSM11", "GSM12", "GSM13"]
TITLES = ["P_1_Biopsy_1, UC participants,Rectum I tissue", "P_1_Biopsy_2", "P_2_Biopsy_3"]
DIAGNOSIS = ["diagnosis: UC", "diagnosis: UC", "diagnosis: Control"]


def read(tmp_path, text, name="GSE123456_series_matrix.txt.gz"):
    return read_series_matrix(put(tmp_path / name, text))


def refusal(tmp_path, text) -> str:
    with pytest.raises(CohortError) as caught:
        read(tmp_path, text)
    return str(caught.value)


def characteristics(tmp_path, *lines):
    return read(tmp_path, series_matrix(GSM, TITLES, lines)).drop(columns="title")


@pytest.mark.parametrize("name", ["m.txt.gz", "m.txt"])
def test_samples_have_titles_and_characteristics_by_accession(tmp_path, name):
    samples = read(tmp_path, series_matrix(GSM, TITLES, [DIAGNOSIS]), name)
    assert samples.index.tolist() == GSM
    assert samples.index.name == "sample"
    assert samples.columns.tolist() == ["title", "diagnosis"]
    assert samples["title"].tolist() == TITLES
    assert samples["diagnosis"].tolist() == ["UC", "UC", "Control"]


def test_keys_are_lower_case_with_underscores(tmp_path):
    frame = characteristics(tmp_path, ["Total Mayo Score: 3", "Eosinophil grade ≥ 32: Y", "PUCAI: 10"])
    assert frame.columns.tolist() == ["total_mayo_score", "eosinophil_grade_≥_32", "pucai"]
    assert normal_key(" Total  Mayo Score ") == "total_mayo_score"


def test_cells_are_joined_by_their_key_not_by_their_line(tmp_path):
    frame = characteristics(tmp_path, ["sex: F", "age: 5", "sex: M"], ["age: 7", "sex: F", ""])
    assert frame["sex"].tolist() == ["F", "F", "M"]
    assert frame["age"].tolist() == ["7", "5", ""]


def test_a_missing_cell_is_empty_and_a_literal_na_is_kept(tmp_path):
    frame = characteristics(tmp_path, ["pucai: NA", "pucai: ", ""])
    assert frame["pucai"].tolist() == ["NA", "", ""]


def test_tabs_quotes_and_colons_inside_a_value_are_kept(tmp_path):
    frame = characteristics(tmp_path, ['note: said "better" today', "note: a\tb", "note: at 10:30, ratio 1:2"])
    assert frame["note"].tolist() == ['said "better" today', "a\tb", "at 10:30, ratio 1:2"]


def test_a_value_that_ends_in_a_quote_and_doubled_quotes_are_read(tmp_path):
    frame = characteristics(tmp_path, ['size: 5"', 'size: a ""b"" c', "size: x"])
    assert frame["size"].tolist() == ['5"', 'a "b" c', "x"]


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_line_ends_inside_a_quoted_cell_are_part_of_the_value(tmp_path, end):
    notes = [f"note: gross{end} blood", f"note: a\tb{end}{end}c", f"note: {end}!Sample_title\tx"]
    table = [(f"a{end}b", [1, 2, 3])]
    frame = read(tmp_path, series_matrix(GSM, TITLES, [notes, DIAGNOSIS], table)).drop(columns="title")
    assert frame["note"].tolist() == [f"gross{end} blood", f"a\tb{end}{end}c", "!Sample_title\tx"]
    assert frame["diagnosis"].tolist() == ["UC", "UC", "Control"]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path, end):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS], [("a", [1, 2, 3])])
    assert read(tmp_path, text.replace("\n", end)).equals(read(tmp_path, text))


def test_a_fault_below_a_cell_of_several_lines_has_the_number_that_an_editor_shows(tmp_path):
    text = series_matrix(GSM, TITLES, [["a: b\r\nc", "a: b", "a: b\n"], DIAGNOSIS])
    message = refusal(tmp_path, text.replace('\t"diagnosis: Control"', ""))
    assert "line 12: found 2 cells; expected 3, one for each sample" in message


@pytest.mark.parametrize(
    ("line", "cell"), [(1, '"Rectal biopsies"'), (6, f'"{TITLES[2]}"'), (9, '"diagnosis: UC"'), (12, '"GSM13"')]
)
def test_a_quoted_cell_without_its_end_is_refused_and_the_file_to_read_instead_is_named(tmp_path, line, cell):
    lines = series_matrix(GSM, TITLES, [["diagnosis: Control"] * 2 + ["diagnosis: UC"]]).splitlines(keepends=True)
    assert cell in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(cell, cell[:-1])
    message = refusal(tmp_path, "".join(lines))
    assert f"line {line}: found a quoted cell without its end" in message
    assert "if it is as GEO has it, set metadata_file to GSE123456_family.soft.gz in the cohort's file" in message


def test_a_quote_before_a_line_end_ends_a_cell_and_the_file_to_read_instead_is_named(tmp_path):
    message = refusal(tmp_path, series_matrix(GSM, TITLES, [['note: "x"\r\ny', "note: z", "note: z"]]))
    assert "line 9: found 1 cells; expected 3, one for each sample" in message
    assert "GSE123456_family.soft.gz" in message


def test_characteristics_of_the_second_channel_have_names_of_their_own(tmp_path):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS, ["dye: Cy5", "Cy5", ""]])
    second = text.replace('!Sample_characteristics_ch1\t"dye', '!Sample_characteristics_ch2\t"dye')
    frame = read(tmp_path, second).drop(columns="title")
    assert frame.columns.tolist() == ["diagnosis", "dye_ch2", "characteristics_ch2"]
    assert frame["dye_ch2"].tolist() == ["Cy5", "", ""]


def test_cells_without_quotes_are_read(tmp_path):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS]).replace('"diagnosis: UC"\t"diagnosis: UC"', "diagnosis: UC\t")
    assert read(tmp_path, text)["diagnosis"].tolist() == ["UC", "", "Control"]


def test_a_cell_without_a_key_and_a_key_called_title_have_columns_of_their_own(tmp_path):
    frame = read(tmp_path, series_matrix(GSM, TITLES, [["rectum", "title: Dr", "ileum"]]))
    assert frame["characteristics_ch1"].tolist() == ["rectum", "", "ileum"]
    assert frame["title_ch1"].tolist() == ["", "Dr", ""]
    assert frame["title"].tolist() == TITLES


def test_a_key_given_twice_keeps_both_values(tmp_path):
    frame = characteristics(tmp_path, ["drug: a", "drug: a", "drug: a"], ["drug: b", "drug: a", "drug: "])
    assert frame["drug"].tolist() == ["a; b", "a", "a"]


def test_a_file_without_the_tables_end_is_refused_with_its_line(tmp_path):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS], [("a", [1, 2, 3])], end="")
    message = refusal(tmp_path, text)
    assert f"line {text.count(chr(10))}: found the end of the file without !series_matrix_table_end" in message


def test_a_file_cut_in_its_header_is_refused(tmp_path):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS])
    message = refusal(tmp_path, text[: text.index("!series_matrix_table_begin")])
    assert "without !series_matrix_table_begin" in message


def test_a_truncated_gzip_file_is_refused(tmp_path):
    content = gzip.compress(series_matrix(GSM, TITLES, [DIAGNOSIS]).encode())[:-30]
    with pytest.raises(CohortError, match="truncated or damaged gzip"):
        read_series_matrix(put(tmp_path / "m.txt.gz", content))


def test_a_line_with_too_few_cells_is_refused_with_its_number(tmp_path):
    text = series_matrix(GSM, TITLES, [DIAGNOSIS]).replace('\t"diagnosis: Control"', "")
    assert "line 9: found 2 cells; expected 3, one for each sample" in refusal(tmp_path, text)


def test_a_table_line_with_too_few_cells_is_refused_with_its_number(tmp_path):
    message = refusal(tmp_path, series_matrix(GSM, TITLES, [DIAGNOSIS], [("a", [1, 2, 3]), ("b", [1, 2])]))
    assert "line 14: found 3 cells; expected 4, as in the table's header" in message


@pytest.mark.parametrize(
    ("accessions", "said"),
    [
        (["GSM11", "GSM12", "GSM11"], "found GSM11 twice"),
        (["GSM11", "GSM12", "sample"], "found 'sample'; expected a GSM accession"),
    ],
)
def test_wrong_accessions_are_refused(tmp_path, accessions, said):
    assert said in refusal(tmp_path, series_matrix(accessions, TITLES, [DIAGNOSIS]))


def test_a_page_instead_of_a_file_is_refused(tmp_path):
    assert "line 1: found '<html>'; expected a line that starts with !" in refusal(tmp_path, "<html>\n")


def test_a_file_without_accessions_is_refused(tmp_path):
    text = '!Series_title\t"x"\n!series_matrix_table_begin\n"ID_REF"\n!series_matrix_table_end\n'
    assert "no !Sample_geo_accession line" in refusal(tmp_path, text)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CohortError, match="No such file"):
        read_series_matrix(tmp_path / "none.gz")
