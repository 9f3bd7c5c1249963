"""A series' expression values, whichever of the two forms GEO has them in: one file a sample, or one matrix."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from afa.cohort.cells import Expression
from afa.cohort.config import ExpressionSource
from afa.cohort.gene_matrix import read_gene_matrix
from afa.cohort.geo import Source
from afa.cohort.sample_files import read_sample_files
from afa.errors import CohortError, Fault

__all__ = ["Expression", "read_expression"]


def read_expression(
    source: Source, config: ExpressionSource, samples: pd.DataFrame, wanted: Collection[str]
) -> Expression:
    """Values of the rows in `wanted` (row ids as the file has them) for all of `samples`, in the order of `samples`.

    `samples` is what `read_samples` gives, or a selection of its rows. Columns are joined to samples by name. Negative
    values are accepted only where the unit is log2. Whatever cannot be read or joined is a `CohortError`.
    """
    path = source.expression.path
    if not len(samples):
        step = "loosen the selection in the cohort's config"
        raise CohortError(Fault(f"samples of {source.series}", "none selected", "at least one", step))
    negative = config.unit == "log2"
    joined = source.expression.form == "mirror_joined"
    if config.layout == "sample_files" and not joined:
        return read_sample_files(path, list(samples.index), wanted, allow_negative=negative)
    # A table that a mirror has joined names its columns by accession, whatever GEO's own matrix does.
    by_accession = joined or config.sample_column == "accession"
    names = samples.index if by_accession else samples["title"].str.split(",", n=1).str[0].str.strip()
    return read_gene_matrix(path, dict(zip(samples.index, names, strict=True)), wanted, allow_negative=negative)
