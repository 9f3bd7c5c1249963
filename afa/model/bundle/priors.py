"""The file `priors.csv`, which contains the prior of each entity: its probability or log-odds before any measurement.

`priors.csv` has the columns `entity,probability` or the columns `entity,log_odds`. Without `priors.csv`, each entity
has probability 1/2 if a patient can have several entities, and all entities have equal probability if a patient has at
most one entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit, softmax

from afa.io.csvfile import CsvTable, first_names, number_column, parse_number
from afa.model.arrays import Floats, Ints

if TYPE_CHECKING:
    from afa.model.bundle.model import Bundle
    from afa.model.bundle.rates import Holds

COLUMNS = ("log_odds", "probability")
ROUNDED = 0.01
"""Largest accepted rounding error of a sum of probabilities that must be 1 (exactly one entity is present)."""


def prior_rows(table: CsvTable, entity: Ints, n_entities: int, holds: Holds) -> tuple[Floats, Floats | None]:
    """Return the priors of all entities and, if priors.csv contains probabilities, these probabilities.

    If a patient can have several entities, the prior of an entity is the log-odds that the entity is present. If a
    patient can have at most one entity, the prior of an entity is the logarithm of its weight, and the probability of
    an entity is proportional to its weight. If a patient can also have no entity, this case has weight 1.

    If the file contains log-odds, an entity without a row has log-odds 0. If the file contains probabilities and a
    patient can have several entities, an entity without a row has probability 1/2. If the file contains probabilities
    and a patient can have at most one entity, the remaining probability is divided equally between the entities without
    a row. If a patient can also have no entity, the case *no entity* counts as one more entity without a row.

    Parameters
    ----------
    entity : (n_rows,) int64, index of each row's entity, or -1 for an unknown name
    holds : how many entities a patient can have

    Returns
    -------
    priors : (N,) float64, nats
    shares : (N,) float64, probabilities, or None

    """
    table.once(entity, "each entity once")
    said = {name: ~table.empty(name) for name in COLUMNS}
    both = said["log_odds"] & said["probability"]
    table.wrong(both, "probability", "one of the two", "empty one of the two", "log-odds and a probability")
    neither = ~said["log_odds"] & ~said["probability"]
    step = "write one, or remove the row: what an entity without a row has says docs/bundle.md"
    table.wrong(neither, "probability", "log-odds or a probability", step, "neither log-odds nor a probability")
    value = number_column(table, "log_odds", empty=np.nan)
    share = number_column(table, "probability", empty=np.nan)
    extreme = (share <= 0) | (share >= 1)
    table.wrong(extreme, "probability", "a number above 0 and below 1", "correct the number")
    if said["log_odds"].any() and said["probability"].any() and not both.any():
        table.faults.add(
            0, "probability", "some rows with it, some with log-odds", "one of the two", "state one in all"
        )
    _check_log_odds(table, value)
    priors = np.zeros(n_entities)
    known = entity >= 0
    if table.faults.listed() or not said["probability"].any():
        priors[entity[known]] = np.where(np.isfinite(value), value, 0.0)[known]
        return priors, None
    shares = np.full(n_entities, np.nan)
    shares[entity[known]] = share[known]
    shares = _complete_shares(table, shares, holds)
    left = max(1.0 - float(shares.sum()), np.finfo(np.float64).tiny)
    priors = logit(shares) if holds == "several" else np.log(shares) - (np.log(left) if holds != "one" else 0.0)
    return priors, shares


def _check_log_odds(table: CsvTable, value: Floats) -> None:
    """Record an error if the log-odds may be probabilities that were entered by mistake.

    Log-odds are suspicious if all numbers are between 0 and 1 and no number has a plus sign.
    """
    texts = [text.strip() for text in table.columns["log_odds"]]
    if len(value) and bool(((value > 0) & (value < 1)).all()) and not any(text.startswith("+") for text in texts):
        found = f"{first_names(texts)}, all between 0 and 1, as probabilities are"
        step = (
            "if they are probabilities, call the column probability; "
            f"if they are log-odds, write one with its sign, such as +{parse_number(texts[0]):g}"
        )
        table.faults.add(0, "log_odds", found, "log-odds, such as -2.94 for a probability of 0.05", step)


def _complete_shares(table: CsvTable, shares: Floats, holds: Holds) -> Floats:
    """Return the prior probabilities of all entities, including entities without a row in priors.csv.

    In the argument `shares`, the probability of an entity without a row is NaN. If a patient can have several entities,
    NaN is replaced by 1/2. If a patient can have at most one entity, the sum of the given probabilities is checked, and
    each NaN is replaced by an equal part of the remaining probability.
    """
    without_row = np.isnan(shares)
    if holds == "several":
        return np.where(without_row, 0.5, shares)
    total, left = float(np.nansum(shares)), int(without_row.sum()) + (holds == "one or none")
    if left:
        wrong, expected = total >= 1, "less than 1, since some is left for none of them or for entities without a row"
    else:
        wrong, expected = abs(total - 1) > ROUNDED, "1, since exactly one entity holds"
    if wrong:
        step = "correct them; where any number of entities may hold, write `holds: several` in bundle.yaml"
        table.faults.add(0, "probability", f"probabilities that sum to {total:.4g}", expected, step)
        return np.full(len(shares), 1 / (len(shares) + 1))
    return np.where(without_row, (1.0 - total) / left, shares) if left else shares / total


def signed(priors: Mapping[str, Any]) -> dict[str, float | str]:
    """Return log-odds in the form in which they are written to priors.csv.

    If all log-odds are between 0 and 1, they are written with a plus sign, because they could otherwise be mistaken for
    probabilities.
    """
    if not priors or not all(isinstance(value, float) and 0 < value < 1 for value in priors.values()):
        return dict(priors)
    return {name: f"+{value!r}" for name, value in priors.items()}


def starting(bundle: Bundle, holds: Holds | None = None) -> Floats:
    """Return the probability of each entity before any measurement.

    Parameters
    ----------
    holds : how many entities a patient can have, or None for the bundle's setting

    Returns
    -------
    probabilities : (N,) float64

    """
    holds = holds or bundle.holds
    if holds == "several":
        return np.asarray(expit(bundle.log_odds))
    log = bundle.priors if holds == "one" else np.append(bundle.priors, 0.0)
    return np.asarray(softmax(log)[: len(bundle.priors)])


def starting_point(bundle: Bundle, holds: Holds | None = None, entity: str | None = None) -> str:
    """Return a sentence that states how probable the entities are before any measurement.

    Parameters
    ----------
    holds : how many entities a patient can have, or None for the bundle's setting
    entity : the only entity in question, or None

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> starting_point(load_bundle("tests/data/bundle_tiny"), "one")
    'Before any measurement, by priors.csv: bleeding 0.45, diarrhea 0.45, fistula 0.1.'

    """
    if entity is not None:
        chance = float(expit(bundle.log_odds[bundle.index(entity)]))
        by = ", as priors.csv says" if bundle.priors.any() else "; priors.csv can give other probabilities"
        return f"Before any measurement, {bundle.shown(entity)} has probability {chance:.3g}{by}."
    each, n = starting(bundle, holds), len(bundle.entities)
    if bundle.priors.any():
        order = np.argsort(-each, kind="stable")
        named = first_names(f"{bundle.shown(bundle.entities[v])} {each[v]:.3g}" for v in order)
        return f"Before any measurement, by priors.csv: {named}."
    holds = holds or bundle.holds
    if holds == "several":
        share = "1/2"
        if not bundle.has_probabilities:
            share += f" (1/{n} where exactly one holds)"
    else:
        share = f"1/{n}" if holds == "one" else f"1/{n + 1}, as has none of them"
    return (
        f"Before any measurement, each of {n} entities has probability {share};"
        " priors.csv can give other probabilities."
    )
