"""What the Human Phenotype Ontology annotates to diseases, as frequencies closed under its hierarchy, and as a bundle.

Files are read as they are published: `phenotype.hpoa`, or the older tables. `afa.formats.ontology` reads the terms,
`afa.formats.patients` patients. Entities and features of the bundle are called by their id and what it means,
`HP:0001250 Seizure`; every id of a term is an alias.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from scipy import sparse

from afa.bundle.write import write_bundle
from afa.csvfile import LONGEST_NAME, quoted, suggestion
from afa.errors import BundleError, Fault
from afa.features import features_of
from afa.files import sha256_of, write_text
from afa.formats.ontology import TERM, Ontology, read_ontology, text_of
from afa.inference.hierarchy import Hierarchy

PHENOTYPE = "HP:0000118"
"""The root of phenotypic abnormalities; beside it stand inheritance, onset and modifiers."""
WORDS = {
    "very rare": 0.01,
    "rare": 0.05,
    "occasional": 0.075,
    "frequent": 0.33,
    "variable": 0.5,
    "typical": 0.5,
    "common": 0.75,
    "hallmark": 0.9,
    "obligate": 1.0,
    "HP:0040280": 1.0,
    "HP:0040281": 0.895,
    "HP:0040282": 0.545,
    "HP:0040283": 0.17,
    "HP:0040284": 0.025,
    "HP:0040285": 0.0,
}
"""Frequencies in words as the consortium defined them; of the newer terms, the middle of their range."""
_RATIO = re.compile(r"(\d+)\s*(?:/|of)\s*(\d+)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?(?:\s*-\s*(\d+(?:\.\d+)?))?\s*%")
_COLUMNS = {
    "disease": ("database_id", "#DatabaseID", "Disease ID", "disease_id"),
    "name": ("disease_name", "DiseaseName", "Disease Name", "disease_label"),
    "term": ("hpo_id", "HPO_ID", "Phenotype ID"),
    "frequency": ("frequency", "Frequency"),
    "negated": ("qualifier", "Qualifier", "Negation ID", "negated"),
}
_OLD = ("DB", "id", "name", "negated", "term", "reference", "evidence", "onset", "frequency", "with", "aspect")
"""First columns of `phenotype_annotation.tab`, which has no header."""
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


@dataclass(frozen=True, eq=False)
class DiseaseTerms(Hierarchy):
    """How often each term is said to occur in each disease, one disease a patient: `P(ancestor) >= P(term)`.

    Entities are ids of diseases, features current ids of terms. The background is the mean over diseases, silence being
    0; it and P are within [floor, 1 - floor], and the floor is 1 / (2 N). `closed` is what inference takes.

    Parameters
    ----------
    names : (N,) of the diseases
    unknown : annotated terms that the ontology lacks, with their rows

    """

    names: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)


def read_annotations(path: str | Path) -> pd.DataFrame:
    """Read annotations of diseases, in any of the forms in which they were published.

    path : `phenotype.hpoa`, the older `phenotype_annotation.tab`, a table of one disease, a folder of such `.tab`
        files, or a CSV with disease_id, disease_label, hpo_id, negated, frequency; `.gz` or not.

    Returns
    -------
    DataFrame : a row an annotation: disease, name, term as written, `said`, the frequency as written, which is in
        [0, 1] as `frequency`, NaN where none is stated or no rule reads it, and whether it is negated

    Raises
    ------
    BundleError : columns are missing, or a row names no term; the first rows of each fault.

    """
    root = Path(path)
    files = sorted(root.glob("*.tab")) if root.is_dir() else [root]
    if not files:
        raise BundleError(Fault(str(root), "no .tab file", "a table for each disease", "name their folder"))
    rows: list[tuple[str, str, str, str, bool]] = []
    faults: list[Fault] = []
    for file in files:
        rows += _annotation_rows(file, faults)
    if not faults and not rows:
        faults.append(Fault(str(root), "no annotation", "a row for each disease and term", "fetch the file again"))
    BundleError.raise_for(faults[:20])
    table = pd.DataFrame(rows, columns=["disease", "name", "term", "said", "negated"])
    numbers = {text: frequency_of(text) for text in table["said"].unique()}
    table["frequency"] = table["said"].map(numbers).astype(float)
    return table.assign(negated=table["negated"] | (table["frequency"] == 0.0))


def frequency_of(text: str) -> float:
    """The number that a frequency stands for: a word, `3/7`, `3 of 7`, `12.5 %`, `50%-90%`; NaN where it is none.

    >>> frequency_of("Hallmark"), frequency_of("8 of 32"), frequency_of("50%-90%"), frequency_of("HP:0040283")
    (0.9, 0.25, 0.7, 0.17)
    """
    written = text.strip()
    if written in WORDS or written.lower() in WORDS:
        return WORDS.get(written, WORDS.get(written.lower(), np.nan))
    if ratio := _RATIO.fullmatch(written):
        part, whole = map(int, ratio.groups())
        return part / whole if whole > 0 and part <= whole else np.nan
    if percent := _PERCENT.fullmatch(written):
        low = float(percent.group(1))
        high = float(percent.group(2) or low)
        return (low + high) / 200 if low <= high <= 100 else np.nan
    return np.nan


def disease_terms(annotations: pd.DataFrame, ontology: Ontology, *, unstated: float) -> DiseaseTerms:
    """Frequencies of phenotypic terms in diseases, closed under the hierarchy.

    Parameters
    ----------
    annotations
        A disease's repeated rows count as their largest stated frequency.
    ontology
        Alternative and replaced ids are brought to their current one; what is no phenotypic abnormality is left out.
    unstated
        Frequency of a term that is annotated without one, in (0, 1].

    Returns
    -------
    DiseaseTerms : P of an ancestor is the largest of its annotated descendants; a negated term, and what lies below
        it, has the floor unless annotated too

    Raises
    ------
    BundleError : no disease has a phenotypic term of the ontology; `unstated` is no such share.

    """
    if not 0 < unstated <= 1:
        raise BundleError(Fault("--unstated", str(unstated), "a share above 0, at most 1", "give e.g. 0.5"))
    table = annotations
    written = {text: ontology.resolve(text) for text in table["term"].unique()}
    unknown = Counter(text for text in table["term"] if written[text] is None)
    kept = {text for text, term in written.items() if term is not None and PHENOTYPE in ontology.ancestors[term]}
    table = table[table["term"].isin(kept - {PHENOTYPE})]
    table = table.assign(term=table["term"].map(written))
    present = table[~table["negated"]]
    if present.empty:
        step = "take an ontology of the annotations' time"
        raise BundleError(Fault("annotations", "no phenotypic term of the ontology", "at least one", step))
    diseases = tuple(dict.fromkeys(present["disease"]))
    row_of = {disease: row for row, disease in enumerate(diseases)}
    named = set().union(*(ontology.ancestors[term] for term in table["term"].unique()))
    terms = tuple(t for t in ontology.ids if t in named and t != PHENOTYPE and PHENOTYPE in ontology.ancestors[t])
    column_of = {term: column for column, term in enumerate(terms)}
    stated = present.groupby(["disease", "term"], sort=False)["frequency"].max().fillna(unstated)
    above = {term: [column_of[a] for a in ontology.ancestors[term] if a in column_of] for term in terms}
    closed = [
        (row_of[disease], column, p)
        for disease, term, p in stated.reset_index().itertuples(index=False)
        for column in above[term]
    ]
    negated = table[table["negated"] & table["disease"].isin(diseases)]
    below: dict[str, list[int]] = {term: [] for term in negated["term"]}
    for term, column in column_of.items():
        for ancestor in ontology.ancestors[term] & below.keys():
            below[ancestor].append(column)
    pairs = zip(negated["disease"], negated["term"], strict=True)
    absent = [(row_of[d], column, 0.0) for d, term in pairs for column in below[term]]
    floor, size = 1.0 / (2 * len(diseases)), len(terms)
    entries = pd.DataFrame([*closed, *absent], columns=["row", "column", "p"])
    known, whole = (
        part.groupby(["row", "column"])["p"].max().reset_index() for part in (entries[: len(closed)], entries)
    )
    means = np.bincount(known["column"], weights=known["p"], minlength=size) / len(diseases)
    edges = [(column_of[t], column_of[parent]) for t in terms for parent in ontology.parents[t] if parent in column_of]
    return DiseaseTerms(
        entities=diseases,
        features=terms,
        probabilities=sparse.csr_array(
            (whole["p"].clip(floor, 1.0 - floor), (whole["row"], whole["column"])), shape=(len(diseases), size)
        ),
        background=np.clip(means, floor, 1.0 - floor),
        parents=sparse.csr_array(
            (np.ones(len(edges), np.int8), np.array(edges, np.int64).reshape(-1, 2).T), shape=(size, size)
        ),
        floor=floor,
        names=tuple(present.drop_duplicates("disease")["name"]),
        unknown=dict(unknown),
    )


def _annotation_rows(file: Path, faults: list[Fault]) -> list[tuple[str, str, str, str, bool]]:
    text = text_of(file)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    lines = [(number, line) for number, line in lines if not line.startswith("#") or line.startswith("#DatabaseID")]
    if not lines:
        return []
    mark = "," if str(file).removesuffix(".gz").endswith(".csv") else "\t"
    reader = csv.reader(
        (line for _, line in lines), delimiter=mark, quoting=csv.QUOTE_MINIMAL if mark == "," else csv.QUOTE_NONE
    )
    try:
        (begin, header), *numbered = [(lines[reader.line_num - 1][0], row) for row in reader]
    except csv.Error as error:
        faults.append(Fault(str(file), f"text that is not CSV ({error})", "a table of annotations", "check its quotes"))
        return []
    at = {key: next((header.index(name) for name in names if name in header), None) for key, names in _COLUMNS.items()}
    if at["term"] is None and len(header) >= len(_OLD) and TERM.fullmatch(header[_OLD.index("term")]):
        at = {key: _OLD.index(key) for key in ("name", "term", "frequency", "negated")} | {"disease": None}
        numbered = [(begin, header), *numbered]
    elif lacking := [names[0] for key, names in _COLUMNS.items() if at[key] is None]:
        step = suggestion(lacking[0], header, "check that the file is the one meant")
        faults.append(Fault(f"{file}, line {begin}", f"no column {', '.join(lacking)}", "a table of annotations", step))
        return []
    rows = []
    for number, row in numbered:
        cells = {key: row[place].strip() if place is not None and place < len(row) else "" for key, place in at.items()}
        if at["disease"] is None:
            cells["disease"] = ":".join(row[:2]) if len(row) > 1 else ""
        if not TERM.fullmatch(cells["term"]) or not cells["disease"]:
            found = f"{quoted(cells['disease'])} and {quoted(cells['term'])}"
            faults.append(Fault(f"{file}, line {number}", found, "a disease and a term", "correct or remove the row"))
            continue
        rows.append(
            (cells["disease"], cells["name"], cells["term"], cells["frequency"], cells["negated"] in ("NOT", "1"))
        )
    return rows


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
    files = Path(annotations), Path(ontology)
    digests = [f"{path.name}, SHA-256 {sha256_of(path)}" if path.is_file() else path.name for path in files]
    read, terms = read_annotations(annotations), read_ontology(ontology)
    known = disease_terms(read, terms, unstated=unstated)
    depth, organ = _places(known)
    features = tuple(_name(term, terms.names[term]) for term in known.features)
    entities = tuple(_name(disease, known.names[i]) for i, disease in enumerate(known.entities))
    rows = known.probabilities.tocoo()
    child, parent = known.parents.nonzero()
    prices = {"depth": depth, "organ": np.where(np.isin(organ, VISIBLE), SEEN, TESTED)}.get(costs)
    space = np.array(features, dtype=object)
    labels = [terms.names[term] for term in known.features]
    counted = Counter(labels)
    aliases = {
        name: (term, *terms.ids_of[term], *([label] if label and counted[label] == 1 else []))
        for name, term, label in zip(features, known.features, labels, strict=True)
    }
    unread = read[(read["said"] != "") & read["frequency"].isna()]
    table = pd.DataFrame({"feature": features, "kind": "binary", "p_low": 0.0, "p_high": known.background})
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
        aliases=aliases,
        provenance={
            "model": "none: annotations by the Human Phenotype Ontology Consortium",
            "prompts": "none",
            "consensus": f"the largest stated frequency; {unstated:g} where none is stated; the floor where negated",
            "date": date,
            "annotations": digests[0],
            "ontology": f"{terms.version}: {digests[1]}",
            "citation": CITED,
            "root": PHENOTYPE,
            "unread_frequencies": unread["said"].value_counts(sort=False).to_dict(),
            "unknown_terms": dict(known.unknown),
        },
        licence=TERMS_OF_USE,
        table=features_of(table.assign(values="0 absent, 1 present")),
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


def _places(known: DiseaseTerms) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.str_]]:
    """(T,) steps below the root along the hierarchy's one parent a term, and the organ system at its end."""
    parent = known.parent
    depth, organ = np.ones(len(parent), dtype=np.int64), np.array(known.features)
    for term, above in enumerate(parent):
        if above >= 0:
            depth[term], organ[term] = depth[above] + 1, organ[above]
    return depth, organ
