"""Published patients with one diagnosis: from a table of papers, or from phenopackets, and what one of these says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from afa.bundle import Bundle
from afa.csvfile import read_header, read_table
from afa.errors import CohortError, Fault
from afa.files import read_whole
from afa.formats.hpo import DiseaseTerms
from afa.formats.ontology import TERM, Ontology, split_ids
from afa.inference.hierarchy import hierarchy_of
from afa.planner.menu import implied_values


@dataclass(frozen=True)
class Phenopacket:
    """A patient: terms observed, terms looked for and absent, diagnoses; `others` are of other vocabularies."""

    name: str
    observed: tuple[str, ...]
    excluded: tuple[str, ...]
    diseases: tuple[str, ...]
    others: tuple[str, ...] = ()


def read_phenopacket(path: str | Path) -> Phenopacket:
    """Read one patient from phenopacket JSON, version 1 or 2; onset, severity and variants are not looked at.

    Raises
    ------
    CohortError : it is no phenopacket, or a term is both observed and excluded.

    """
    where = str(path)
    try:
        document = json.loads(read_whole(Path(path), 1 << 26).decode("utf-8-sig"))
    except OSError as error:
        raise CohortError(Fault(where, error.strerror or "an error", "a readable file", "check the path")) from None
    except (ValueError, RecursionError) as error:
        found = f"text that is not JSON ({' '.join(str(error).split())[:100]})"
        raise CohortError(Fault(where, found, "a phenopacket", "export the patient again")) from None
    features = document.get("phenotypicFeatures") if isinstance(document, dict) else None
    if not isinstance(features, list):
        step = "name a phenopacket, as JSON"
        raise CohortError(Fault(where, "no list `phenotypicFeatures`", "signs of a patient", step))
    said: dict[str, list[str]] = {"observed": [], "excluded": [], "others": []}
    faults = []
    for number, feature in enumerate(features, 1):
        kind = feature.get("type") if isinstance(feature, dict) else None
        term = kind.get("id") if isinstance(kind, dict) else None
        if not isinstance(feature, dict) or not isinstance(term, str) or not term:
            expected, step = "a term such as HP:0001250", "give it the id of a term"
            faults.append(Fault(f"{where}, feature {number}", "no `type` with an `id`", expected, step))
        elif not TERM.fullmatch(term):
            said["others"].append(term)
        else:
            is_absent = feature.get("excluded") is True or feature.get("negated") is True
            said["excluded" if is_absent else "observed"].append(term)
    signs = {how: tuple(dict.fromkeys(terms)) for how, terms in said.items()}
    if both := [term for term in signs["observed"] if term in signs["excluded"]]:
        step = "keep what holds at the time of the diagnosis"
        faults.append(Fault(where, f"{', '.join(both[:5])} observed and excluded", "one of the two", step))
    CohortError.raise_for(faults)
    name = str(document.get("id") or Path(path).stem)
    return Phenopacket(name, diseases=tuple(_diagnoses(document)), **signs)


class Said(NamedTuple):
    """What a phenopacket says of a bundle's features.

    values : by feature, 1 observed, 0 excluded. unknown : terms that the bundle does not know. implied : excluded
    features that an observed one implies, which are left out.
    """

    values: dict[str, int]
    unknown: list[str]
    implied: list[str]


def values_of(packet: Phenopacket, bundle: Bundle) -> Said:
    """The signs of a phenopacket as values of a bundle's features, by name or alias."""
    names = {alias: name for name, aliases in bundle.aliases.items() for alias in aliases}
    names |= {name: name for name in bundle.features}
    present = {names[term]: 1 for term in packet.observed if term in names}
    above = set(implied_values(bundle, present)) | set(present)
    absent = [names[term] for term in packet.excluded if term in names]
    unknown = [term for term in (*packet.observed, *packet.excluded) if term not in names]
    kept = {name: 0 for name in absent if name not in above}
    return Said(present | kept, [*unknown, *packet.others], [name for name in absent if name in above])


def _diagnoses(document: Mapping[str, object]) -> Iterator[str]:
    """Ids of the diseases that a phenopacket names, each once."""
    interpretations, diseases = document.get("interpretations"), document.get("diseases")
    diagnoses = [part.get("diagnosis") for part in _objects(interpretations)]
    named = [part.get("disease") for part in _objects(diagnoses)]
    named += [part.get("term") for part in _objects(diseases) if part.get("excluded") is not True]
    yield from dict.fromkeys(part["id"] for part in _objects(named) if isinstance(part.get("id"), str))


def _objects(parts: object) -> list[dict[str, Any]]:
    """The objects of a JSON list; none of anything else."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


COLUMNS = ("patient", "pmid", "disease_id", "observed", "excluded")


@dataclass(frozen=True, eq=False)
class Patient:
    """A patient with one diagnosis: signs by their place in `DiseaseTerms.features`, in the paper's order.

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
    CohortError : it is no such table; every fault by line and column.

    """
    others = [name for name in read_header(path) if name not in COLUMNS]
    read = read_table(path, required=COLUMNS, optional=others, unread=others, whole_rows=True)
    unknown = [not text.removeprefix("PMID:").isdecimal() for text in read.columns["pmid"]]
    read.wrong(unknown, "pmid", "a PubMed number, such as PMID:15266616", "correct the number or remove the row")
    CohortError.raise_for(read.faults.listed())
    table = pd.DataFrame(dict(read.columns), columns=list(COLUMNS))
    rows = {disease: row for row, disease in enumerate(known.entities)}
    columns = {term: column for column, term in enumerate(known.features)}

    @cache
    def place(term: str, *, near: bool) -> tuple[int, ...]:
        """The places of a term: its own, or `near` those of its nearest known ancestors."""
        ids, how = ontology.place(term, newer)
        if near:
            ids = tuple(one for each in ids for one in ontology.lowest(ontology.ancestors[each] & columns.keys()))
        return tuple(sorted({columns[one] for one in ids if one in columns and (near or how != "ancestor")}))

    ancestors, found = known.ancestors, []
    table = table[table["disease_id"].isin(list(rows))]
    for name, paper, disease, observed, excluded in zip(*(table[column] for column in COLUMNS), strict=True):
        present = dict.fromkeys(at for term in split_ids(observed) for at in place(term, near=True))
        implied = set(present).union(*(ancestors[at].tolist() for at in present))
        absent = dict.fromkeys(at for term in split_ids(excluded) for at in place(term, near=False))
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
