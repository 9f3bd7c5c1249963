"""Simulate the demo cohort, which has RNA-seq counts of biopsies.

Some simulated effects are zero or have the opposite sign of the bundle's potentials, as if the elicitation had made
errors. Phenotypes are sampled from a Gaussian copula with factors. The factor `inflammation` also changes gene
expression. A gene's log2 abundance is its baseline plus contributions of inflammation, biopsy composition and the
patient's phenotypes. Counts are negative binomial. A gene's mean count is its abundance, scaled so that the sum over
all genes is the sample's sequencing depth. The sequencing depth is sampled independently of the phenotypes. The cohort
is written in GEO's format, so that it is fetched, parsed and encoded like a real series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from afa.cohort.archive import write_gzip
from afa.cohort.config import INFLAMMATION, SIMULATION_FILE, SOFT, CohortConfig, SimulationConfig, simulated_files
from afa.errors import ConfigError, Fault
from afa.io.files import atomic_folder
from afa.model.arrays import Floats
from afa.model.bundle import Bundle

EFFECT_KINDS = ("agrees", "flipped", "no_effect")


@dataclass(frozen=True)
class Truth:
    """True parameters of a simulated cohort. No analysis may read these parameters.

    `people` and `labels` are indexed by sample name.
    """

    effects: pd.DataFrame  # entity, feature, potential, kind and effect (log2) of each non-zero potential
    genes: pd.DataFrame  # baseline, loadings on inflammation and composition (log2), and dispersion of each gene
    people: pd.DataFrame  # diagnosis, severity, composition, depth, accession and library_size of each person
    labels: pd.DataFrame  # (n_people, n_phenotypes) of 0 and 1; controls are all 0


@dataclass(frozen=True)
class SimulatedCohort:
    """A simulated cohort: the content of its two files, and the true parameters."""

    config: SimulationConfig
    counts: pd.DataFrame  # (n_genes, n_people) int64; columns are sample names, not in accession order
    samples: pd.DataFrame  # the title and the characteristics of each accession, as text
    truth: Truth


def simulate_cohort(config: SimulationConfig, bundle: Bundle) -> SimulatedCohort:
    """Draw random phenotypes, true effects and counts. The same config and bundle always give the same cohort.

    Each sampling step has its own random stream, so that a change in one step does not change the random numbers of
    other steps. If an entity of the bundle has no prevalence, a `ConfigError` is raised.
    """
    lacking = [entity for entity in bundle.entities if entity not in config.prevalences]
    if config.default_prevalence is None and lacking:
        expected = "a prevalence for every entity of the bundle"
        step = "add it, or set simulation.default_prevalence"
        raise ConfigError([Fault(f"simulation.prevalences.{name}", "nothing", expected, step) for name in lacking])
    people, scores = _people(config)
    phenotypes = pd.DataFrame(index=people.index)
    # Phenotypes in the config that are not in the bundle are also sampled, because label rules may read them. A patient
    # has a phenotype if `latent`, the sum of factor scores and independent noise, exceeds the normal quantile of the
    # prevalence.
    for name, prevalence in (config.prevalences | dict.fromkeys(lacking, config.default_prevalence or 0.0)).items():
        loadings = {INFLAMMATION: config.default_loading}
        if name in config.prevalences:
            loadings = {factor: named[name] for factor, named in config.factors.items() if name in named}
        own = _random_stream(config, "phenotype", name).standard_normal(len(people))
        latent = np.sqrt(max(0.0, 1 - sum(loading**2 for loading in loadings.values()))) * own
        for factor, loading in loadings.items():
            latent += loading * scores[factor]
        phenotypes[name] = ((people["diagnosis"] == "IBD") & (latent > norm.isf(prevalence))).astype("int8")
    effects = _effects(config, bundle)
    genes = _genes(config, bundle, effects)
    mean = _mean_counts(config, genes, people, effects, phenotypes)
    shape = 1 / genes["dispersion"].to_numpy()[:, None]
    rate = mean * _random_stream(config, "biological noise").gamma(shape, 1 / shape, size=mean.shape)
    # The last bits of exp2 and gamma differ between processors. Without rounding, the counts could also differ.
    counts = _random_stream(config, "counting noise").poisson(rate.round(6))

    samples = _samples(config, people, phenotypes)
    accessions = pd.Series(samples.index, index=samples["title"].str.partition(",")[0]).reindex(people.index)
    people = people.assign(accession=accessions, library_size=counts.sum(axis=0))
    table = pd.DataFrame(counts, index=genes.index, columns=people.index).sort_index()
    return SimulatedCohort(config, table, samples, Truth(effects, genes, people, phenotypes))


def _random_stream(config: SimulationConfig, *purpose: str) -> np.random.Generator:
    """Return the random generator of one sampling step.

    The generator depends only on the seed and on the name of the step, `purpose`.
    """
    key = int.from_bytes(hashlib.sha256("/".join(purpose).encode()).digest()[:8])
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(key,)))


def _people(config: SimulationConfig) -> tuple[pd.DataFrame, dict[str, Floats]]:
    """Return the table of patients and controls, and the score of each person on each factor of the copula.

    The table is indexed by sample name.
    """
    n_people = config.n_patients + config.n_controls
    names = [f"DEMO_{person:04d}_Biopsy_{person}" for person in range(1, n_people + 1)]
    is_patient = np.arange(n_people) < config.n_patients
    factors = [INFLAMMATION, *(name for name in config.factors if name != INFLAMMATION)]
    scores = {name: _random_stream(config, "factor", name).standard_normal(n_people) for name in factors}
    log_depth = config.library_size_spread * _random_stream(config, "library size").standard_normal(n_people)
    people = pd.DataFrame(
        {
            "diagnosis": np.where(is_patient, "IBD", "Control"),
            "severity": is_patient * np.clip(config.severity_mean + config.severity_sd * scores[INFLAMMATION], 0, None),
            "composition": _random_stream(config, "composition").standard_normal(n_people),
            "depth": config.library_size_median * np.exp(log_depth),
        },
        index=pd.Index(names, name="sample"),
    )
    return people, scores


def _effects(config: SimulationConfig, bundle: Bundle) -> pd.DataFrame:
    """Return the true log2 effect of every non-zero potential of the bundle.

    An effect has the sign of the potential, has the opposite sign, or is zero. The shares of opposite and of zero
    effects are set by the config, and are exact up to rounding. If n entities have a non-zero potential for a gene,
    each effect on the gene is divided by sqrt(n).
    """
    entity, feature = np.nonzero(bundle.unary)
    n_flipped, n_null = (round(share * len(entity)) for share in (config.flipped_share, config.null_share))
    n_null = min(n_null, len(entity) - n_flipped)
    kind = np.repeat([0, 1, 2], [len(entity) - n_flipped - n_null, n_flipped, n_null])
    kind = _random_stream(config, "elicitation error").permutation(kind)
    size = config.effect_median * np.exp(
        config.effect_spread * _random_stream(config, "effect size").standard_normal(len(entity))
    )
    strength = np.array([config.effect_strengths.get(name, 1.0) for name in bundle.entities])
    named_by = np.count_nonzero(bundle.unary, axis=0)
    sign = np.sign(bundle.unary[entity, feature])
    turned = np.choose(kind, [sign, -sign, 0.0])
    effect = turned * size * strength[entity] / np.sqrt(named_by[feature])
    return pd.DataFrame(
        {
            "entity": np.array(bundle.entities)[entity],
            "feature": np.array(bundle.features)[feature],
            "potential": bundle.unary[entity, feature],
            "kind": np.array(EFFECT_KINDS)[kind],
            "effect": effect,
        }
    )


def _genes(config: SimulationConfig, bundle: Bundle, effects: pd.DataFrame) -> pd.DataFrame:
    """Return baselines, loadings and dispersions of all genes.

    The bundle's genes come first, in the bundle's order. Background genes follow. The column `inflammation` contains
    the change of each gene's log2 abundance per unit of inflammation severity. For a gene of the bundle, this change
    has the sign of the sum of the gene's true effects, unless the sum is 0. The sign is not taken from the bundle's
    potentials, because the potentials contain simulated errors of elicitation. The patients' values must be independent
    of these errors.
    """
    named = _gene_group(config, "bundle", bundle.features, config.inflamed_share_bundle, config.inflamed_sd_bundle)
    net = np.sign(effects.groupby("feature")["effect"].sum()).reindex(named.index, fill_value=0.0)
    named["inflammation"] = named["inflammation"].where(net == 0, named["inflammation"].abs() * net)
    free = (name for number in count(1) if (name := f"BG{number:05d}") not in set(bundle.features))
    background = _gene_group(
        config,
        "background",
        list(islice(free, config.n_background_genes)),
        config.inflamed_share_background,
        config.inflamed_sd_background,
    )
    genes = pd.concat([named, background])
    abundance = np.exp2(genes["baseline"])
    mean_count = config.library_size_median * abundance / abundance.sum()
    trend = config.dispersion_floor + config.dispersion_slope / mean_count
    return genes.assign(dispersion=trend * np.exp(config.dispersion_spread * genes["dispersion"]))


def _gene_group(
    config: SimulationConfig, group: str, names: Sequence[str], inflamed_share: float, inflamed_sd: float
) -> pd.DataFrame:
    """Draw random baselines, loadings and dispersion scores for a group of genes.

    The column `dispersion` contains standard normal scores, from which `_genes` computes the dispersions.
    """

    def normal(purpose: str) -> Floats:
        return _random_stream(config, purpose, group).standard_normal(len(names))

    inflamed = _random_stream(config, "inflamed genes", group).random(len(names)) < inflamed_share
    return pd.DataFrame(
        {
            "baseline": config.baseline_sd * normal("baseline"),
            "inflammation": inflamed * inflamed_sd * normal("inflammation loading"),
            "composition": config.composition_sd * normal("composition loading"),
            "dispersion": normal("dispersion"),
        },
        index=pd.Index(names, name="gene"),
    )


def _mean_counts(
    config: SimulationConfig, genes: pd.DataFrame, people: pd.DataFrame, effects: pd.DataFrame, phenotypes: pd.DataFrame
) -> Floats:
    """Return the expected counts as an array of genes x people. Each column sums to the person's sequencing depth."""
    log2_abundance = (
        genes["baseline"].to_numpy()[:, None]
        + np.multiply.outer(genes["inflammation"].to_numpy(), people["severity"].to_numpy())
        + np.multiply.outer(genes["composition"].to_numpy(), people["composition"].to_numpy())
    )
    for entity, of_entity in effects.groupby("entity"):
        # `extent` is the strength of the phenotype in each person: log-normal with mean 1, or 0 without the phenotype.
        normal = _random_stream(config, "extent", str(entity)).standard_normal(len(people))
        extent = np.exp(config.extent_spread * normal - config.extent_spread**2 / 2) * phenotypes[entity].to_numpy()
        log2_abundance[genes.index.get_indexer(pd.Index(of_entity["feature"]))] += np.multiply.outer(
            of_entity["effect"].to_numpy(), extent
        )
    abundance = np.exp2(log2_abundance)
    mean: Floats = people["depth"].to_numpy() * abundance / abundance.sum(axis=0)
    return mean


def _samples(config: SimulationConfig, people: pd.DataFrame, phenotypes: pd.DataFrame) -> pd.DataFrame:
    """Return the table of samples, shuffled and indexed by accession, with all values as text."""
    age = _random_stream(config, "age").normal(45, 14, len(people)).clip(19, 82).astype(int)
    female = _random_stream(config, "sex").random(len(people)) < 0.5
    is_patient = people["diagnosis"] == "IBD"
    samples = pd.DataFrame(
        {
            "title": people.index + ", " + people["diagnosis"] + " participants,Rectum tissue",
            "diagnosis": people["diagnosis"],
            "tissue": "rectum",
            "sex": np.where(female, "Female", "Male"),
            "age": age.astype(str),
        }
        | {
            f"phenotype_{name}": has.map({1: "yes", 0: "no"}).where(is_patient, "NA")
            for name, has in phenotypes.items()
        }
    )
    shuffled = samples.iloc[_random_stream(config, "sample order").permutation(len(people))]
    accessions = [f"GSM{number:07d}" for number in range(1, len(people) + 1)]
    return shuffled.set_axis(pd.Index(accessions, name="accession"))


NOTICE = "Simulated by afa: no patient, no GEO record"


def write_geo_layout(cohort: SimulatedCohort, config: CohortConfig, folder: Path) -> None:
    """Write the samples and counts in GEO's format, and the true parameters as CSV.

    The same cohort always gives the same bytes. The samples are written as a family SOFT file or as a series matrix,
    depending on `metadata_file` in the config. If the folder contains other files, the folder is not changed and a
    `ConfigError` is raised.
    """
    files = simulated_files(config)
    of_samples = _family_soft_lines if files[0].endswith(SOFT) else _series_matrix_lines
    with atomic_folder(folder, files, SIMULATION_FILE) as temporary:
        write_gzip(temporary / files[0], of_samples(cohort.samples, config))
        write_gzip(temporary / files[1], _count_matrix_lines(cohort.counts))
        card = temporary / SIMULATION_FILE
        card.parent.mkdir()
        for name, table in vars(cohort.truth).items():
            table.to_csv(card.with_name(f"{name}.csv"), index=name != "effects", float_format="%.9g")
        card.write_text(cohort.config.model_dump_json(indent=2) + "\n")


def _family_soft_lines(samples: pd.DataFrame, config: CohortConfig) -> Iterator[str]:
    """Yield the lines of a family SOFT file."""
    yield f"^SERIES = {config.series}\n"
    for key, values in _series_fields(samples, config):
        yield from (f"!Series_{key} = {value}\n" for value in values)
    for i, accession in enumerate(samples.index):
        yield f"^SAMPLE = {accession}\n"
        yield from (f"!Sample_{key} = {values[i]}\n" for key, values in _sample_fields(samples))


def _series_matrix_lines(samples: pd.DataFrame, config: CohortConfig) -> Iterator[str]:
    """Yield the lines of a series matrix: the same content as in `_family_soft_lines`, and an empty table of values."""
    for key, values in _series_fields(samples, config):
        yield _quoted_line(
            f"!Series_{key}", ["".join(f"{value} " for value in values) if len(values) > 1 else values[0]]
        )
    yield "\n"
    for key, values in _sample_fields(samples):
        yield _quoted_line(f"!Sample_{key}", values)
    yield "!series_matrix_table_begin\n"
    yield "\t".join(f'"{value}"' for value in ["ID_REF", *samples.index]) + "\n"
    yield "!series_matrix_table_end\n"


def _series_fields(samples: pd.DataFrame, config: CohortConfig) -> list[tuple[str, list[str]]]:
    """Return the keys and values that describe a series, in GEO's order."""
    return [
        ("title", [config.title]),
        ("geo_accession", [config.series]),
        ("status", [NOTICE]),
        ("summary", [NOTICE]),
        ("type", ["Expression profiling by high throughput sequencing"]),
        ("sample_id", list(samples.index)),
        ("supplementary_file", [config.expression.file]),
    ]


def _sample_fields(samples: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the keys that describe samples, in GEO's order, with one value for each sample."""
    same = [("status", NOTICE), ("type", "SRA"), ("channel_count", "1"), ("source_name_ch1", "Biopsy")]
    same += [("organism_ch1", "Homo sapiens")]
    return [
        ("title", samples["title"].tolist()),
        ("geo_accession", list(samples.index)),
        *((key, [value] * len(samples)) for key, value in same),
        *(
            ("characteristics_ch1", [f"{key}: {value}" for value in samples[key]])
            for key in samples.columns.drop("title")
        ),
        ("molecule_ch1", ["total RNA"] * len(samples)),
        ("data_row_count", ["0"] * len(samples)),
    ]


def _quoted_line(key: str, values: Iterable[str]) -> str:
    return "\t".join([key, *(f'"{value}"' for value in values)]) + "\n"


def _count_matrix_lines(counts: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the count matrix in the form of R's `write.table`.

    Fields are separated by single spaces, names are quoted, and the header has no name for the column of genes.
    """
    yield " ".join(f'"{name}"' for name in counts.columns) + "\n"
    for gene, row in zip(counts.index, counts.to_numpy().tolist(), strict=True):
        yield f'"{gene}" ' + " ".join(map(str, row)) + "\n"
