from __future__ import annotations

import gzip
import re
import shutil
from functools import partial
from pathlib import Path

import GEOparse
import pandas as pd
import pytest
from cohort.geo_layout import (
    config,
    described,
    family_soft,
    gene_matrix,
    place,
    put,
    raw_tar,
    sample_text,
    series_matrix,
)
from cohort.http_server import Reply, serve

from afa.cohort import geo
from afa.cohort.config import load_cohort_config
from afa.cohort.download import download
from afa.cohort.geo import Source, fetch, read_expression, read_samples, series_folder
from afa.errors import CohortError, DownloadError
from afa.io.files import sha256_of

GSM = ["GSM11", "GSM12"]
TITLES = ["Control female1", "UC male1"]
LINES = [["diagnosis: Control", "diagnosis: UC"], ["Total Mayo Score: NA", "Total Mayo Score: "]]
VALUES = [("A1", (0.01, 3.25)), ("B2", (17.123456789, 0.1)), ("A1", (2, 3))]
MATRIX = gzip.compress(series_matrix(GSM, TITLES, LINES).encode(), mtime=0)
TAR = raw_tar(
    (f"{name}_lab{i}.txt.gz", gzip.compress(sample_text(f"lab{i}", [(gene, row[i]) for gene, row in VALUES])))
    for i, name in enumerate(GSM)
)
FOLDER = "series/GSE123nnn/GSE123456"


@pytest.fixture
def original_mirror(tmp_path) -> Path:
    """A mirror that has what GEO has."""
    root = tmp_path / "original"
    put(place(root, config(), "matrix/GSE123456_series_matrix.txt.gz"), MATRIX)
    put(place(root, config(), "suppl/GSE123456_RAW.tar"), TAR)
    return root


@pytest.fixture
def joined_mirror(tmp_path) -> Path:
    """A mirror that has the same, as two tables."""
    root = tmp_path / "joined"
    table = (
        "title\tsample_id\tdiagnosis\ttotal_mayo_score\nControl female1\tGSM11\tControl\tNA\nUC male1\tGSM12\tUC\t\n"
    )
    put(place(root, config(), "metadata/GSE123456_metadata.tsv"), table)
    put(place(root, config(), "suppl/GSE123456_TPM_matrix.txt.gz"), gene_matrix(GSM, VALUES))
    return root


def from_mirror(mirror, tmp_path, **changes) -> Source:
    return fetch(config(**changes), cache=tmp_path / "cache", mirror=mirror)


def refusal(call, *args, error=CohortError, **keys) -> str:
    with pytest.raises(error) as caught:
        call(*args, **keys)
    assert "Next step: " in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("series", "folder"),
    [
        ("GSE117993", "series/GSE117nnn/GSE117993"),
        ("GSE1234", "series/GSE1nnn/GSE1234"),
        ("GSE12", "series/GSEnnn/GSE12"),
    ],
)
def test_the_last_three_digits_of_a_series_name_its_folder(series, folder):
    assert series_folder(series) == folder


def test_both_files_are_fetched_into_geos_folders_and_kept(tmp_path):
    replies = {
        f"/{FOLDER}/matrix/GSE123456_series_matrix.txt.gz": Reply(MATRIX),
        f"/{FOLDER}/suppl/GSE123456_RAW.tar": Reply(TAR),
    }
    with serve(replies) as site:
        source = fetch(config(), cache=tmp_path, base_url=site.url + "/")
        assert fetch(config(), cache=tmp_path, base_url=site.url) == source
        assert len(site.requests) == 2
    assert source.metadata.path == tmp_path / FOLDER / "matrix" / "GSE123456_series_matrix.txt.gz"
    assert source.expression.path.read_bytes() == TAR
    assert source.expression == described(source.expression.path, "geo")
    assert (source.metadata.form, source.expression.form) == ("geo", "geo")


def test_a_cache_serves_as_a_mirror(tmp_path):
    replies = {
        f"/{FOLDER}/matrix/GSE123456_series_matrix.txt.gz": Reply(MATRIX),
        f"/{FOLDER}/suppl/GSE123456_RAW.tar": Reply(TAR),
    }
    with serve(replies) as site:
        source = fetch(config(), cache=tmp_path / "first", base_url=site.url)
    again = from_mirror(tmp_path / "first", tmp_path)
    assert again.expression.path == source.expression.path
    assert again.expression.form == "mirror"


def test_a_fetched_file_must_have_the_configs_hash(tmp_path):
    expression = config().expression.model_dump() | {"sha256": "0" * 64}
    replies = {
        f"/{FOLDER}/matrix/GSE123456_series_matrix.txt.gz": Reply(MATRIX),
        f"/{FOLDER}/suppl/GSE123456_RAW.tar": Reply(TAR),
    }
    with serve(replies) as site:
        refusal(fetch, config(expression=expression), cache=tmp_path, base_url=site.url, error=DownloadError)


def test_files_put_into_the_cache_by_hand_need_no_network(tmp_path):
    put(place(tmp_path, config(), "matrix/GSE123456_series_matrix.txt.gz"), MATRIX)
    put(place(tmp_path, config(), "suppl/GSE123456_RAW.tar"), TAR)
    assert fetch(config(), cache=tmp_path, base_url="http://127.0.0.1:9").expression.form == "geo"


def test_a_cut_file_in_the_cache_is_fetched_again(tmp_path):
    kept = put(place(tmp_path, config(), "matrix/GSE123456_series_matrix.txt.gz"), MATRIX)
    cut = put(place(tmp_path, config(), "suppl/GSE123456_RAW.tar"), TAR[:700])
    with serve({f"/{FOLDER}/suppl/GSE123456_RAW.tar": Reply(TAR)}) as site:
        fetch(config(), cache=tmp_path, base_url=site.url)
        assert site.requests == [f"/{FOLDER}/suppl/GSE123456_RAW.tar"]
    assert (kept.read_bytes(), cut.read_bytes()) == (MATRIX, TAR)


def test_a_series_broken_off_goes_on_with_the_file_that_is_missing(tmp_path):
    paths = [f"/{FOLDER}/matrix/GSE123456_series_matrix.txt.gz", f"/{FOLDER}/suppl/GSE123456_RAW.tar"]
    with serve({paths[0]: Reply(MATRIX), paths[1]: [Reply(b"", 403), Reply(TAR)]}) as site:
        assert "HTTP status 403" in refusal(fetch, config(), cache=tmp_path, base_url=site.url, error=DownloadError)
        fetch(config(), cache=tmp_path, base_url=site.url)
        assert site.requests == [*paths, paths[1]]


def test_a_simulated_series_is_never_asked_of_geo(tmp_path):
    assert "give its folder as the mirror" in refusal(fetch, config(origin="simulated"), cache=tmp_path)


def test_geos_own_files_come_before_joined_tables(tmp_path, original_mirror, joined_mirror):
    shutil.copytree(joined_mirror, original_mirror, dirs_exist_ok=True)
    source = from_mirror(original_mirror, tmp_path)
    assert source.metadata.path.name == "GSE123456_series_matrix.txt.gz"
    assert source.expression.path.name == "GSE123456_RAW.tar"
    assert (source.metadata.form, source.expression.form) == ("mirror", "mirror")


def test_joined_tables_are_named_as_such(tmp_path, joined_mirror):
    source = from_mirror(joined_mirror, tmp_path)
    assert (source.metadata.form, source.expression.form) == ("mirror_joined", "mirror_joined")


def test_both_forms_of_a_mirror_give_the_same_samples_and_values(tmp_path, original_mirror, joined_mirror):
    original, joined = from_mirror(original_mirror, tmp_path), from_mirror(joined_mirror, tmp_path)
    samples = read_samples(original)
    pd.testing.assert_frame_equal(samples, read_samples(joined), check_exact=True)
    one, other = (read_expression(s, config().expression, samples, {"A1", "B2"}) for s in (original, joined))
    pd.testing.assert_frame_equal(one.values, other.values, check_exact=True)
    pd.testing.assert_series_equal(one.library_size, other.library_size, check_exact=True)
    assert one.n_rows == other.n_rows == 3


def test_every_path_looked_for_is_named_when_a_mirror_lacks_both_files(tmp_path):
    message = refusal(from_mirror, tmp_path / "empty", tmp_path)
    folder = tmp_path / "empty" / FOLDER
    for name in (
        "matrix/GSE123456_series_matrix.txt.gz",
        "metadata/GSE123456_metadata.tsv",
        "suppl/GSE123456_RAW.tar",
        "suppl/GSE123456_TPM_matrix.txt.gz",
    ):
        assert str(folder / name) in message
    assert "leave GEO_MIRROR out to fetch the series from GEO" in message


def test_a_page_in_a_mirror_is_refused(tmp_path, original_mirror):
    put(place(original_mirror, config(), "matrix/GSE123456_series_matrix.txt.gz"), b"<html></html>")
    assert "an HTML page" in refusal(from_mirror, original_mirror, tmp_path, error=DownloadError)


def test_a_mirrors_joined_table_must_have_the_configs_hash(tmp_path, joined_mirror):
    expression = config().expression.model_dump() | {"joined_sha256": "0" * 64}
    message = refusal(from_mirror, joined_mirror, tmp_path, expression=expression, error=DownloadError)
    path = place(joined_mirror, config(), "suppl/GSE123456_TPM_matrix.txt.gz")
    assert sha256_of(path) in message


def test_a_source_survives_writing_and_reading(tmp_path, joined_mirror):
    source = from_mirror(joined_mirror, tmp_path)
    source.write(tmp_path / "source.json")
    assert Source.read(tmp_path / "source.json") == source


@pytest.mark.parametrize("change", ["gone", "longer"])
def test_a_source_whose_file_has_changed_is_refused(tmp_path, joined_mirror, change):
    source = from_mirror(joined_mirror, tmp_path)
    source.write(tmp_path / "source.json")
    if change == "gone":
        source.expression.path.unlink()
    else:
        put(source.expression.path, source.expression.path.read_bytes() + b"\n")
    message = refusal(Source.read, tmp_path / "source.json")
    assert str(source.expression.path) in message
    assert f"expected {source.expression.bytes} bytes" in message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"series": "GSE1", "metadata": {"form": "x"}, "expression": {}}'])
def test_a_source_list_of_other_content_is_refused(tmp_path, text):
    assert "expected a source list of afa" in refusal(Source.read, put(tmp_path / "source.json", text))


def test_a_missing_source_list_is_refused(tmp_path):
    assert "No such file" in refusal(Source.read, tmp_path / "none.json")


def test_a_source_list_holds_in_a_folder_that_is_moved(tmp_path, joined_mirror, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = fetch(config(), cache=Path("cache"), mirror=Path("joined"))
    written.write(tmp_path / "source.json")
    assert str(tmp_path) not in (tmp_path / "source.json").read_text()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    monkeypatch.chdir(moved)
    assert Source.read(Path("source.json")) == written


FAMILY = "GSE123456_family.soft.gz"
CELLS = {name: (TITLES[i], [line[i] for line in LINES], []) for i, name in enumerate(GSM)}


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


@pytest.fixture
def asked_of_geoparse(monkeypatch) -> list[str]:
    """The files that GEOparse is asked to read, in turn."""
    paths, read_by_geoparse = [], GEOparse.get_GEO

    def noted(**options):
        paths.append(options["filepath"])
        return read_by_geoparse(**options)

    monkeypatch.setattr(GEOparse, "get_GEO", noted)
    return paths


def test_samples_of_a_family_file_in_a_mirror_are_read_by_geoparse(tmp_path, original_mirror, asked_of_geoparse):
    path = put(place(original_mirror, config(), f"soft/{FAMILY}"), family_soft(CELLS))
    source = from_mirror(original_mirror, tmp_path, metadata_file=FAMILY)
    assert source.metadata == described(path, "mirror")
    samples = read_samples(source)
    assert asked_of_geoparse == [str(path)]
    pd.testing.assert_frame_equal(samples, read_samples(from_mirror(original_mirror, tmp_path)), check_exact=True)


def test_a_series_is_fetched_by_its_family_file_which_geoparse_reads(tmp_path, asked_of_geoparse):
    cohort = config(metadata_file=FAMILY)
    text = family_soft(CELLS, supplementary=["GSE123456_RAW.tar", "filelist.txt"])
    paths = [f"/{FOLDER}/soft/{FAMILY}", f"/{FOLDER}/suppl/GSE123456_RAW.tar"]
    with serve({paths[0]: Reply(packed(text)), paths[1]: Reply(TAR)}) as site:
        source = fetch(cohort, cache=tmp_path, base_url=site.url)
        assert site.requests == paths
    assert asked_of_geoparse == [str(source.metadata.path)] == [str(tmp_path / FOLDER / "soft" / FAMILY)]
    samples = read_samples(source)
    assert samples["title"].tolist() == TITLES
    assert samples["diagnosis"].tolist() == ["Control", "UC"]
    values = read_expression(source, cohort.expression, samples, {"B2"}).values
    assert values.loc["B2"].tolist() == [17.123456789, 0.1]


def test_an_expression_file_that_the_series_does_not_list_is_not_asked_for(tmp_path):
    text = family_soft(CELLS, supplementary=["GSE123456_counts.txt.gz", "GSE123456_TPM.txt.gz"])
    with serve({f"/{FOLDER}/soft/{FAMILY}": Reply(packed(text))}) as site:
        message = refusal(fetch, config(metadata_file=FAMILY), cache=tmp_path, base_url=site.url)
        assert site.requests == [f"/{FOLDER}/soft/{FAMILY}"]
    assert "supplementary files GSE123456_counts.txt.gz, GSE123456_TPM.txt.gz, and no GSE123456_RAW.tar" in message
    assert "correct `expression.file`" in message


def test_a_family_file_that_cannot_be_read_is_refused_before_the_values_are_fetched(tmp_path):
    with serve({f"/{FOLDER}/soft/{FAMILY}": Reply(packed(family_soft(CELLS).replace("GSM12\n!", "GSM11\n!")))}) as site:
        assert "^SAMPLE = GSM11 twice" in refusal(
            fetch, config(metadata_file=FAMILY), cache=tmp_path, base_url=site.url
        )
        assert len(site.requests) == 1


@pytest.mark.parametrize("length", [None, -1], ids=["with its length", "without its length"])
@pytest.mark.parametrize("cut", [FAMILY, "GSE123456_RAW.tar"])
def test_a_connection_that_closes_midway_leaves_no_part_of_a_file_and_the_next_call_fetches_it(
    tmp_path, monkeypatch, cut, length
):
    monkeypatch.setattr(geo, "download", partial(download, retries=0))
    whole = {f"soft/{FAMILY}": packed(family_soft(CELLS)), "suppl/GSE123456_RAW.tar": TAR}
    replies = {f"/{FOLDER}/{name}": [Reply(body)] for name, body in whole.items()}
    for name, body in whole.items():
        if name.endswith(cut):
            part = body[: min(700, len(body) // 2)]
            replies[f"/{FOLDER}/{name}"].insert(0, Reply(part, length=length or len(body)))
    cohort = config(metadata_file=FAMILY)
    with serve(replies) as site:
        message = refusal(fetch, cohort, cache=tmp_path, base_url=site.url, error=DownloadError)
        assert re.search("truncated|breaks off", message)
        left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
        assert left == {FAMILY} - {cut}
        source = fetch(cohort, cache=tmp_path, base_url=site.url)
    assert (source.metadata.path.read_bytes(), source.expression.path.read_bytes()) == tuple(whole.values())


def joined_samples(tmp_path, text, name="m.tsv") -> pd.DataFrame:
    file = described(put(tmp_path / name, text), "mirror_joined")
    return read_samples(Source("GSE123456", file, file))


def test_a_table_by_gsm_loses_what_its_author_derived(tmp_path):
    text = "gsm\tTotal Score\ttitle\tsample_id\tgroup\nGSM11\t2.0\tP_1, UC\tP_1\tIBD\n"
    samples = joined_samples(tmp_path, text, "m.tsv.gz")
    assert samples.to_dict("index") == {"GSM11": {"title": "P_1, UC", "total_score": "2.0"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title\tsample_id\na\tGSM1\nb\tGSM1\n", "GSM1 twice"),
        ("title\tsample_id\na\tS1\n", "'S1'; expected a GSM accession"),
        ("title\tsample_id\n", "no sample"),
        ("name\tsample_id\na\tGSM1\n", "`title`, `sample_id` or `gsm`"),
        ("title\tsample_id\tAge\tage\na\tGSM1\t1\t2\n", "no column twice"),
        ("title\tsample_id\na\tGSM1\nb\tGSM2\tc\n", "3 fields (line 3); expected 2"),
        ("title\tsample_id\na\n", "1 fields (line 2); expected all 2"),
        ("", "no header"),
    ],
)
def test_a_joined_table_that_breaks_the_form_is_refused(tmp_path, text, said):
    assert said in refusal(joined_samples, tmp_path, text)


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "samples", "columns", "group"),
    [
        ("gse117993", 190, 7, {"CD": 92, "Control": 55, "UC": 43}),
        ("gse109142", 226, 13, {"Ulcerative Colitis": 206, "Control": 20}),
    ],
)
def test_real_sample_tables_are_read(geo_mirror, tmp_path, name, samples, columns, group):
    cohort = load_cohort_config(Path(__file__).parents[2] / "config" / "cohorts" / f"{name}.yaml")
    table = read_samples(fetch(cohort, cache=tmp_path, mirror=geo_mirror))
    assert table.shape == (samples, columns)
    assert table["diagnosis"].value_counts().to_dict() == group


@pytest.mark.mirror
def test_the_real_sample_table_of_gse193677_has_geos_21_keys(geo_mirror):
    path = geo_mirror / "series/GSE193nnn/GSE193677/metadata/GSE193677_sample_metadata.tsv.gz"
    file = described(path, "mirror_joined")
    table = read_samples(Source("GSE193677", file, file))
    assert table.shape == (2490, 22)
    assert table["ibd_disease"].value_counts().to_dict() == {"CD": 1157, "UC": 872, "Control": 461}
    assert table.columns[-1] == "historemiss"


@pytest.mark.mirror
@pytest.mark.parametrize(
    "name",
    [
        "GSE109nnn/GSE109142/metadata/GSE109142_metadata.tsv",
        "GSE117nnn/GSE117993/metadata/GSE117993_metadata.tsv",
        "GSE193nnn/GSE193677/metadata/GSE193677_sample_metadata.tsv.gz",
    ],
)
def test_a_family_file_of_real_samples_gives_the_same_samples_as_their_table(geo_mirror, tmp_path, name):
    file = described(geo_mirror / "series" / name, "mirror_joined")
    table = read_samples(Source("GSE1", file, file))
    cells = [
        [f"{key}: {value}" for key, value in row.items()] for row in table.drop(columns="title").to_dict("records")
    ]
    samples = {accession: (table["title"][accession], cells[i], []) for i, accession in enumerate(table.index)}
    family = described(put(tmp_path / FAMILY, family_soft(samples)), "mirror")
    pd.testing.assert_frame_equal(read_samples(Source("GSE1", family, file)), table, check_exact=True)
