"""The demo cohort: RNA-seq counts of simulated biopsies. The counts are sampled from a bundle that is wrong in part.

Phenotypes follow a Gaussian copula with factors; the factor `inflammation` also changes expression. A gene's log2
abundance is its baseline plus contributions of inflammation, biopsy composition and the patient's phenotypes. The
abundance is scaled to an independent library size. Counts are negative binomial around this scaled abundance. The
cohort is written in GEO's format, so that it is fetched, parsed and encoded like a real series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from afa.cohort.archive import write_gzip
from afa.cohort.config import INFLAMMATION, SIMULATION_FILE, SOFT, CohortConfig, SimulationConfig, simulated_files
from afa.errors import ConfigError, Fault
from afa.io.files import atomic_folder
from afa.model.bundle import Bundle

Floats = NDArray[np.float64]
KINDS = ("agrees", "flipped", "no_effect")


@dataclass(frozen=True)
class Truth:
    """The true parameters, which the pipeline must not read. `people` and `labels` are indexed by sample name."""

    effects: pd.DataFrame  # entity, feature, potential, kind, effect (log2): one row per non-zero potential
    genes: pd.DataFrame  # index gene; baseline, inflammation, composition (log2), dispersion
    people: pd.DataFrame  # diagnosis, severity, composition, depth (expected counts), accession, library_size
    labels: pd.DataFrame  # (n_people, n_phenotypes) of 0 and 1; controls are all 0


@dataclass(frozen=True)
class SimulatedCohort:
    """A simulated cohort. A `SimulatedCohort` contains the content of its two files, and the true parameters."""

    config: SimulationConfig
    counts: pd.DataFrame  # (n_genes, n_people) int64; columns are sample names, not in accession order
    samples: pd.DataFrame  # index accession; title, then one column per characteristic, values as text
    truth: Truth


def simulate(config: SimulationConfig, bundle: Bundle) -> SimulatedCohort:
    """Sample phenotypes, true effects and counts. The same config and bundle give the same cohort.

    Every purpose has a separate random stream, so that a change of one purpose leaves the samples of the others
    unchanged. If an entity of the bundle has no prevalence, a `ConfigError` is raised.
    """
    lacking = [entity for entity in bundle.entities if entity not in config.prevalences]
    if config.default_prevalence is None and lacking:
        expected = "a prevalence for every entity of the bundle"
        step = "add it, or set simulation.default_prevalence"
        raise ConfigError([Fault(f"simulation.prevalences.{name}", "nothing", expected, step) for name in lacking])
    people, scores = _people(config)
    phenotypes = pd.DataFrame(index=people.index)
    # Phenotypes of the config are included because label rules read them. A phenotype is the sum of factor scores and
    # an independent normal part. The sum is cut at the prevalence.
    for name, prevalence in (config.prevalences | dict.fromkeys(lacking, config.default_prevalence or 0.0)).items():
        loadings = {INFLAMMATION: config.default_loading}
        if name in config.prevalences:
            loadings = {factor: named[name] for factor, named in config.factors.items() if name in named}
        own = _stream(config, "phenotype", name).standard_normal(len(people))
        latent = np.sqrt(max(0.0, 1 - sum(loading**2 for loading in loadings.values()))) * own
        for factor, loading in loadings.items():
            latent += loading * scores[factor]
        phenotypes[name] = ((people["diagnosis"] == "IBD") & (latent > norm.isf(prevalence))).astype("int8")
    effects = _effects(config, bundle)
    genes = _genes(config, bundle, effects)
    mean = _mean_counts(config, genes, people, effects, phenotypes)
    shape = 1 / genes["dispersion"].to_numpy()[:, None]
    rate = mean * _stream(config, "biological noise").gamma(shape, 1 / shape, size=mean.shape)
    # The rate is rounded. The last bits of exp2 and gamma differ between processors, but the counts must be equal.
    counts = _stream(config, "counting noise").poisson(rate.round(6))

    samples = _samples(config, people, phenotypes)
    accessions = pd.Series(samples.index, index=samples["title"].str.partition(",")[0]).reindex(people.index)
    people = people.assign(accession=accessions, library_size=counts.sum(axis=0))
    table = pd.DataFrame(counts, index=genes.index, columns=people.index).sort_index()
    return SimulatedCohort(config, table, samples, Truth(effects, genes, people, phenotypes))


def _stream(config: SimulationConfig, *purpose: str) -> np.random.Generator:
    """Return the random stream of one purpose.

    The stream is a child of the seed and depends only on the purpose's name.
    """
    key = int.from_bytes(hashlib.sha256("/".join(purpose).encode()).digest()[:8])
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(key,)))


def _people(config: SimulationConfig) -> tuple[pd.DataFrame, dict[str, Floats]]:
    """Return the people by sample name, patients first.

    Also return the scores, (n_people,), of each factor of the copula.
    """
    n_people = config.n_patients + config.n_controls
    names = [f"DEMO_{person:04d}_Biopsy_{person}" for person in range(1, n_people + 1)]
    is_patient = np.arange(n_people) < config.n_patients
    factors = [INFLAMMATION, *(name for name in config.factors if name != INFLAMMATION)]
    scores = {name: _stream(config, "factor", name).standard_normal(n_people) for name in factors}
    log_depth = config.library_size_spread * _stream(config, "library size").standard_normal(n_people)
    people = pd.DataFrame(
        {
            "diagnosis": np.where(is_patient, "IBD", "Control"),
            "severity": is_patient * np.clip(config.severity_mean + config.severity_sd * scores[INFLAMMATION], 0, None),
            "composition": _stream(config, "composition").standard_normal(n_people),
            "depth": config.library_size_median * np.exp(log_depth),
        },
        index=pd.Index(names, name="sample"),
    )
    return people, scores


def _effects(config: SimulationConfig, bundle: Bundle) -> pd.DataFrame:
    """Return the true log2 effect of every non-zero potential of the bundle.

    The effect agrees with the potential, is flipped, or is zero. The shares of the three kinds are exact, up to
    rounding. If n entities name a gene, the effects of the gene are divided by sqrt(n).
    """
    entity, feature = np.nonzero(bundle.unary)
    n_flipped, n_null = (round(share * len(entity)) for share in (config.flipped_share, config.null_share))
    n_null = min(n_null, len(entity) - n_flipped)
    kind = np.repeat([0, 1, 2], [len(entity) - n_flipped - n_null, n_flipped, n_null])
    kind = _stream(config, "elicitation error").permutation(kind)
    size = config.effect_median * np.exp(
        config.effect_spread * _stream(config, "effect size").standard_normal(len(entity))
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
            "kind": np.array(KINDS)[kind],
            "effect": effect,
        }
    )


def _genes(config: SimulationConfig, bundle: Bundle, effects: pd.DataFrame) -> pd.DataFrame:
    """Return baselines, loadings and dispersions of all genes.

    The bundle's genes come first, in their order. Background genes follow. A bundle gene follows inflammation in the
    direction of the sum of its true effects, because the phenotypes share that cause. If a gene followed the bundle's
    signs, the simulated elicitation errors would cancel.
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
    """Return genes from common distributions. `dispersion` is still the standard score about the trend."""

    def normal(purpose: str) -> Floats:
        return _stream(config, purpose, group).standard_normal(len(names))

    inflamed = _stream(config, "inflamed genes", group).random(len(names)) < inflamed_share
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
    """Return expected counts, (n_genes, n_people). Each column sums to the person's sequencing depth."""
    log2_abundance = (
        genes["baseline"].to_numpy()[:, None]
        + np.multiply.outer(genes["inflammation"].to_numpy(), people["severity"].to_numpy())
        + np.multiply.outer(genes["composition"].to_numpy(), people["composition"].to_numpy())
    )
    for entity, of_entity in effects.groupby("entity"):
        # size of the phenotype's effects in each person: log-normal with mean 1
        normal = _stream(config, "extent", str(entity)).standard_normal(len(people))
        extent = np.exp(config.extent_spread * normal - config.extent_spread**2 / 2) * phenotypes[entity].to_numpy()
        log2_abundance[genes.index.get_indexer(pd.Index(of_entity["feature"]))] += np.multiply.outer(
            of_entity["effect"].to_numpy(), extent
        )
    abundance = np.exp2(log2_abundance)
    mean: Floats = people["depth"].to_numpy() * abundance / abundance.sum(axis=0)
    return mean


def _samples(config: SimulationConfig, people: pd.DataFrame, phenotypes: pd.DataFrame) -> pd.DataFrame:
    """Return the table of samples in accession order, with all values as text.

    The accession order differs from the order of people.
    """
    age = _stream(config, "age").normal(45, 14, len(people)).clip(19, 82).astype(int)
    female = _stream(config, "sex").random(len(people)) < 0.5
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
    shuffled = samples.iloc[_stream(config, "sample order").permutation(len(people))]
    accessions = [f"GSM{number:07d}" for number in range(1, len(people) + 1)]
    return shuffled.set_axis(pd.Index(accessions, name="accession"))


NOTICE = "Simulated by afa: no patient, no GEO record"


def write_geo_layout(cohort: SimulatedCohort, config: CohortConfig, folder: Path) -> None:
    """Write samples, counts and truth in GEO's format. The same cohort gives the same bytes.

    The config's `metadata_file` decides between a family SOFT file and a series matrix. A folder with other files is
    not replaced, and a `ConfigError` is raised.
    """
    files = simulated_files(config)
    of_samples = _family if files[0].endswith(SOFT) else _series_matrix
    with atomic_folder(folder, files, SIMULATION_FILE) as temporary:
        write_gzip(temporary / files[0], of_samples(cohort.samples, config))
        write_gzip(temporary / files[1], _count_matrix(cohort.counts))
        card = temporary / SIMULATION_FILE
        card.parent.mkdir()
        for name, table in vars(cohort.truth).items():
            table.to_csv(card.with_name(f"{name}.csv"), index=name != "effects", float_format="%.9g")
        card.write_text(cohort.config.model_dump_json(indent=2) + "\n")


def _family(samples: pd.DataFrame, config: CohortConfig) -> Iterator[str]:
    """Yield the lines of a family SOFT file. The samples have no table, as in series with supplementary counts."""
    yield f"^SERIES = {config.series}\n"
    for key, values in _of_series(samples, config):
        yield from (f"!Series_{key} = {value}\n" for value in values)
    for i, accession in enumerate(samples.index):
        yield f"^SAMPLE = {accession}\n"
        yield from (f"!Sample_{key} = {values[i]}\n" for key, values in _of_samples(samples))


def _series_matrix(samples: pd.DataFrame, config: CohortConfig) -> Iterator[str]:
    """Yield the lines of a GEO series matrix.

    The series matrix has the same content as the family SOFT file, and an empty table.
    """
    for key, values in _of_series(samples, config):
        yield _line(f"!Series_{key}", ["".join(f"{value} " for value in values) if len(values) > 1 else values[0]])
    yield "\n"
    for key, values in _of_samples(samples):
        yield _line(f"!Sample_{key}", values)
    yield "!series_matrix_table_begin\n"
    yield "\t".join(f'"{value}"' for value in ["ID_REF", *samples.index]) + "\n"
    yield "!series_matrix_table_end\n"


def _of_series(samples: pd.DataFrame, config: CohortConfig) -> list[tuple[str, list[str]]]:
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


def _of_samples(samples: pd.DataFrame) -> list[tuple[str, list[str]]]:
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


def _line(key: str, values: Iterable[str]) -> str:
    return "\t".join([key, *(f'"{value}"' for value in values)]) + "\n"


def _count_matrix(counts: pd.DataFrame) -> Iterator[str]:
    """Yield lines in the form of R's `write.table`.

    The table uses single spaces, quoted names, and no name above the row names.
    """
    yield " ".join(f'"{name}"' for name in counts.columns) + "\n"
    for gene, row in zip(counts.index, counts.to_numpy().tolist(), strict=True):
        yield f'"{gene}" ' + " ".join(map(str, row)) + "\n"
