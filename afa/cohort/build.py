"""Build a cohort from a GEO series of gene-expression values.

The samples of the series are selected and labelled. Their expression values are log-transformed, and then encoded as
-1, 0 and +1. The file `cohort.yaml` lists the selection steps, each with the number of samples that remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from afa.cohort import geo
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig, EncodingOverrides
from afa.cohort.counters import is_transcript
from afa.cohort.encode import (
    Coding,
    Names,
    Tiers,
    choose_rows,
    encode_by_cohort,
    encode_by_controls,
    encode_controls,
    ensembl_candidates,
    first_tier_present,
    log_values,
    row_ids,
    symbol_candidates,
    without_robust_spread,
    without_spread,
)
from afa.cohort.expression import Expression
from afa.cohort.geo import Source
from afa.cohort.samples import Selected, describe_labels, make_labels, select
from afa.errors import CohortError, Fault
from afa.io.csvfile import first_names


def overridden(coding: Coding, own: EncodingOverrides) -> Coding:
    """Return the cohort's encoding settings.

    If the cohort's file does not contain a setting, the setting of the run is used.
    """
    return replace(coding, **own.model_dump(exclude_none=True))


def build_cohort(
    config: CohortConfig,
    source: Source,
    features: Sequence[str],
    entities: Sequence[str],
    *,
    coding: Coding | None = None,
    aliases: Names | None = None,
    ensembl: Names | None = None,
) -> Cohort:
    """Read a series from the files of `source`, and return a cohort with the features of the bundle.

    Parameters
    ----------
    features, entities : names of the bundle's features and entities
    coding : encoding settings of the run; settings in the cohort's file replace them. By default, values are tested
        against the controls
    aliases : other names of each gene symbol
    ensembl : Ensembl ids of each gene symbol, for a series whose rows are Ensembl ids

    Raises
    ------
    CohortError : the series lacks samples, genes or labels that the cohort needs.
    DownloadError : the series could not be fetched.

    """
    own = overridden(coding or Coding("controls"), config.encoding)
    chosen, tiers, expression = read_values(config, source, features, aliases or {}, ensembl or {})
    return assemble(config, chosen, expression, tiers, entities, coding=own, files=origin_files(source))


def read_values(
    config: CohortConfig, source: Source, features: Sequence[str], aliases: Names, ensembl: Names
) -> tuple[Selected, Tiers, Expression]:
    """Return the selected samples, the candidate row ids of each feature, and the values of all candidate rows.

    If the source is an extract that lacks needed rows or characteristics, a `CohortError` is raised.
    """
    samples = geo.read_samples(source)
    folder = source.expression.path.parent
    if source.is_extract:
        geo.check_keys(folder, config, samples)
    chosen = select(samples, config)
    tiers = row_tiers(config, features, aliases, ensembl)
    expression = geo.read_expression(source, config.expression, chosen.samples, row_ids(tiers))
    if source.is_extract:
        geo.check_genes(folder, map(str, expression.values.index), tiers)
    return chosen, tiers, expression


def origin_files(source: Source) -> list[dict[str, str]]:
    """Return the content, name, origin (`form`) and SHA-256 of each input file.

    For an extract, the original files from which the extract was made are also listed.
    """
    files = [
        {"content": content, "file": read.path.name, "form": read.form, "sha256": read.sha256}
        for content, read in (("samples", source.metadata), ("expression", source.expression))
    ]
    taken_from = geo.read_card(source.expression.path.parent).taken_from if source.is_extract else ()
    return [*files, *taken_from]


def row_tiers(config: CohortConfig, features: Sequence[str], aliases: Names, ensembl: Names) -> Tiers:
    """Return the candidate row ids (symbols or Ensembl ids) of each feature, as lists in order of preference."""
    if config.expression.row_ids == "ensembl":
        return ensembl_candidates(features, aliases, ensembl)
    return symbol_candidates(features, aliases)


def assemble(
    config: CohortConfig,
    chosen: Selected,
    expression: Expression,
    tiers: Tiers,
    entities: Sequence[str],
    *,
    coding: Coding | None = None,
    files: Sequence[Mapping[str, str]] = (),
) -> Cohort:
    """Return the cohort of the selected samples, given the expression values of all candidate rows.

    Parameters
    ----------
    expression : expression values (n_rows, n_samples) in the file's unit, by row id and sample
    tiers : candidate row ids of each feature, in the bundle's order of features
    coding : encoding settings; by default the settings in the cohort's file
    files : content, name, form and SHA-256 of the files read, recorded in `cohort.yaml`

    Raises
    ------
    CohortError : samples or genes are missing, values cannot be encoded, or labels cannot be derived.

    """
    coding = coding or overridden(Coding("controls"), config.encoding)
    names = [*chosen.controls, *chosen.patients]
    if lost := [name for name in names if name not in expression.values.columns]:
        found = f"no expression values of {len(lost)} selected samples, such as {lost[0]}"
        step = "drop the samples in the cohort file"
        raise CohortError(Fault(f"cohort {config.name}", found, "values of every sample", step))
    log = log_values(expression.values[names], config.expression.unit, expression.library_size)
    found_in = first_tier_present(tiers, map(str, log.index))
    absent = [feature for feature, found in found_in.items() if not found]
    allowed = config.allow_missing_genes
    needed = [] if allowed is True else [feature for feature in absent if not allowed or feature not in allowed]
    if needed or len(absent) == len(found_in):
        raise CohortError(_missing_gene_faults(config, needed or absent, tiers, expression.first_ids))
    values, read_from = choose_rows(log, found_in, chosen.controls)
    measured, controls = values[list(chosen.patients)], values[list(chosen.controls)]
    how: dict[str, Any] = {"test": coding.test, "level": coding.level}
    if coding.reference == "cohort":
        how = {"threshold": coding.threshold}
        flat = without_robust_spread(measured.to_numpy(dtype=np.float64))
        coded, healthy = encode_by_cohort(measured, threshold=coding.threshold).T, controls.iloc[:, :0].T
    else:
        flat = without_spread(controls.to_numpy(dtype=np.float64))
        coded = encode_by_controls(values, np.isin(values.columns, chosen.controls), **how)[list(chosen.patients)].T
        of_controls, used = encode_controls(controls, **how)
        healthy, how = of_controls.T, how | ({} if used == coding.test else {"test_of_controls": used})
    because = {name: allowed[name] for name in absent} if isinstance(allowed, dict) else {}
    patients = chosen.samples.loc[list(chosen.patients)]
    labels = make_labels(patients, config.labels, entities)
    code, names_of = coded.to_numpy(), {"down": -1, "zero": 0, "up": 1}
    record = {
        "title": config.title,
        "series": config.series,
        "origin": config.origin,
        "files": [dict(entry) for entry in files],
        **({"reading": list(expression.notes)} if expression.notes else {}),
        "encoding": {"reference": coding.reference, **how, "unit": config.expression.unit},
        "controls": len(chosen.controls),
        "patients": len(chosen.patients),
        "selection": [{"step": step, "samples": left} for step, left in chosen.steps],
        "dropped_features": absent,
        **({"dropped_because": because} if because else {}),
        "genes_without_spread": [str(gene) for gene in values.index[flat]],
        "aliases_used": {name: row_id for name, row_id in read_from.items() if row_id not in tiers[name][0]},
        "labels": describe_labels(patients, config.labels, labels),
        "shares": {name: round(float((code == value).mean()), 6) for name, value in names_of.items()},
        "all_zero_patients": int((code == 0).all(axis=1).sum()),
    }
    return Cohort(config.name, tuple(coded.columns), chosen.patients, code, labels, record, healthy)


def _missing_gene_faults(
    config: CohortConfig, absent: Sequence[str], tiers: Tiers, first_ids: Sequence[str]
) -> list[Fault]:
    """Return one error for all genes without a row in the series, and one for all genes without a known Ensembl id."""
    where = f"cohort {config.name}, series {config.series}"
    or_drop = "or name them in `allow_missing_genes`, which drops them from cohort and bundle"
    faults = []
    if genes := [feature for feature in absent if tiers[feature]]:
        found, step = f"no row of {len(genes)} features: {', '.join(genes)}", _row_id_advice(config, first_ids)
        found += f"; rows are named such as {first_names(first_ids)}" if first_ids else ""
        faults.append(Fault(where, found, "a row for each feature of the bundle", f"{step}, {or_drop}"))
    if genes := [feature for feature in absent if not tiers[feature]]:
        found = f"no Ensembl id known for {len(genes)} features: {', '.join(genes)}"
        expected = "an id for each feature, the rows of this series being Ensembl ids"
        faults.append(Fault(where, found, expected, f"add the id to the Ensembl table, {or_drop}"))
    return faults


def _row_id_advice(config: CohortConfig, first_ids: Sequence[str]) -> str:
    """Return advice to the user on genes without a row. The advice depends on the first row ids of the file."""
    kind, genes = config.expression.row_ids, "give the table of genes as `layout: count_matrix`"
    if first_ids and all(map(is_transcript, first_ids)):
        return f"the rows are transcripts: name a table of their genes in `transcripts`, or {genes}"
    ensembl = sum(row_id.startswith("ENS") for row_id in first_ids)
    if kind == "symbol" and ensembl and ensembl == len(first_ids):
        return "set `row_ids: ensembl` in the cohort's file"
    if kind == "ensembl" and first_ids and not ensembl:
        return "set `row_ids: symbol` if the rows are gene symbols, or name the column of the ids in `gene_column`"
    if first_ids and all(map(str.isdecimal, first_ids)):
        return "name the column of the gene symbols in `gene_column` of the cohort's file"
    return "add another name to the gene aliases"
