"""Files as the programs that count reads write them: the same values as by genes alone, or a refusal that helps."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cohort import geo_layout
from cohort.geo_layout import expression_source, gene_matrix, place, put, raw_tar, series_matrix, source

from afa.cohort import geo
from afa.cohort.build import build_cohort, origin_files, read_values
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig, ExpressionSource
from afa.cohort.counters import is_gene, without_version
from afa.cohort.encode import log_values, read_ensembl, read_transcripts
from afa.cohort.expression import Expression, read_gene_matrix
from afa.cohort.geo import read_expression
from afa.errors import CohortError, ConfigError

GSM = ["GSM1", "GSM2", "GSM3"]
COUNTS = {"CXCL8": (114, 60, 7), "MUC2": (900, 1001, 850), "AQP8": (380, 370, 0)}
LIBRARY = {"GSM1": 1394, "GSM2": 1431, "GSM3": 857}
SUMMARIES = {
    "htseq-count": ["__no_feature", "__ambiguous", "__too_low_aQual", "__not_aligned", "__alignment_not_unique"],
    "htseq-count before 0.6": ["no_feature", "ambiguous", "too_low_aQual", "not_aligned", "alignment_not_unique"],
    "STAR": ["N_unmapped", "N_multimapping", "N_noFeature", "N_ambiguous"],
    "featureCounts": ["Assigned", "Unassigned_NoFeatures", "Unassigned_Ambiguity"],
    "DEXSeq": ["_ambiguous", "_empty", "_lowaqual", "_notaligned", "_ambiguous_readpair_position"],
    "idxstats": ["*"],
    "spike-ins": ["ERCC-00002", "ERCC-00171", "gSpikein_ERCC-00003"],
}
SAMPLES = pd.DataFrame({"title": GSM}, index=pd.Index(GSM, name="sample"))
TPM = {name: tuple(round(value / 7, 3) for value in values) for name, values in COUNTS.items()}


def refusal(call: Any, *args: Any, **keys: Any) -> str:
    with pytest.raises(CohortError) as caught:
        call(*args, **keys)
    assert "Next step: " in str(caught.value)
    return str(caught.value)


def matrix(tmp_path: Path, text: str | bytes, wanted: Sequence[str] = tuple(COUNTS), **keys: Any) -> Expression:
    path = put(tmp_path / "counts.txt", text)
    return read_expression(source(path), expression_source(**keys), SAMPLES, wanted)


def members(
    tmp_path: Path,
    texts: Mapping[str, str | bytes],
    wanted: Sequence[str] = tuple(COUNTS),
    ending: str = "x.txt.gz",
    **keys: Any,
) -> Expression:
    """Read an archive of these texts by sample."""
    files = []
    for name, text in texts.items():
        content = text.encode() if isinstance(text, str) else text
        files.append((f"{name}_{ending}", gzip.compress(content) if ending.endswith(".gz") else content))
    how = ExpressionSource.model_validate({"layout": "sample_files", "file": "x.tar", "unit": "counts", **keys})
    return read_expression(source(put(tmp_path / "GSE1_RAW.tar", raw_tar(files))), how, SAMPLES, wanted)


def is_right(read: Expression, expected: Mapping[str, Sequence[float]] = COUNTS) -> None:
    """The values are those of the table above, and the library is their sum: of genes alone."""
    assert read.values.index.tolist() == list(expected)
    np.testing.assert_array_equal(read.values, [expected[name] for name in expected])
    np.testing.assert_allclose(read.library_size, np.sum(list(expected.values()), axis=0), rtol=1e-12)
    assert read.n_rows == len(expected)


def rows(*more: tuple[str, Sequence[object]]) -> list[tuple[str, Sequence[object]]]:
    return [*COUNTS.items(), *more]


@pytest.mark.parametrize("counter", SUMMARIES)
def test_summary_rows_in_a_matrix_are_no_genes_and_no_part_of_the_library(tmp_path: Path, counter: str) -> None:
    more = [(name, (10_133, 506, 90_000)) for name in SUMMARIES[counter]]
    read = matrix(tmp_path, gene_matrix(GSM, rows(*more)))
    is_right(read)
    assert read.library_size.to_dict() == LIBRARY
    assert f"rows that are no genes are left out, of the library too ({len(more)}): {more[0][0]}" in read.notes[0]
    assert matrix(tmp_path, gene_matrix(GSM, rows())).notes == ()


@pytest.mark.parametrize("counter", SUMMARIES)
def test_summary_rows_in_sample_files_are_no_genes_and_no_part_of_the_library(tmp_path: Path, counter: str) -> None:
    texts = {
        name: "".join(f"{gene}\t{values[i]}\n" for gene, values in COUNTS.items())
        + "".join(f"{row}\t{4000 * i + 17}\n" for row in SUMMARIES[counter])
        for i, name in enumerate(GSM)
    }
    read = members(tmp_path, texts)
    is_right(read)
    assert read.notes[0] == "3 of 3 files: no header line: the first line is a row"
    assert f"rows that are no genes are left out, of the library too ({len(SUMMARIES[counter])})" in read.notes[1]


@pytest.mark.parametrize("symbol", ["ERCC1", "ERCC6L", "NOC2L", "N4BP1", "AMBP", "ASS1", "_1", "ERCC6L2-AS1"])
def test_a_gene_of_a_like_name_is_a_gene(symbol: str) -> None:
    assert is_gene(symbol)


def test_a_file_of_summary_rows_alone_is_refused(tmp_path: Path) -> None:
    text = gene_matrix(GSM, [(name, (1, 2, 3)) for name in SUMMARIES["featureCounts"]], corner="Status")
    assert "found no row of a gene, but Assigned, Unassigned_NoFeatures" in refusal(matrix, tmp_path, text)
    texts = dict.fromkeys(GSM, "N_unmapped\t1\nN_noFeature\t2\n")
    assert "GSM1_x.txt.gz: found no row of a gene" in refusal(members, tmp_path, texts)


CONTROLS, PATIENTS = [f"GSM{i}" for i in range(1000, 1012)], [f"GSM{i}" for i in range(2000, 2004)]
EVERYONE = [*CONTROLS, *PATIENTS]


def series(tmp_path: Path, rows_of: Sequence[tuple[str, Sequence[int]]], **expression: Any) -> tuple[CohortConfig, Any]:
    """Twelve controls and four patients in GEO's layout: what `afa cohort fetch` finds."""
    keys = {"layout": "count_matrix", "file": "GSE123456_counts.txt.gz", "unit": "counts", **expression}
    cohort = geo_layout.config(
        expression=keys, encoding={"test": "t"}, controls={"key": "state", "values": ["well"]},
        patients={"key": "state", "values": ["ill"]}, mirror_metadata_file=None,
    )  # fmt: skip
    cells = [["state: well"] * 12 + ["state: ill"] * 4]
    put(place(tmp_path, cohort, f"matrix/{cohort.metadata_file}"), series_matrix(EVERYONE, EVERYONE, cells))
    put(place(tmp_path, cohort, "suppl/GSE123456_counts.txt.gz"), gene_matrix(EVERYONE, rows_of))
    return cohort, geo.fetch(cohort, cache=tmp_path, mirror=tmp_path)


def same_for_all(n_genes: int = 150) -> list[tuple[str, list[int]]]:
    random = np.random.default_rng(48)
    base = random.integers(100, 900, size=n_genes)
    return [(f"G{i}", random.poisson(base[i], size=len(EVERYONE)).tolist()) for i in range(n_genes)]


def test_reads_outside_genes_turn_no_code_and_the_record_says_that_they_are_left_out(tmp_path: Path) -> None:
    """Four patients have four times as many reads outside genes, and the same genes: all codes but a few are 0."""
    genes = same_for_all()
    sums = np.sum([values for _, values in genes], axis=0)
    outside = [("__no_feature", (sums * np.where(np.arange(16) < 12, 0.2, 4)).astype(int).tolist())]
    built: list[Cohort] = []
    for name, table in (("alone", genes), ("counted", [*genes, *outside])):
        cohort, files = series(tmp_path / name, table)
        built.append(build_cohort(cohort, files, ["G0", "G1", "G2", "G3"], []))
    np.testing.assert_array_equal(built[0].values, built[1].values)
    assert np.abs(built[1].values).mean() < 0.2
    assert built[1].provenance["reading"] == [
        "rows that are no genes are left out, of the library too (1): __no_feature"
    ]
    assert "reading" not in built[0].provenance
    _, _, read = read_values(cohort, files, ["G0"], {}, {})
    expected = math.log2(genes[0][1][12] / sums[12] * 1e6 + 1)
    assert log_values(read.values, "counts", read.library_size).loc["G0", "GSM2000"] == pytest.approx(expected)


def plain(corner: str = "") -> dict[str, str]:
    """One two-column file for each sample, with a header where a corner is given."""
    return {
        name: (f"{corner}\t{name}\n" if corner else "") + "".join(f"{g}\t{v[i]}\n" for g, v in COUNTS.items())
        for i, name in enumerate(GSM)
    }


def test_a_sample_file_without_a_header_keeps_its_first_gene(tmp_path: Path) -> None:
    read = members(tmp_path, plain())
    is_right(read)
    assert read.notes == ("3 of 3 files: no header line: the first line is a row",)
    with_header = members(tmp_path, plain("Gene"))
    is_right(with_header)
    assert with_header.notes == ()


@pytest.mark.parametrize("cell", ["NA", "nan", "inf", "-", "", "1,058", "?"])
def test_a_first_row_without_a_number_is_no_header_and_its_cell_is_named(tmp_path: Path, cell: str) -> None:
    texts = {name: f"CXCL9\t{cell}\n" + text for name, text in plain().items()}
    assert "GSM1_x.txt.gz, line 1, row 'CXCL9', column" in refusal(members, tmp_path, texts)


def test_a_table_of_another_separator_is_named_as_such(tmp_path: Path) -> None:
    message = refusal(matrix, tmp_path, gene_matrix(GSM, rows(), separator="|"))
    assert "line 1: found one field, 'Gene|GSM1|GSM2|GSM3'; expected fields separated by tabs, commas" in message


@pytest.mark.parametrize("corner", ["Gene", "gene_id", "", "Hugo_Symbol", "#ID", "Gene Symbol"])
def test_a_header_whose_sample_is_called_by_a_number_is_a_header(tmp_path: Path, corner: str) -> None:
    texts = {name: f"{corner}\t{i}\n" + text for i, (name, text) in enumerate(plain().items())}
    is_right(members(tmp_path, texts))


def test_a_matrix_without_a_header_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = gene_matrix(GSM, rows()).partition("\n")[2]
    message = refusal(matrix, tmp_path, text)
    assert "header: found a first line of numbers and no header" in message
    assert "add a header with the samples' accessions" in message


def test_a_matrix_whose_samples_are_called_by_numbers_has_a_header(tmp_path: Path) -> None:
    path = put(tmp_path / "m.txt", gene_matrix(["1", "2", "3"], rows(), corner="anything"))
    read = read_gene_matrix(path, dict(zip(GSM, ["1", "2", "3"], strict=True)), set(COUNTS))
    is_right(read)


def test_a_line_of_names_behind_a_hash_is_the_header(tmp_path: Path) -> None:
    is_right(matrix(tmp_path, "# made by hand\n#Gene" + gene_matrix(GSM, rows()).removeprefix("Gene")))


def star(i: int, share_forward: float = 0.5) -> str:
    """STAR's four columns: both strands together have the counts of the table, and reads outside genes come first."""
    lines = [f"{name}\t{9000 + i}\t{12_000}\t{12_100}\n" for name in SUMMARIES["STAR"]]
    for gene, values in COUNTS.items():
        forward = round(values[i] * share_forward)
        lines.append(f"{gene}\t{values[i]}\t{forward}\t{values[i] - forward}\n")
    return "".join(lines)


def test_of_stars_columns_the_unstranded_is_read_and_said(tmp_path: Path) -> None:
    read = members(tmp_path, {name: star(i) for i, name in enumerate(GSM)}, ending="ReadsPerGene.out.tab.gz")
    is_right(read)
    assert read.notes[0] == "3 of 3 files: of STAR, ReadsPerGene.out.tab, column unstranded"


@pytest.mark.parametrize(("column", "share"), [("forward", 0.25), ("reverse", 0.75)])
def test_another_of_stars_columns_is_read_where_it_is_named(tmp_path: Path, column: str, share: float) -> None:
    texts = {name: star(i, 0.25) for i, name in enumerate(GSM)}
    read = members(tmp_path, texts, count_column=column)
    forward = {gene: [round(value * 0.25) for value in values] for gene, values in COUNTS.items()}
    expected = forward if column == "forward" else {
        gene: [value - other for value, other in zip(COUNTS[gene], forward[gene], strict=True)] for gene in COUNTS
    }  # fmt: skip
    is_right(read, expected)
    assert f"column {column}, as `count_column` says" in read.notes[0]
    assert read.library_size.sum() == pytest.approx(share * sum(LIBRARY.values()), rel=0.01)


@pytest.mark.parametrize(("share", "likely"), [(0.02, "reverse"), (0.97, "forward")])
def test_a_strand_specific_library_is_asked_back_and_read_as_it_is_named(
    tmp_path: Path, share: float, likely: str
) -> None:
    texts = {name: star(i, share) for i, name in enumerate(GSM)}
    message = refusal(members, tmp_path, texts)
    assert "the library is strand-specific" in message
    assert f"set `count_column: {likely}`" in message
    is_right(members(tmp_path, texts, count_column="unstranded"))


def featurecounts(i: int, column: str) -> str:
    head = '# Program:featureCounts v2.0.1; Command:"featureCounts" "-a" "x.gtf"\n'
    body = "".join(f"{g}\tchr1;chr1\t1;9\t5;12\t+;+\t202\t{v[i]}\n" for g, v in COUNTS.items())
    return f"{head}Geneid\tChr\tStart\tEnd\tStrand\tLength\t{column}\n{body}"


def rsem(i: int) -> str:
    head = "gene_id\ttranscript_id(s)\tlength\teffective_length\texpected_count\tTPM\tFPKM\n"
    return head + "".join(f"{g}\tT1,T2\t900\t800\t{v[i]}.00\t{TPM[g][i]}\t3.5\n" for g, v in COUNTS.items())


def isoforms(i: int) -> str:
    """Two transcripts of each gene, of a third and two thirds of its values."""
    lines = ["transcript_id\tgene_id\tlength\teffective_length\texpected_count\tTPM\tFPKM\tIsoPct\n"]
    for gene, values in COUNTS.items():
        parts = (values[i] // 3, values[i] - values[i] // 3)
        lines += [f"T\t{gene}\t900\t800\t{part}\t1\t2\t50\n" for part in parts]
    return "".join(lines)


def salmon(i: int, name: str = "{}") -> str:
    head = "Name\tLength\tEffectiveLength\tTPM\tNumReads\n"
    return head + "".join(f"{name.format(g)}\t900\t800\t{TPM[g][i]}\t{v[i]}\n" for g, v in COUNTS.items())


def kallisto(i: int) -> str:
    head = "target_id\tlength\teff_length\test_counts\ttpm\n"
    return head + "".join(f"{g}\t900\t800\t{v[i]}\t{TPM[g][i]}\n" for g, v in COUNTS.items())


def stringtie(i: int) -> str:
    head = "Gene ID\tGene Name\tReference\tStrand\tStart\tEnd\tCoverage\tFPKM\tTPM\n"
    return head + "".join(f"ENSG{i}\t{g}\tchr1\t+\t1\t9\t2.5\t3.5\t{v[i]}\n" for g, v in TPM.items())


def htseq_with_names(i: int) -> str:
    """htseq-count with `--additional-attr gene_name`: no header, and the symbol between id and count."""
    return "".join(f"{g}\tname of {g}\t{v[i]}\n" for g, v in COUNTS.items()) + "__no_feature\t\t7000\n"


@pytest.mark.parametrize(
    ("text", "ending", "keys", "expected", "said"),
    [
        (lambda i: featurecounts(i, "/data/a.bam"), "counts.txt.gz", {}, COUNTS, "featureCounts, its last column"),
        (rsem, "a.genes.results.gz", {}, COUNTS, "RSEM, genes.results, column expected_count"),
        (rsem, "a.genes.results", {"unit": "tpm"}, TPM, "RSEM, genes.results, column TPM"),
        (isoforms, "a.isoforms.results.gz", {}, COUNTS, "RSEM, isoforms.results, column expected_count"),
        (salmon, "quant.genes.sf.gz", {}, COUNTS, "Salmon, quant.sf, column NumReads"),
        (salmon, "quant.genes.sf.gz", {"unit": "tpm"}, TPM, "Salmon, quant.sf, column TPM"),
        (kallisto, "abundance.tsv.gz", {}, COUNTS, "kallisto, abundance.tsv, column est_counts"),
        (kallisto, "abundance.tsv", {"unit": "tpm"}, TPM, "kallisto, abundance.tsv, column tpm"),
        (stringtie, "g.tab.gz", {"unit": "tpm", "gene_column": "Gene Name"}, TPM, "StringTie, gene abundances"),
        (htseq_with_names, "h.counts.gz", {}, COUNTS, "no header line"),
    ],
)  # fmt: skip
def test_the_files_of_the_common_counters_are_read_as_they_are_written(
    tmp_path: Path, text: Any, ending: str, keys: dict[str, Any], expected: Any, said: str
) -> None:
    read = members(tmp_path, {name: text(i) for i, name in enumerate(GSM)}, ending=ending, **keys)
    is_right(read, expected)
    assert said in " ".join(read.notes)


def test_a_unit_that_a_counter_does_not_write_is_refused(tmp_path: Path) -> None:
    message = refusal(members, tmp_path, {name: star(i) for i, name in enumerate(GSM)}, unit="tpm")
    assert "which has no column of tpm" in message
    assert "set `unit: counts`" in message
    message = refusal(members, tmp_path, {name: stringtie(i) for i, name in enumerate(GSM)}, ending="a.tab")
    assert "set `unit: tpm`" in message


def test_of_several_unknown_columns_one_must_be_named(tmp_path: Path) -> None:
    texts = {
        name: "gene\traw\tnormalised\n" + "".join(f"{g}\t{v[i]}\t1.5\n" for g, v in COUNTS.items())
        for i, name in enumerate(GSM)
    }
    message = refusal(members, tmp_path, texts)
    assert "2 columns of numbers: raw, normalised" in message
    assert "`count_column`" in message
    is_right(members(tmp_path, texts, count_column="raw"))
    message = refusal(members, tmp_path, texts, count_column="Raw")
    assert "no column 'Raw'; expected one of gene, raw, normalised" in message


def test_transcripts_are_added_up_by_the_table_of_their_genes(tmp_path: Path) -> None:
    """Three transcripts: two of CXCL8 with 3 and 4 reads, one of MUC2 with 5; one more is in no table."""
    (tmp_path / "map.csv").write_text(
        "transcript,gene\nENST00000000001.3,CXCL8\nENST00000000002,CXCL8\nENST00000000003.1,MUC2\n", encoding="utf-8"
    )
    names = [f"ENST0000000000{i}.{i}" for i in (1, 2, 3, 9)]
    body = "".join(f"{name}\t9\t8\t0.5\t{n}\n" for name, n in zip(names, (3, 4, 5, 6), strict=True))
    texts = dict.fromkeys(GSM, "Name\tLength\tEffectiveLength\tTPM\tNumReads\n" + body)
    read = members(tmp_path, texts, ending="quant.sf.gz", transcripts="map.csv")
    assert read.values["GSM1"].to_dict() == {"CXCL8": 7, "MUC2": 5}
    assert read.library_size["GSM1"] == 18
    assert "rows that the table of transcripts lacks count for the library alone (1)" in " ".join(read.notes)
    table = gene_matrix(GSM, list(zip(names, [(3, 1, 1), (4, 1, 1), (5, 1, 1), (6, 1, 1)], strict=True)))
    assert matrix(tmp_path, table, transcripts="map.csv").values["GSM1"].to_dict() == {"CXCL8": 7, "MUC2": 5}


def test_gencodes_names_of_transcripts_say_of_which_gene_they_are(tmp_path: Path) -> None:
    name = "ENST0000000000{}.1|ENSG00000169429.11|OTTHUMG1|OTTHUMT1|CXCL8-20{}|CXCL8|1705|protein_coding|"
    table = gene_matrix(GSM, [(name.format(i, i), (i, 10, 20)) for i in (1, 2, 3)])
    assert matrix(tmp_path, table).values.loc["CXCL8"].tolist() == [6, 30, 60]
    read = matrix(tmp_path, table, ["ENSG00000169429"], row_ids="ensembl")
    assert read.values.loc["ENSG00000169429"].tolist() == [6, 30, 60]
    assert read.notes == ("the rows of a gene's transcripts are added up",)


def test_a_transcript_of_two_genes_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "map.csv", "transcript,gene\nENST00000000001.1,A\nENST00000000001.2,B\n")
    assert "more than one gene" in refusal(read_transcripts, path)


@pytest.mark.parametrize(
    ("ids", "keys", "step"),
    [
        ("ENST0000000000{}.2", {}, "name a table of their genes in `transcripts`"),
        ("NM_00{}", {}, "name a table of their genes in `transcripts`"),
        ("ENSG0000000000{}.2", {}, "set `row_ids: ensembl`"),
        ("MUC{}", {"row_ids": "ensembl"}, "set `row_ids: symbol`"),
        ("{}", {}, "`gene_column`"),
        ("MUC{}", {}, "add another name to the gene aliases"),
    ],
)
def test_rows_of_another_kind_are_shown_with_what_to_do(
    tmp_path: Path, ids: str, keys: dict[str, Any], step: str
) -> None:
    table = [(ids.format(i), list(range(1, 17))) for i in range(1, 5)]
    cohort, files = series(tmp_path, table, **keys)
    message = refusal(build_cohort, cohort, files, ["CXCL8"], [], ensembl={"CXCL8": ("ENSG00000169429",)})
    assert step in message
    assert f"rows are named such as {ids.format(1)}" in message


ENSG = {"CXCL8": "ENSG00000169429.11", "MUC2": "ENSG00000198788.9", "AQP8": "ENSG00000103375.11"}


def test_ensembl_ids_match_without_their_version(tmp_path: Path) -> None:
    table = gene_matrix(GSM, [(ENSG[name], values) for name, values in COUNTS.items()])
    ids = [row_id.partition(".")[0] for row_id in ENSG.values()]
    read = matrix(tmp_path, table, ids, row_ids="ensembl")
    is_right(read, dict(zip(ids, COUNTS.values(), strict=True)))
    texts = {name: "".join(f"{ENSG[g]}\t{v[i]}\n" for g, v in COUNTS.items()) for i, name in enumerate(GSM)}
    is_right(members(tmp_path, texts, ids, row_ids="ensembl"), dict(zip(ids, COUNTS.values(), strict=True)))


def test_an_ensembl_table_may_have_versions(tmp_path: Path) -> None:
    path = put(tmp_path / "e.csv", "ensembl,symbol\nENSG00000169429.11,CXCL8\nENSG00000169429.12,CXCL8\n")
    assert read_ensembl(path) == {"CXCL8": ("ENSG00000169429",)}


def test_the_second_copy_of_a_gene_on_y_counts_for_the_library_and_does_not_double_the_gene(tmp_path: Path) -> None:
    table = gene_matrix(GSM, [("ENSG00000182378.13", (5, 6, 7)), ("ENSG00000182378.13_PAR_Y", (9, 9, 9))])
    read = matrix(tmp_path, table, ["ENSG00000182378"], row_ids="ensembl")
    assert read.values.to_numpy().tolist() == [[5, 6, 7]]
    assert read.library_size.tolist() == [14, 15, 16]


@pytest.mark.parametrize("other", ["ENSG00000182378.14", "ENSG00000182378"])
def test_two_versions_of_one_gene_are_refused(tmp_path: Path, other: str) -> None:
    table = [("ENSG00000182378.13", (5, 0, 7)), (other, (0, 9, 0))]
    message = refusal(matrix, tmp_path, gene_matrix(GSM, table), ["ENSG00000182378"], row_ids="ensembl")
    assert f"the rows ENSG00000182378.13 and {other}" in message
    assert matrix(tmp_path, gene_matrix(GSM, table), []).n_rows == 2


@pytest.mark.parametrize("row_id", ["RP11-34P13.7", "AC007325.4", "ENSG00000182378.13_PAR_Y", "KRTAP1.1"])
def test_only_ids_of_ensembl_lose_what_follows_a_point(row_id: str) -> None:
    assert without_version(row_id) == row_id


@pytest.mark.parametrize("separator", ["\t", ",", ";", " "])
@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("corner", ["Geneid", "", None])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_tabs_commas_semicolons_and_spaces_separate(
    tmp_path: Path, separator: str, quoted: bool, corner: str | None, end: str
) -> None:
    text = gene_matrix(GSM, rows(), separator=separator, quoted=quoted, corner=corner)
    is_right(matrix(tmp_path, ("\ufeff" + text.replace("\n", end)).encode()))


def test_a_comma_separated_sample_file_is_read(tmp_path: Path) -> None:
    texts = {name: text.replace("\t", ",") for name, text in plain("Gene").items()}
    is_right(members(tmp_path, texts, ending="x.csv.gz"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_line_end_inside_a_quoted_cell_is_part_of_the_cell(tmp_path: Path, end: str, separator: str) -> None:
    """The column `note` is not read; in header and rows its cells have line ends, separators and doubled quotes."""
    head = separator.join(["gene", f'"a{end}note"', *GSM])
    body = [separator.join([g, f'"a ""b""{separator}{end}c"', *map(str, v)]) for g, v in COUNTS.items()]
    text = "\n".join([head, *body]) + "\n"
    is_right(matrix(tmp_path, text.encode()))
    broken = text.encode() + separator.join(["X", f'"d{end}e"', "1", "?", "3"]).encode()
    line = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert f"line {line}, row 'X', column GSM2: found '?'" in refusal(matrix, tmp_path, broken)


def test_an_open_quote_is_named_by_its_line(tmp_path: Path) -> None:
    message = refusal(matrix, tmp_path, gene_matrix(GSM, rows(('"X', (1, 2, 3)), ("Y", (1, 2, 3)))))
    assert "counts.txt, line 5, row" in message


@pytest.mark.parametrize(
    ("cell", "step"), [("1,5", "decimal point"), ("1,058", "write 1058 or 1.058, whatever the comma stands for")]
)
def test_a_comma_inside_a_number_is_named_as_what_it_is(tmp_path: Path, cell: str, step: str) -> None:
    message = refusal(matrix, tmp_path, gene_matrix(GSM, rows(("X", (1, cell, 3))), separator=";"))
    assert f"found '{cell}'" in message
    assert step in message


def test_a_separator_at_the_end_of_each_row_shifts_no_column(tmp_path: Path) -> None:
    head, *body = gene_matrix(GSM, rows()).splitlines()
    is_right(matrix(tmp_path, "\n".join([head, *(f"{line}\t" for line in body)]) + "\n"))


def test_the_matrix_of_featurecounts_is_read_by_the_names_of_its_bam_files(tmp_path: Path) -> None:
    columns = [f"../bam/{name}_Aligned.sortedByCoord.out.bam" for name in GSM]
    annotated = [(gene, ("chr1;chr1", "1;9", "5;12", "+;+", 202, *values)) for gene, values in COUNTS.items()]
    header = ["Chr", "Start", "End", "Strand", "Length"]
    program = '# Program:featureCounts v2.0.1; Command:"featureCounts" "-a" "x.gtf"\n'
    is_right(matrix(tmp_path, program + gene_matrix([*header, *GSM], annotated, corner="Geneid")))
    read = matrix(tmp_path, program + gene_matrix([*header, *columns], annotated, corner="Geneid"))
    is_right(read)
    assert read.notes[0].startswith("samples that are found by a part of their column's name (3): ../bam/GSM1_Aligned")


def test_titles_are_found_in_the_names_of_files(tmp_path: Path) -> None:
    samples = SAMPLES.assign(title=["a 1, UC", "b.2", "c"])
    path = put(tmp_path / "m.txt", gene_matrix(["x/a 1.sorted.bam", "b.2.genes.results", "c"], rows()))
    config = expression_source(sample_column="title_before_comma")
    is_right(read_expression(source(path), config, samples, set(COUNTS)))


def test_two_columns_of_one_sample_are_refused_and_an_exact_name_comes_first(tmp_path: Path) -> None:
    twice = [(name, (*values, 1)) for name, values in COUNTS.items()]
    message = refusal(matrix, tmp_path, gene_matrix(["GSM1_a", "GSM2", "GSM3", "GSM1_b"], twice))
    assert "1 columns twice (GSM1)" in message
    is_right(matrix(tmp_path, gene_matrix([*GSM, "GSM1_b"], twice)))


def test_columns_that_are_not_the_samples_are_shown(tmp_path: Path) -> None:
    message = refusal(matrix, tmp_path, gene_matrix(["s1", "s2", "s3"], rows()))
    assert "no column for 3 of 3 samples" in message
    assert "its columns are called s1, s2, s3" in message


def test_the_column_of_row_ids_may_be_another_one(tmp_path: Path) -> None:
    table = [(f"ENSG{i}", (name, *COUNTS[name])) for i, name in enumerate(COUNTS)]
    text = gene_matrix(["gene_name", *GSM], table, corner="gene_id")
    is_right(matrix(tmp_path, text, gene_column="gene_name"))
    assert "correct `gene_column`" in refusal(matrix, tmp_path, text, gene_column="symbol")
    last = gene_matrix([GSM[1], GSM[2], "symbol"], [(v[0], (v[1], v[2], g)) for g, v in COUNTS.items()], corner=GSM[0])
    is_right(matrix(tmp_path, last, gene_column="symbol"))


def test_a_spreadsheet_and_a_text_of_two_bytes_a_character_are_named(tmp_path: Path) -> None:
    assert "found a spreadsheet; expected a table as text" in refusal(matrix, tmp_path, b"PK\x03\x04\x14\x00\x06")
    assert "bytes that are no UTF-8 text" in refusal(matrix, tmp_path, gene_matrix(GSM, rows()).encode("utf-16"))


def test_files_of_a_sample_that_are_no_tables_are_shown(tmp_path: Path) -> None:
    message = refusal(members, tmp_path, plain(), ending="x.htseq.gz")
    assert "it has GSM1_x.htseq.gz" in message
    assert "`expression.members`" in message
    is_right(members(tmp_path, plain(), ending="x.htseq.gz", members="*.htseq.gz"))


def test_of_two_files_of_each_sample_a_pattern_says_which(tmp_path: Path) -> None:
    both = [(f"{n}_a.genes.results", rsem(i).encode()) for i, n in enumerate(GSM)]
    both += [(f"{n}_a.isoforms.results", b"x\ty\n") for n in GSM]
    path = put(tmp_path / "x.tar", raw_tar(both))
    keys: dict[str, Any] = {"layout": "sample_files"}
    message = refusal(read_expression, source(path), expression_source(**keys), SAMPLES, set(COUNTS))
    assert "a second file of GSM1" in message
    assert "`expression.members`" in message
    keys["members"] = "*.genes.results"
    is_right(read_expression(source(path), expression_source(**keys), SAMPLES, set(COUNTS)))


def test_keys_of_sample_files_are_refused_for_a_matrix() -> None:
    with pytest.raises((ConfigError, ValueError), match="belong to the layout sample_files"):
        expression_source(count_column="raw")


def test_a_negative_count_is_refused_in_any_row(tmp_path: Path) -> None:
    table = gene_matrix(GSM, rows(("OTHER", (1, -2, 3))))
    assert "row 'OTHER', column GSM2: found -2" in refusal(matrix, tmp_path, table)
    texts = {name: text + "OTHER\t-1\n" for name, text in plain().items()}
    assert "row 'OTHER', column GSM1: found -1" in refusal(members, tmp_path, texts)


def many(values: Any) -> str:
    return gene_matrix(GSM, [(f"G{i}", values(i)) for i in range(120)])


def test_logarithms_given_as_counts_are_refused_and_noticed_as_tpm(tmp_path: Path) -> None:
    text = many(lambda i: [round(math.log2(i + 1), 3)] * 3)
    message = refusal(matrix, tmp_path, text)
    assert "values of at most 6.907, with decimals, in 120 rows" in message
    assert "set `unit: log2`" in message
    assert matrix(tmp_path, text, unit="tpm").notes == (
        "no value is above 6.907: if they are logarithms already, set `unit: log2`",
    )
    assert matrix(tmp_path, text, unit="log2").notes == ()


def test_counts_given_as_logarithms_are_refused_and_noticed_as_tpm(tmp_path: Path) -> None:
    text = many(lambda i: [i * 10, i * 20, i])
    assert "values up to 2380; expected log2 values below 64" in refusal(matrix, tmp_path, text, unit="log2")
    assert "if they are counts, set `unit: counts`" in matrix(tmp_path, text, unit="tpm").notes[0]
    assert matrix(tmp_path, text).notes == ()


def test_expected_counts_with_decimals_are_counts(tmp_path: Path) -> None:
    read = matrix(tmp_path, many(lambda i: [i * 10.25, i * 20, i]), ["G1"])
    assert read.values.loc["G1"].tolist() == [10.25, 20, 1]
    assert read.notes == ()


def test_an_extract_has_the_library_of_genes_alone(tmp_path: Path) -> None:
    genes = same_for_all()
    cohort, files = series(tmp_path / "mirror", [*genes, ("__no_feature", [10**7] * 16)])
    samples = geo.read_samples(files)
    read = read_expression(files, cohort.expression, samples, {"G0"})
    geo.write_extract(
        tmp_path / "extract",
        cohort,
        samples,
        read,
        {"G0": (("G0",),)},
        genes_of="small",
        taken_from=origin_files(files),
    )
    carried = geo.fetch(cohort, cache=tmp_path, extract=tmp_path / "extract")
    again = read_expression(carried, cohort.expression, samples, {"G0"})
    pd.testing.assert_frame_equal(again.values, read.values, check_exact=True)
    assert again.library_size.tolist() == np.sum([values for _, values in genes], axis=0).tolist()


def gct(version: str = "#1.2", names: Sequence[str] = GSM) -> str:
    """A matrix as GenePattern and GTEx write it: two lines above the header, and a column of descriptions."""
    rows_of = [f"{gene}\tthe 2nd, of {gene}\t" + "\t".join(map(str, values)) for gene, values in COUNTS.items()]
    head = "\t".join(["Name", "Description", *names])
    return "\n".join([version, f"{len(COUNTS)}\t{len(names)}", head, *rows_of]) + "\n"


def test_a_gct_file_has_the_values_of_its_table(tmp_path: Path) -> None:
    is_right(matrix(tmp_path, gct()))


def test_a_gct_file_whose_samples_are_described_is_refused(tmp_path: Path) -> None:
    assert "found GCT 1.3, in which rows that describe the samples" in refusal(matrix, tmp_path, gct("#1.3"))


def test_two_numbers_below_another_comment_are_no_part_of_a_gct_file(tmp_path: Path) -> None:
    assert "found 2 names over 5 fields" in refusal(matrix, tmp_path, gct("# Program: counts"))
