"""Conventions of programs that count reads: rows that are not genes, ids of genes, headers, and names of files.

This module reads no files. `afa.cohort.expression` reads the files of these programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Unit = Literal["tpm", "counts", "log2"]
RowIds = Literal["symbol", "ensembl"]


NO_VALUES = frozenset({"start", "end", "length", "effectivelength", "effective_length", "eff_length"})
"""Names, in lower case, of columns of numbers that describe a gene."""
TABLE_ENDINGS = (".txt", ".tsv", ".tab", ".csv", ".sf", ".results", ".counts", ".count", ".out")
"""Endings of the names of tables in the archive of a series, before `.gz`."""

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


def is_gene(row_id: str) -> bool:
    """Return False for a row that is not a gene.

    Examples are `__no_feature`, a summary row, and `ERCC-00002`, added RNA.
    """
    return _NO_GENE.fullmatch(row_id) is None


def is_transcript(row_id: str) -> bool:
    """Return True for transcript ids of Ensembl and RefSeq. Further text may follow the id."""
    return _TRANSCRIPT.fullmatch(row_id) is not None


def without_version(row_id: str) -> str:
    """Return an Ensembl id without its version. For example, `ENSG00000169429.11` becomes `ENSG00000169429`.

    The id `ENSG00000182378.13_PAR_Y` is the second copy of a gene, on the Y chromosome. This id is unchanged and
    remains a separate row.
    """
    found = _VERSIONED.fullmatch(row_id)
    return found[1] if found else row_id


def names_ids(name: str) -> bool:
    """Return True if a column name fits a column of ids.

    Examples are an empty name, `Gene`, `gene_id` and `Hugo_Symbol`.
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    return not name.strip() or any(map(_WORD_OF_IDS.fullmatch, words))


def is_header(fields: Sequence[str]) -> bool:
    """Return True if the first line of a table is a header.

    In a header, neither the second nor the last field is a value. A line is also a header if its first field names a
    column of ids, because samples may be called 1, 2 and 3. `NA` and similar texts are missing values, not names.
    """
    return names_ids(fields[0]) or not (_VALUE.fullmatch(fields[1]) or (fields[-1] and _VALUE.fullmatch(fields[-1])))
