"""The files of a bundle: a folder with `bundle.yaml` and a few CSV files.

    bundle.yaml    name, version; optional: entities, features, value_domain, provenance, licence, digests
    unary.csv      entity,feature,potential[,p_low_with,p_high_with,p_low_without,p_high_without]
                   [,n_with,n_without][,confidence][,evidence]
                   (if a row has probabilities, its potential may be empty; n_with and n_without are the numbers of
                   labelled patients from whom `afa update` estimated the probabilities)
    priors.csv     entity,probability     (or entity,log_odds; optional; `afa.model.bundle.priors`)
    costs.csv      feature,cost           (optional; a cost for every feature, or for its measurement)
    aliases.csv    feature,alias          (optional; several rows a feature are allowed)
    display.csv    name,display           (optional; the name of an entity or a feature that people see)
    features.csv   feature,kind,unit,low,high,values,missing,p_low,p_high,definition (optional; all features)
    groups.csv     feature,measurement,exclusive    (optional; features measured together; features of which at most
                   one can be +1)

If `bundle.yaml` lists `entities` or `features`, a row with a name that is not in the list is an error. If `bundle.yaml`
does not list the entities, entities are ordered by first appearance in unary.csv; entities that appear only in
pairwise.csv follow. If `bundle.yaml` does not list the features, features are in the order of features.csv, or in
alphabetical order if features.csv is missing.

The functions in this module check the rows of each file, replace names by indices, convert text to numbers, and record
every error with its line and column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from afa.errors import CohortError, Fault
from afa.io.csvfile import CONTROLS, LONGEST_NAME, CsvTable, first_names, name_column, number_column
from afa.io.files import sha256_of
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle.priors import COLUMNS as PRIORS
from afa.model.bundle.rates import (
    SCOPES,
    SMALLEST_PROBABILITY,
    FeatureGroup,
    Holds,
    ProbabilityRows,
    Rates,
    three_values,
)
from afa.model.features import FEATURE_COLUMNS, Features, checked_features, share_columns

HEADER = "bundle.yaml"
REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "unary.csv": ("entity", "feature", "potential"),
    "pairwise.csv": ("entity", "feature_a", "feature_b", "potential"),
    "priors.csv": ("entity",),
    "costs.csv": ("feature", "cost"),
    "aliases.csv": ("feature", "alias"),
    "display.csv": ("name", "display"),
    "features.csv": FEATURE_COLUMNS[:2],
    "groups.csv": ("feature",),
}
ANNOTATIONS = ("confidence", "evidence")
PROBABILITY_COLUMNS = ("p_low_with", "p_high_with", "p_low_without", "p_high_without")
COUNT_COLUMNS = ("n_with", "n_without")
"""Columns with the numbers of labelled patients, with and without the entity, in a bundle made by `afa update`."""
OPTIONAL_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "unary.csv": (*PROBABILITY_COLUMNS, *COUNT_COLUMNS, *ANNOTATIONS),
    "pairwise.csv": ("scope", *ANNOTATIONS),
    "priors.csv": PRIORS,
    "features.csv": FEATURE_COLUMNS[2:],
    "groups.csv": ("measurement", "exclusive"),
}
REQUIRED_FILES = ("unary.csv", "pairwise.csv")
VALUE_DOMAIN = [-1, 0, 1]
LARGEST_SPACE = 100_000_000
"""Largest number of entities times features, because the table of unary potentials is dense."""
PROVENANCE_KEYS = ("model", "prompts", "date", "consensus")


def _quoted_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("text; put it in quotes, because YAML reads this as something else")
    if not value or value != value.strip() or not value.isprintable():
        raise ValueError("text that is not empty and has no spaces around it or invisible characters")
    if len(value) > LONGEST_NAME:
        raise ValueError(f"text of at most {LONGEST_NAME} characters")
    return value


def _texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value that was read from YAML, including the keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts_in(list(pair))
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)


Text = Annotated[str, BeforeValidator(_quoted_text)]


class Header(BaseModel):
    """The contents of `bundle.yaml`."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    version: Text
    entities: list[Text] | None = None
    features: list[Text] | None = None
    value_domain: list[int] = VALUE_DOMAIN
    licence: str | None = None
    encoding: Literal["ranges", "controls", "cohort"] | None = None
    probability_floor: Annotated[float, Field(gt=0, lt=1 / 3)] = SMALLEST_PROBABILITY
    holds: Holds = "several"
    provenance: dict[str, Any] = {}
    digests: dict[str, str] = {}

    @field_validator("value_domain")
    @classmethod
    def _only_ternary(cls, value: list[int]) -> list[int]:
        if value != VALUE_DOMAIN:
            raise ValueError(f"{VALUE_DOMAIN}, the only value domain that afa supports")
        return value

    @field_validator("licence", "provenance")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        if any(CONTROLS.search(text) for text in _texts_in(value)):
            raise ValueError("texts without control characters")
        return value


@dataclass(frozen=True)
class Potentials:
    """Potentials of unary.csv or pairwise.csv, in arrays with one element for each row of the file.

    Entities and features are given by index instead of by name.

    Attributes
    ----------
    entity : (n_rows,) int64, index of each row's entity
    features : (n_rows, 1) or (n_rows, 2) int64, indices of each row's features; of two indices, the smaller is first
    value : (n_rows,) float64, finite potentials, nats
    scope : (n_rows,) int8, index of each row's scope in `SCOPES`, or None if no row has a scope

    """

    entity: Ints
    features: Ints
    value: Floats
    scope: Codes | None = None


def digests_of(folder: str | Path) -> dict[str, str]:
    """Return a mapping from the name of each CSV file in a bundle folder to the SHA-256 of the file."""
    return {name: sha256_of(Path(folder) / name) for name in REQUIRED_COLUMNS if (Path(folder) / name).is_file()}


def potential_rows(table: CsvTable, codes: list[Ints]) -> Potentials:
    """Return the potentials in unary.csv or pairwise.csv.

    If a row of unary.csv has probabilities but no potential, its potential is 0.

    Parameters
    ----------
    codes : arrays (n_rows,) int64, indices of the entities and of each column of features; -1 for an unknown name

    """
    entity, features = codes[0], np.sort(np.column_stack(codes[1:]), axis=1)
    paired = features.shape[1] == 2
    value = number_column(table, "potential", empty=None if paired else np.nan)
    if not paired:
        empty = table.empty("potential")
        table.wrong(empty & ~_probability_mask(table), "potential", "a finite number", "correct the number")
        value = np.where(empty, 0.0, value)
    number_column(table, "confidence", low=0.0, high=1.0, empty=np.nan)
    sound = (entity >= 0) & (features >= 0).all(axis=1)
    if paired:
        same = sound & (features[:, 0] == features[:, 1])
        step, names = "remove the row", table.columns["feature_a"]
        table.wrong(same, "feature_b", "two different features", step, lambda row: f"{names[row]} paired with itself")
        sound &= ~same
    base = int(features.max(initial=0)) + 1
    key = entity
    for column in features.T:
        key = key * base + column
    what = "each pair once for an entity, in either order" if paired else "each feature once for an entity"
    table.once(np.where(sound, key, -1), what)
    return Potentials(entity, features, value, _scopes(table) if paired else None)


def _scopes(table: CsvTable) -> Codes | None:
    table.words("scope", SCOPES)
    codes = np.array([SCOPES.index(word) if word in SCOPES else 0 for word in table.columns["scope"]], dtype=np.int8)
    return codes if codes.any() else None


def _probability_mask(table: CsvTable) -> Bools:
    """Return a mask that is True for the rows of unary.csv with at least one probability.

    The mask has the shape (n_rows,).
    """
    stated: Bools = ~np.logical_and.reduce([table.empty(name) for name in PROBABILITY_COLUMNS])
    return stated


def probability_rows_of(table: CsvTable, unary: Potentials, rates: Rates) -> ProbabilityRows:
    """Return the rows of unary.csv that have probabilities.

    The rows are sorted by entity, and rows of the same entity by feature.

    Parameters
    ----------
    rates : possible values and background probabilities, from the other files of the bundle

    """
    entity, feature = unary.entity, unary.features[:, 0]
    states = _probability_mask(table) & (entity >= 0) & (feature >= 0)
    # The index -1 of an unknown feature selects the row that is appended here, in which all three values are possible.
    possible, background = np.vstack([rates.possible, [True] * 3]), np.append(rates.has_background, False)
    wrong, both = np.zeros(len(table), dtype=bool), {}
    for state in ("with", "without"):
        names = f"p_low_{state}", f"p_high_{state}"
        low, high, faulty = share_columns(table, names, possible[feature], states)
        wrong |= faulty
        both[state] = np.maximum(three_values(low, high), 0.0)
    says = {state: np.isfinite(both[state][:, 0]) for state in both}
    pooled = background.copy()
    pooled[feature[states & says["without"]]] = True
    for state, other, known in (("without", "with", pooled), ("with", "without", background)):
        bare = states & ~wrong & says[other] & ~says[state] & ~known[feature]
        found = f"nothing beside the probabilities {other} the entity, of a feature without a background"
        step = "add them, or p_low and p_high of the feature to features.csv"
        table.wrong(bare, f"p_high_{state}", f"the probabilities {state} it", step, found)
    rows = np.flatnonzero(states)
    order = rows[np.lexsort((feature[rows], entity[rows]))]
    directed, patients = ~table.empty("potential")[order], _patient_counts(table, states)
    patients_in_order = None if patients is None else patients[order]
    return ProbabilityRows(
        entity[order], feature[order], both["with"][order], both["without"][order], directed, patients_in_order
    )


def _patient_counts(table: CsvTable, states: Bools) -> Ints | None:
    """Return the numbers of labelled patients from the columns `COUNT_COLUMNS`, or None if both columns are empty.

    The result has the shape (n_rows, 2). If at least one number is given, each empty field counts as 0.

    Parameters
    ----------
    states : (n_rows,) bool, True for a row with probabilities; a count in another row is recorded as an error

    """
    counts = np.column_stack([number_column(table, name, low=0.0, high=1e9, empty=np.nan) for name in COUNT_COLUMNS])
    for name, column in zip(COUNT_COLUMNS, counts.T, strict=True):
        broken = np.isfinite(column) & (column % 1 != 0)
        table.wrong(broken, name, "a whole number of patients", "correct the number")
        alone = np.isfinite(column) & ~states
        step = "add the probabilities that the patients are behind, or empty it"
        table.wrong(alone, name, "nothing in a row without probabilities", step)
    return None if np.isnan(counts).all() else np.nan_to_num(counts).astype(np.int64)


def cost_rows(table: CsvTable, item: Ints, n_features: int, measurements: FeatureGroup) -> Floats:
    """Return the cost of each feature.

    The cost of a measurement is divided equally among the features that it measures.

    Parameters
    ----------
    item : (n_rows,) int64, index of a feature, or n_features plus the index of a measurement; -1 for an unknown name

    Returns
    -------
    costs : (n_features,) float64, NaN if neither the feature nor its measurement has a row

    """
    value = number_column(table, "cost", low=0.0)
    table.once(item, "each feature once")
    costs = np.full(n_features, np.nan)
    own = (item >= 0) & (item < n_features)
    costs[item[own]] = value[own]
    for row in np.flatnonzero(item >= n_features):
        members = list(measurements[item[row] - n_features][1])
        if np.isfinite(costs[members]).any():
            found = "a cost of it, and of a feature that it measures"
            table.wrong([row], "feature", "one of the two", "remove one of the two rows", found)
        costs[members] = value[row] / len(members)
    return costs


def alias_rows(table: CsvTable, feature: Ints, features: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a mapping from each feature to its aliases.

    Record an error for an alias that occurs twice, and for an alias that is the name of a feature.

    Parameters
    ----------
    feature : (n_rows,) int64, index of each row's feature, or -1 for an unknown name

    """
    name_column(table, "alias")
    names, known = table.columns["alias"], set(features)
    taken = [row for row, alias in enumerate(names) if alias in known]
    found = "the name of a feature"
    table.wrong(taken, "alias", "a name that no feature has", "remove the row", lambda row: f"{names[row]}, {found}")
    place = {alias: number for number, alias in enumerate(dict.fromkeys(names)) if alias and alias not in known}
    table.once([place.get(alias, -1) for alias in names], "each alias once", "alias")
    aliases: dict[str, tuple[str, ...]] = {}
    for index, alias in zip(feature[feature >= 0], itertools.compress(names, feature >= 0), strict=True):
        aliases[features[index]] = (*aliases.get(features[index], ()), alias)
    return aliases


def display_rows(
    table: CsvTable,
    entities: Sequence[str],
    features: Sequence[str],
    aliases: Mapping[str, Sequence[str]] = {},
    *,
    name: str = "name",
    display: str = "display",
) -> dict[str, str]:
    """Return a mapping from names of entities and features to display names.

    Record an error for a display name that occurs twice, and for a display name that is the name or alias of another
    entity or feature.

    Parameters
    ----------
    aliases : feature -> its other names
    name, display : names of the two columns of `table`

    """
    names = list(dict.fromkeys([*entities, *features]))
    named = name_column(table, name, {name: place for place, name in enumerate(names)}, "among entities and features")
    table.once(named, "each name once", name)
    name_column(table, display)
    shown = table.columns[display]
    owner = {alias: feature for feature, others in aliases.items() for alias in others} | {text: text for text in names}
    pairs = zip(shown, table.columns[name], strict=True)
    taken = [row for row, (text, given) in enumerate(pairs) if owner.get(text, given) != given]
    step = "choose another text, or remove the row"
    table.wrong(taken, display, "a text that is no other name", step, lambda row: f"{shown[row]}, the name of another")
    place = {text: number for number, text in enumerate(dict.fromkeys(shown)) if text}
    table.once([place.get(text, -1) for text in shown], "each text once", display)
    return {names[at]: text for at, text in zip(named, shown, strict=True) if at >= 0 and text}


def feature_rows(table: CsvTable, features: Sequence[str]) -> tuple[Features | None, list[Fault]]:
    """Return the content of features.csv and a list of errors.

    The rows are in the order of `features`. If there are errors, the content is None.
    """
    try:
        read = checked_features(table)
    except CohortError as error:
        return None, list(error.faults)
    rows = set(read.names)
    lacking = [name for name in features if name not in rows]
    faults = lacking_faults(table, "row for", lacking, "a row for every feature")
    return None if faults else read.chosen(features), faults


def lacking_faults(table: CsvTable, what: str, names: Sequence[str], expected: str) -> list[Fault]:
    """Return a list with one error that names the features without a row.

    `names` contains these features. If `names` is empty, return an empty list.
    """
    step = "add the missing rows or remove the file"
    return [Fault(table.faults.path, f"no {what} {first_names(names)}", expected, step)] if names else []


def group_rows(table: CsvTable, feature: Ints, features: Sequence[str]) -> list[FeatureGroup]:
    """Return two lists of groups of features: the groups that are measured together, and the exclusive groups.

    In an exclusive group, at most one feature can have the value +1.

    Parameters
    ----------
    feature : (n_rows,) int64, index of each row's feature, or -1 for an unknown name

    """
    table.once(feature, "each feature once")
    groups, known = list[FeatureGroup](), set(features)
    for column in ("measurement", "exclusive"):
        words = table.columns[column]
        members: dict[str, list[int]] = {}
        for row, word in enumerate(words):
            if word and (word != word.strip() or not word.isprintable()):
                expected = "a name without spaces around it or invisible characters"
                table.wrong([row], column, expected, "correct the name")
            elif word in known:
                found, step = f"{word}, the name of a feature", "give the group a name of its own"
                table.wrong([row], column, "another name", step, found)
            elif word and feature[row] >= 0:
                members.setdefault(word, []).append(int(feature[row]))
        groups.append(tuple((word, tuple(sorted(found))) for word, found in members.items()))
    neither = table.empty("measurement") & table.empty("exclusive")
    table.wrong(neither, "measurement", "a measurement or an exclusive group", "name one, or remove the row")
    return groups


def group_faults(
    groups: CsvTable, couplings: CsvTable, rates: Rates, features: Sequence[str], pairwise: Potentials
) -> list[Fault]:
    """Return the errors in the definitions of exclusive groups.

    An exclusive group must have at least two features. The features of an exclusive group must only have the values 0
    and +1, and must not have couplings.
    """
    faults, where = [], groups.faults.path
    pairs = pairwise.features[pairwise.value != 0]
    for name, members in rates.exclusive:
        below = [features[j] for j in members if rates.possible[j, 0]]
        if below:
            found, expected = f"{below[0]} in {name}, which can be -1", "features that are 0 or +1"
            step = "call it binary in features.csv, or leave it out"
            faults.append(Fault(f"{where}, column exclusive", found, expected, step))
        if len(members) < 2:
            found, step = f"{name}, of one feature", "name it in the rows of the others too"
            faults.append(Fault(f"{where}, column exclusive", found, "two or more that exclude each other", step))
        for j, k in np.unique(pairs[np.isin(pairs, members).any(axis=1)], axis=0).tolist():
            found = f"a coupling of {features[j]} and {features[k]}, of which the exclusive group {name} has one"
            faults.append(Fault(couplings.faults.path, found, "no coupling of its features", "remove the row"))
    return faults
