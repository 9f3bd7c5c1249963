"""A bundle from what the Human Phenotype Ontology annotates to diseases.

Entities and features are called by their id and what it means, `HP:0001250 Seizure`; every id of a term is an alias.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from afa.bundle.write import write_bundle
from afa.csvfile import LONGEST_NAME
from afa.features import Features, features_of
from afa.files import sha256_of, write_text
from afa.formats.hpo import PHENOTYPE, Annotations, DiseaseTerms, disease_terms, read_annotations
from afa.formats.ontology import Ontology, read_ontology

TERMS_OF_USE = (
    "HPO terms of use (human-phenotype-ontology.org): free to use where the Human Phenotype Ontology Consortium is "
    "acknowledged and cited and the version is shown, and neither the content of the HPO files nor their logical "
    "relationships are altered. Disease names and numbers are those of OMIM, Orphanet and DECIPHER."
)
CITED = "M. A. Gargano and others: The Human Phenotype Ontology in 2024. Nucleic Acids Research 52 (2024) D1333-D1346"
VISIBLE = ("HP:0000152", "HP:0000478", "HP:0000598", "HP:0001574", "HP:0001507", "HP:0000769", "HP:0040064")
"""Organ systems that are seen without an instrument: head or neck, eye, ear, skin, growth, breast, limbs."""
SEEN, TESTED = 1.0, 3.0
"""Costs by organ system: what a clinician sees, and everything else."""


def bundle_from_hpo(
    annotations: str | Path,
    ontology: str | Path,
    date: str,
    out: str | Path,
    *,
    unstated: float,
    costs: str = "equal",
    panels: str | Path | None = None,
) -> DiseaseTerms:
    """Write the bundle of a file of annotations and the ontology of their time (docs/phenotypes.md).

    Parameters
    ----------
    date
        The day or the release of the annotations, as it is to be cited.
    unstated
        P of a term that is annotated without a frequency, in (0, 1].
    costs
        `equal`; `depth`, the number of steps below the root; or `organ`, by what can be seen (`VISIBLE`).
    panels
        A file to write: by organ system its own term and those right below, as `afa plan --panels` reads it.

    Raises
    ------
    BundleError : a file is none of its kind; nothing is written then.

    """
    read, terms = read_annotations(annotations), read_ontology(ontology)
    known = disease_terms(read, terms, unstated=unstated)
    depth, organ = _places(known)
    features = tuple(_name(term, terms.names[term]) for term in known.terms)
    entities = tuple(_name(disease, known.names[i]) for i, disease in enumerate(known.diseases))
    rows = known.probabilities.tocoo()
    child, parent = known.parents.nonzero()
    prices = {"depth": depth, "organ": np.where(np.isin(organ, VISIBLE), SEEN, TESTED)}.get(costs)
    space = np.array(features, dtype=object)
    write_bundle(
        out,
        name="hpo",
        version=date,
        entities=entities,
        features=features,
        unary=pd.DataFrame(
            {
                "entity": np.array(entities, dtype=object)[rows.coords[0]],
                "feature": space[rows.coords[1]],
                "potential": np.nan,
                "p_high_with": rows.data,
            }
        ),
        pairwise=pd.DataFrame(columns=["entity", "feature_a", "feature_b", "potential"]),
        costs=None if prices is None else dict(zip(features, prices.tolist(), strict=True)),
        aliases=_aliases(known, terms, features),
        provenance=_provenance(read, known, terms, {"annotations": annotations, "ontology": ontology}, date, unstated),
        licence=TERMS_OF_USE,
        table=_table(features, known.background),
        implies=pd.DataFrame({"feature": space[child], "parent": space[parent]}),
        probability_floor=known.floor,
        holds="one",
    )
    if panels is not None:
        near = {
            term: [features[j] for j in np.flatnonzero((organ == term) & (depth <= 2))] for term in sorted(set(organ))
        }
        named = {terms.names[term]: members for term, members in near.items() if members}
        write_text(panels, yaml.safe_dump(named, allow_unicode=True, sort_keys=False, width=1_000))
    return known


def _name(identifier: str, label: str) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in label.partition(";;")[0]).split())
    return f"{identifier} {words}"[:LONGEST_NAME].strip()


def _places(known: DiseaseTerms) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.str_]]]:
    """(T,) steps below the root along the hierarchy's one parent a term, and the organ system at its end."""
    parent = known.hierarchy.parent
    depth, organ = np.ones(len(parent), dtype=np.int64), np.array(known.terms)
    for term, above in enumerate(parent):
        if above >= 0:
            depth[term], organ[term] = depth[above] + 1, organ[above]
    return depth, organ


def _aliases(known: DiseaseTerms, terms: Ontology, features: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The ids of each term, and its label where no other term has it."""
    labels = [terms.names[term] for term in known.terms]
    counted = pd.Series(labels).value_counts()
    return {
        name: (term, *sorted(terms.ids_of(term)), *([label] if label and counted[label] == 1 else []))
        for name, term, label in zip(features, known.terms, labels, strict=True)
    }


def _table(features: tuple[str, ...], background: np.ndarray[Any, np.dtype[np.float64]]) -> Features:
    frame = pd.DataFrame({"feature": features, "kind": "binary", "p_low": 0.0, "p_high": background})
    return features_of(frame.assign(values="0 absent, 1 present"))


def _provenance(
    read: Annotations, known: DiseaseTerms, terms: Ontology, files: Mapping[str, str | Path], date: str, unstated: float
) -> dict[str, Any]:
    digests = {
        what: f"{Path(path).name}, SHA-256 {sha256_of(path)}" for what, path in files.items() if Path(path).is_file()
    }
    return {
        "model": "none: annotations by the Human Phenotype Ontology Consortium",
        "prompts": "none",
        "consensus": f"the largest stated frequency; {unstated:g} where none is stated; the floor where negated",
        "date": date,
        "annotations": digests.get("annotations", Path(files["annotations"]).name),
        "ontology": f"{terms.version}: {digests['ontology']}",
        "citation": CITED,
        "root": PHENOTYPE,
        "unread_frequencies": dict(read.unread),
        "unknown_terms": dict(known.unknown),
    }
