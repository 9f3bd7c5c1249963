"""One patient as phenopacket JSON: which signs were observed, which were looked for and are absent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from afa.errors import CohortError, Fault
from afa.files import read_whole

TERM = re.compile(r"HP:\d{7}")


@dataclass(frozen=True)
class Phenopacket:
    """A patient: terms observed, terms looked for and absent, diagnoses; `others` are of other vocabularies."""

    name: str
    observed: tuple[str, ...]
    excluded: tuple[str, ...]
    diseases: tuple[str, ...]
    sex: str
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
    observed, excluded, others, faults = _signs(features, where)
    if both := [term for term in observed if term in excluded]:
        step = "keep what holds at the time of the diagnosis"
        faults.append(Fault(where, f"{', '.join(both[:5])} observed and excluded", "one of the two", step))
    if faults:
        raise CohortError(faults)
    subject = document.get("subject")
    sex = str(subject.get("sex", "")) if isinstance(subject, dict) else ""
    name = str(document.get("id") or Path(path).stem)
    return Phenopacket(name, observed, excluded, tuple(_diagnoses(document)), sex.lower(), others)


def _signs(
    features: Sequence[object], where: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], list[Fault]]:
    observed, excluded, others = dict[str, None](), dict[str, None](), dict[str, None]()
    faults = []
    for number, feature in enumerate(features, 1):
        kind = feature.get("type") if isinstance(feature, dict) else None
        term = kind.get("id") if isinstance(kind, dict) else None
        if not isinstance(feature, dict) or not isinstance(term, str) or not term:
            step = "give it the id of a term"
            faults.append(
                Fault(f"{where}, feature {number}", "no `type` with an `id`", "a term such as HP:0001250", step)
            )
        elif not TERM.fullmatch(term):
            others[term] = None
        elif feature.get("excluded") is True or feature.get("negated") is True:
            excluded[term] = None
        else:
            observed[term] = None
    return tuple(observed), tuple(excluded), tuple(others), faults


def _diagnoses(document: Mapping[str, object]) -> Iterator[str]:
    """Ids of the diseases that a phenopacket names, each once."""
    found: dict[str, None] = {}
    interpretations, diseases = document.get("interpretations"), document.get("diseases")
    for part in interpretations if isinstance(interpretations, list) else []:
        diagnosis = part.get("diagnosis") if isinstance(part, dict) else None
        disease = diagnosis.get("disease") if isinstance(diagnosis, dict) else None
        if isinstance(disease, dict) and isinstance(disease.get("id"), str):
            found[disease["id"]] = None
    for part in diseases if isinstance(diseases, list) else []:
        term = part.get("term") if isinstance(part, dict) and part.get("excluded") is not True else None
        if isinstance(term, dict) and isinstance(term.get("id"), str):
            found[term["id"]] = None
    yield from found
