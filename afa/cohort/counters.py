"""Describe the output formats of programs that count the sequencing reads of each gene.

The module `afa.cohort.expression` reads files in these formats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

Unit = Literal["tpm", "counts", "log2"]
RowIds = Literal["symbol", "ensembl"]


class Counter(NamedTuple):
    """Format of the file that a read-counting program writes for one sample.

    Parameters
    ----------
    gene : name of the column of row ids
    values : name of the column that has the values in each unit. An empty name means the only remaining column of
        numbers, which is named after the sample
    others : columns without values
    of_transcripts : True if each row is a transcript, and `gene` contains its gene; values are then summed by gene

    """

    name: str
    gene: str
    values: Mapping[Unit, str]
    others: tuple[str, ...] = ()
    of_transcripts: bool = False


STAR_COLUMNS = ("gene", "unstranded", "forward", "reverse")
"""Names for the columns of STAR's file `ReadsPerGene.out.tab`, which has no header.

The last three columns correspond to the options `-s no`, `-s yes` and `-s reverse` of htseq-count.
"""
COUNTERS = (
    Counter("STAR, ReadsPerGene.out.tab", "gene", {"counts": "unstranded"}, STAR_COLUMNS),
    Counter("featureCounts", "Geneid", {"counts": ""}, ("Chr", "Start", "End", "Strand", "Length")),
    Counter("Salmon, quant.sf", "Name", {"counts": "NumReads", "tpm": "TPM"}, ("Length", "EffectiveLength")),
    Counter("kallisto, abundance.tsv", "target_id", {"counts": "est_counts", "tpm": "tpm"}, ("length", "eff_length")),
    Counter(
        "RSEM, isoforms.results",
        "gene_id",
        {"counts": "expected_count", "tpm": "TPM"},
        ("transcript_id", "length", "effective_length"),
        of_transcripts=True,
    ),
    Counter(
        "RSEM, genes.results",
        "gene_id",
        {"counts": "expected_count", "tpm": "TPM"},
        ("transcript_id(s)", "length", "effective_length"),
    ),
    Counter("StringTie, gene abundances", "Gene ID", {"tpm": "TPM"}, ("Gene Name", "Reference", "Start", "End")),
)
"""Known programs; a file belongs to a program if its header has all the program's named columns."""
TABLE_ENDINGS = (".txt", ".tsv", ".tab", ".csv", ".sf", ".results", ".counts", ".count", ".out")
"""Endings of the file names of tables in the archive of a series, without `.gz`."""

_NO_GENE = re.compile(
    r"__.*"  # htseq-count, IsoQuant
    r"|no_feature|ambiguous|too_low_aQual|not_aligned|alignment_not_unique"  # htseq-count before 0.6
    r"|_(ambiguous|ambiguous_readpair_position|empty|lowaqual|notaligned)"  # DEXSeq
    r"|N_(unmapped|multimapping|noFeature|ambiguous)"  # STAR
    r"|Assigned|Unassigned_.*"  # the summary of featureCounts
    r"|\*"  # samtools idxstats
    r"|ERCC[-.][0-9]{5}|gSpikein_.*"  # RNA that the laboratory added
)
_VERSIONED = re.compile(r"(ENS[A-Z]*[GT][0-9]{11})\.[0-9]+")
_TRANSCRIPT = re.compile(r"ENS[A-Z]*T[0-9]{11}\b.*|[NX][MR]_[0-9]+.*")
_VALUE = re.compile(r"\s*([-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?|[-+]?(nan|inf|infinity)|na|n/a|null|none|[-.?])?\s*", re.I)
_WORD_OF_IDS = re.compile(
    r"(gene|feature|symbol|name|id)s?|gene(id|name|symbol)|ensembl|entrez|hgnc|hugo|index|locus|probe|row(names)?"
    r"|target|transcript|unnamed"
)


def counter_of(names: Collection[str]) -> Counter | None:
    """Return the first format in `COUNTERS` whose columns are all in `names`, or None if there is no such format."""
    for counter in COUNTERS:
        if {counter.gene, *filter(None, counter.values.values()), *counter.others} <= set(names):
            return counter
    return None


def is_gene(row_id: str) -> bool:
    """Return True for a row id, unless the id is known to stand for something other than a gene.

    The result is False, for example, for `__no_feature` (a summary row) and `ERCC-00002` (RNA added by the laboratory).
    """
    return _NO_GENE.fullmatch(row_id) is None


def is_transcript(row_id: str) -> bool:
    """Return True if a row id begins with a transcript id of Ensembl or RefSeq."""
    return _TRANSCRIPT.fullmatch(row_id) is not None


def without_version(row_id: str) -> str:
    """Return an Ensembl id without its version: `ENSG00000169429.11` becomes `ENSG00000169429`.

    An id such as `ENSG00000182378.13_PAR_Y` marks the copy of a gene on the Y chromosome, and is returned unchanged, so
    that the copy remains a separate row.
    """
    found = _VERSIONED.fullmatch(row_id)
    return found[1] if found else row_id


def gene_of(row_id: str, kind: RowIds, known: Mapping[str, str]) -> str | None:
    """Return the gene of a transcript, or None if the gene is unknown.

    The gene is looked up in `known`, or read from a GENCODE name such as `ENST...|ENSG...|-|-|MUC2-201|MUC2|...`.

    Parameters
    ----------
    known : transcript -> gene

    """
    if (found := known.get(without_version(row_id))) is not None:
        return found
    parts = row_id.split("|")
    if len(parts) < 6 or not is_transcript(parts[0]):
        return None
    return parts[5] if kind == "symbol" else without_version(parts[1])


def names_ids(name: str) -> bool:
    """Return True if a column name suggests that the column contains gene ids.

    Names that suggest gene ids are, for example, the empty name, `Gene`, `gene_id` and `Hugo_Symbol`.
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    return not name.strip() or any(map(_WORD_OF_IDS.fullmatch, words))


def is_header(fields: Sequence[str]) -> bool:
    """Return True if the first line of a table is a header.

    A line is a header if its first cell is a usual name for a column of gene ids. A line is also a header if neither
    the second nor the last cell of the line is a number or a text for a missing value, such as `NA`. Without the check
    of the first cell, a header with sample names such as 1, 2 and 3 would be mistaken for a row of values.
    """
    return names_ids(fields[0]) or not (_VALUE.fullmatch(fields[1]) or (fields[-1] and _VALUE.fullmatch(fields[-1])))
