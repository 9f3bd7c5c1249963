"""An extract of a series that the project carries: a bundle's genes and the characteristics that a cohort reads.

A folder of three files: `samples.tsv` has a row for each sample, with its library size over *all* rows of the series;
`expression.tsv.gz` has the carried rows, in the series' order; `extract.yaml` has accession, citation, digests of these
files and of those they were taken from, and the row ids that were looked for and not found. A cohort built from it has
the same numbers as one built from the series.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict

from afa.cohort.archive import write_gzip
from afa.cohort.config import CohortConfig
from afa.cohort.gene_matrix import Expression
from afa.cohort.genes import Tiers, row_ids
from afa.csvfile import visible
from afa.errors import CohortError, Fault
from afa.files import atomic_folder, sha256_of
from afa.yamlfile import load_model

SAMPLES_FILE = "samples.tsv"
EXPRESSION_FILE = "expression.tsv.gz"
CARD_FILE = "extract.yaml"
ACCESSION, LIBRARY_SIZE = "sample_id", "library_size"
FETCH = "fetch the series instead: SOURCE=geo, or GEO_MIRROR=folder for a copy in GEO's layout"
"""What to do where an extract is not enough."""
_SHOWN = 20


class Card(BaseModel):
    """What `extract.yaml` says; `rows` of the series' file, `absent` the row ids that were searched for in vain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    series: str
    title: str
    citation: str | None
    genes_of: str
    rows: int
    absent: tuple[str, ...]
    taken_from: tuple[dict[str, str], ...]
    digests: dict[str, str]


def read_card(folder: Path) -> Card:
    """The checked card of an extract; a `ConfigError` where it is missing or wrong."""
    return load_model(folder / CARD_FILE, Card)


def write_extract(
    folder: Path,
    config: CohortConfig,
    samples: pd.DataFrame,
    expression: Expression,
    tiers: Tiers,
    *,
    genes_of: str,
    taken_from: Sequence[Mapping[str, str]],
) -> None:
    """Write what a cohort needs of a series, whole or not at all; the same input gives the same bytes.

    `samples` and `expression` are what `read_samples` and `read_expression` give for all samples of the series and the
    rows of `tiers` (feature -> row ids that may hold it). `genes_of` names the bundle whose features these are,
    `taken_from` the series' files. An extract cannot be taken from another one (`CohortError`).
    """
    if any(entry["form"] == "extract" for entry in taken_from):
        where = f"extract of {config.series}"
        raise CohortError(Fault(where, "an extract as its source", "the series itself", FETCH))
    keys = [key for key in ("title", *keys_read(config)) if key in samples.columns]
    table = samples[keys].rename_axis(ACCESSION).reset_index()
    table[LIBRARY_SIZE] = [repr(float(size)) for size in expression.library_size.loc[samples.index]]
    present = set(map(str, expression.values.index))
    with atomic_folder(folder) as temporary:
        with (temporary / SAMPLES_FILE).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, delimiter="\t", lineterminator="\n").writerows(_rows(table))
        write_gzip(temporary / EXPRESSION_FILE, _lines(expression.values[list(samples.index)]))
        card = Card(
            series=config.series,
            title=config.title,
            citation=config.citation,
            genes_of=genes_of,
            rows=expression.n_rows,
            absent=tuple(sorted(row_ids(tiers) - present)),
            taken_from=tuple(dict(entry) for entry in taken_from),
            digests={name: sha256_of(temporary / name) for name in (SAMPLES_FILE, EXPRESSION_FILE)},
        )
        text = yaml.safe_dump(card.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
        (temporary / CARD_FILE).write_text(text, encoding="utf-8")


def library_sizes(path: Path, samples: Sequence[str]) -> pd.Series[float]:
    """Library size (n_samples,) of samples of an extract, from its `samples.tsv`."""
    table = pd.read_csv(path, sep="\t", usecols=[ACCESSION, LIBRARY_SIZE], index_col=ACCESSION, dtype=str)
    index = pd.Index(list(samples), name="sample")
    return table[LIBRARY_SIZE].map(float).reindex(index).rename(LIBRARY_SIZE)


def check_keys(folder: Path, config: CohortConfig, samples: pd.DataFrame) -> None:
    """Raise a `CohortError` that names the characteristics that the cohort's file reads and the extract lacks."""
    if lost := [key for key in keys_read(config) if key not in samples.columns]:
        found = f"no characteristic {', '.join(map(visible, lost))}"
        expected = "those that the cohort's file reads"
        raise CohortError(Fault(f"{folder}, an extract of {config.series}", found, expected, FETCH))


def check_genes(folder: Path, rows: Iterable[str], tiers: Tiers) -> None:
    """Raise a `CohortError` that names the features that an extract was not made for.

    `rows` are the row ids that it has, of those in `tiers`. A feature is safe where every row id up to the first tier
    that has a row was looked for in the series.
    """
    card = read_card(folder)
    present = set(rows)
    outside = [feature for feature, choices in tiers.items() if not _is_known(choices, present, set(card.absent))]
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        found = f"no values of {len(outside)} of {len(tiers)} features: {', '.join(outside[:_SHOWN])}{more}"
        expected = f"genes of the bundle {card.genes_of}, which is all that is carried"
        step = f"{FETCH}; or try the bundle on COHORT=demo, which is simulated for any"
        raise CohortError(Fault(f"{folder}, an extract of {card.series}", found, expected, step))


def keys_read(config: CohortConfig) -> tuple[str, ...]:
    """The characteristics that a cohort's file reads, beside the title: of selection, groups and label rules."""
    select = config.select
    one_per = select.one_per
    keys = [rule.source for rule in select.derive.values()]
    keys += [*select.keep, *select.drop, config.controls.key, config.patients.key]
    keys += [one_per.key, *one_per.prefer, *([one_per.then] if one_per.then else [])] if one_per else []
    keys += [rule.key for rule in config.labels.values()]
    return tuple(key for key in dict.fromkeys(keys) if key != "title" and key not in select.derive)


def _is_known(choices: Sequence[Sequence[str]], present: set[str], absent: set[str]) -> bool:
    for tier in choices:
        if not set(tier) <= present | absent:
            return False
        if present.intersection(tier):
            return True
    return bool(choices)


def _rows(table: pd.DataFrame) -> Iterator[list[str]]:
    yield list(table.columns)
    yield from table.to_numpy().tolist()


def _lines(values: pd.DataFrame) -> Iterator[str]:
    """The rows as tab-separated text, each number by the fewest digits that read back as the same number."""
    yield "\t".join(["row", *values.columns]) + "\n"
    for row_id, row in zip(values.index, values.to_numpy().tolist(), strict=True):
        yield "\t".join([str(row_id), *(repr(value).removesuffix(".0") for value in row)]) + "\n"
