"""The file that a new cohort starts from."""

from __future__ import annotations

from pathlib import Path

from afa.errors import ConfigError, Fault
from afa.files import atomic_file

TEMPLATE = """\
# Cohort {name}: replace every value in angle brackets, then run `make reproduce COHORT={name}`.
name: {name}
title: <what the samples are>
series: <GSE accession>
metadata_file: <GSE>_series_matrix.txt.gz # under matrix/
expression:
  layout: sample_files # or count_matrix: one genes x samples table
  file: <GSE>_RAW.tar # under suppl/
  unit: tpm # tpm, counts or log2
  row_ids: symbol # or ensembl
  # sample_column: title_before_comma # where a matrix names its columns so; default: the accession
controls: {{ key: <characteristic>, values: [<value>] }}
patients: {{ key: <characteristic>, values: [<value>] }}
# select: # see config/README.md: derive, keep, drop, one_per
labels: {{}}
  # <entity of the bundle>: {{ key: <characteristic>, at_least: <number>, reason: <why this is the label> }}
  # <entity of the bundle>: {{ key: <characteristic>, positive: [<value>], negative: [<value>], reason: <why> }}
# allow_missing_genes: true # drop features that the platform lacks, instead of stopping
"""


def write_template(name: str, folder: Path) -> Path:
    """Write `<folder>/<name>.yaml`; a `ConfigError` where the name is unfit or the file is there already."""
    path = folder / f"{name}.yaml"
    if not name.replace("-", "").replace("_", "").isalnum() or not name.islower():
        expected = "lower-case letters, digits, - and _"
        raise ConfigError(Fault("the name of a cohort", repr(name), expected, "choose another name"))
    if path.exists():
        raise ConfigError(Fault(str(path), "a file", "no such file yet", "choose another name, or edit that file"))
    with atomic_file(path) as temporary:
        temporary.write_text(TEMPLATE.format(name=name), encoding="utf-8")
    return path
