"""Published patients with one diagnosis: from a table of papers, or from phenopackets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from afa.bundle import Bundle
from afa.errors import CohortError, Fault
from afa.formats.hpo import DiseaseTerms
from afa.formats.hpo_bundle import values_of
from afa.formats.ontology import Ontology
from afa.formats.phenopacket import read_phenopacket
from afa.inference.hierarchy import hierarchy_of

COLUMNS = ("patient", "pmid", "disease_id", "observed", "excluded")


@dataclass(frozen=True, eq=False)
class Patient:
    """A patient with one diagnosis: signs by their place in `DiseaseTerms.terms`, in the paper's order.

    present : observed. absent : looked for and not found; none of them is implied by a present one.
    """

    name: str
    paper: str
    disease: int
    present: tuple[int, ...]
    absent: tuple[int, ...]


def read_patients(path: str | Path, known: DiseaseTerms, ontology: Ontology, newer: Ontology) -> list[Patient]:
    """The patients of a table whose disease is annotated and who have a sign that the annotations know.

    Parameters
    ----------
    path : CSV with patient, pmid, disease_id, observed, excluded (terms joined by `|`)
    known : the diseases and terms
    ontology, newer : what `known` was made with, and a later release that places terms which came after it. An observed
        term that is not known counts as its nearest known ancestors; an excluded one is left out, since its absence
        says nothing of them

    Raises
    ------
    CohortError : a column is missing.

    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if lacking := [name for name in COLUMNS if name not in table.columns]:
        raise CohortError(Fault(str(path), f"no column {', '.join(lacking)}", ", ".join(COLUMNS), "name the table"))
    rows = {disease: row for row, disease in enumerate(known.diseases)}
    place = _placing(known, ontology, newer)
    ancestors, found = known.hierarchy.ancestors, []
    table = table[table["disease_id"].isin(list(rows))]
    for name, paper, disease, observed, excluded in zip(*(table[column] for column in COLUMNS), strict=True):
        present = dict.fromkeys(at for term in _terms(observed) for at in place(term, near=True))
        implied = set(present).union(*(ancestors[at].tolist() for at in present))
        absent = dict.fromkeys(at for term in _terms(excluded) for at in place(term, near=False))
        if present:
            kept = tuple(at for at in absent if at not in implied)
            found.append(Patient(name, paper, rows[disease], tuple(present), kept))
    return found


def packet_patients(path: str | Path, bundle: Bundle) -> tuple[list[Patient], list[str]]:
    """Patients of phenopackets with one diagnosis that the bundle knows and a sign that it knows; names of the others.

    Parameters
    ----------
    path : a phenopacket as JSON, or a folder of them
    bundle : with implications, as `afa bundle from-hpo` makes it

    Raises
    ------
    CohortError : there is no such file, or none of them is left.

    """
    root = Path(path)
    files = sorted(root.glob("**/*.json")) if root.is_dir() else [root]
    place = hierarchy_of(bundle)[1]
    at = {name: int(i) for name, i in zip(bundle.features, place, strict=True)}
    rows = {name.split(" ", 1)[0]: row for row, name in enumerate(bundle.entities)}
    rows |= {name: row for row, name in enumerate(bundle.entities)}
    found, left_out = list[Patient](), list[str]()
    for packet in map(read_phenopacket, files):
        said = values_of(packet, bundle).values
        present, absent = (tuple(at[name] for name, value in said.items() if value == kind) for kind in (1, 0))
        diseases = {rows[name] for name in packet.diseases if name in rows}
        if len(packet.diseases) == len(diseases) == 1 and present:
            paper = re.match(r"PMID[_:](\d+)", packet.name)
            name = f"PMID:{paper[1]}" if paper else packet.name
            found.append(Patient(packet.name, name, diseases.pop(), present, absent))
        else:
            left_out.append(packet.name)
    if not found:
        step = "name a phenopacket, or a folder of them, and the bundle of their terms"
        raise CohortError(Fault(str(path), "no patient with one known disease and a known sign", "one or more", step))
    return found, left_out


def chosen(patients: Sequence[Patient], later_than: int, of_each_paper: int) -> list[Patient]:
    """Patients of papers with a PubMed number above `later_than`, the first so many of each paper.

    Raises
    ------
    CohortError : none is left.

    """
    counted: dict[str, int] = {}
    kept = []
    for patient in patients:
        counted[patient.paper] = counted.get(patient.paper, 0) + 1
        if int(patient.paper.removeprefix("PMID:")) > later_than and counted[patient.paper] <= of_each_paper:
            kept.append(patient)
    if not kept:
        raise CohortError(Fault("patients", f"none later than PMID:{later_than}", "one or more", "lower --later-than"))
    return kept


def _terms(text: str) -> list[str]:
    return text.split("|") if text else []


def _placing(known: DiseaseTerms, ontology: Ontology, newer: Ontology) -> Callable[..., tuple[int, ...]]:
    """What finds the places of a term: its own, or `near` those of its nearest known ancestors."""
    columns = {term: column for column, term in enumerate(known.terms)}
    kept: dict[tuple[str, bool], tuple[int, ...]] = {}

    def place(term: str, *, near: bool) -> tuple[int, ...]:
        if (term, near) not in kept:
            ids, how = ontology.place(term, newer)
            ids = ids if near or how != "ancestor" else ()
            if near:
                ids = tuple(one for each in ids for one in _nearest_known(each, ontology, columns))
            kept[term, near] = tuple(sorted({columns[one] for one in ids if one in columns}))
        return kept[term, near]

    return place


def _nearest_known(term: str, ontology: Ontology, columns: Mapping[str, int]) -> set[str]:
    known = {above for above in ontology.ancestors[term] if above in columns}
    return {one for one in known if not any(one != other and one in ontology.ancestors[other] for other in known)}
