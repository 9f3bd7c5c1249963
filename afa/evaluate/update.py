r"""Update a bundle with labelled patients: the elicited probabilities are the prior, the patients are the data.

For every entity and feature, a bundle contains two distributions of the feature's values: with the entity and without
it. An elicited distribution p with strength s is a Dirichlet prior with parameters s p_x, so that it counts as much as
s cases. Let n_x labelled patients have the value x, and let N be the sum of the n_x. The posterior mean of the
probability of x is the first of these formulas, and the marginal likelihood is the second:

\[ \frac{s\,p_x + n_x}{s + N}, \qquad P(n \mid s) = \frac{\Gamma(s)}{\Gamma(s + N)}
   \prod_x \frac{\Gamma(s\,p_x + n_x)}{\Gamma(s\,p_x)}. \]

The strength s of a distribution is one of the numbers in `STRENGTHS`, and can differ between distributions. Each
possible strength has a prior probability, which is the same for all distributions of the bundle. EM fits these prior
probabilities (`weights`) by maximising the marginal likelihood of all labelled patients, so that no patients need to be
held out. For each distribution, the posterior means under all possible strengths are averaged, weighted by the
posterior probabilities of these strengths.

If patients can have several entities, the evidence for an entity is the likelihood ratio of its two distributions, and
the update has two steps. The first step corrects the overall frequencies of a feature's values, because the
distributions with and without the entity can contain the same error. In the first step, the mixture of a feature's two
distributions is updated with all labelled patients, with and without the entity. Each distribution is then multiplied
by the ratio of the updated mixture to the elicited mixture, and normalised. The first step of the update does not
change the odds ratio of any two values. The second step updates the distributions of each class with the values of the
patients in that class. With the second step alone, the distribution of the larger class would approach the true
frequencies faster than the distribution of the smaller class, and the odds ratios would be wrong in the meantime. If a
feature was measured only in labelled patients of one class, the first step of the update does not change the feature's
distributions. If a patient can have at most one entity, only the second step is made. In this case, two entities are
compared without likelihood ratios: the distribution in patients with one entity is compared with the distribution in
patients with the other entity (docs/decisions.md, F6).

An exclusive group contains features of which at most one is +1, and is treated as one variable. This variable has one
state for each feature that can be +1, and one state in which no feature is +1. If the bundle's setting `holds` is `one
or none`, the distributions in patients without any entity (the background) are updated with the patients whose labels
are all 0. An update does not change couplings, potentials and the entities' priors. Capstick et al. (AutoElicit,
arXiv:2411.17284) elicit priors of linear models in a similar way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaln, softmax

from afa.errors import BundleError, CohortError, Fault
from afa.evaluate.frames import codes_of_frame, labels_of_frame
from afa.io.csvfile import first_names
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import ProbabilityRows, Rates, group_states, three_values
from afa.model.features import Features, features_of
from afa.planner.options import bundle_given

STRENGTHS: Floats = np.exp2(np.arange(11.0))
"""Possible strengths of an elicited distribution, in cases: 1, 2, 4, ..., 1024."""
EM_TOLERANCE = 0.01
"""EM stops when the marginal log-likelihood is at most this many nats below its maximum."""
MOST_ROUNDS = 100_000
NO_ENTITY = "none of them"
"""Name of the class of patients without any entity. Only a bundle with `one or none` has this class."""
CLASS_SUFFIXES = ("with", "without")
N_LISTED_CHANGES = 10
"""The bundle's provenance lists this number of most changed probabilities."""
WRITTEN_DECIMALS = 4
LEAST_SHARE = 0.01
"""The text of an update names only strengths that have at least this probability."""


def log_marginal(prior: Floats, counts: Floats, strengths: Floats = STRENGTHS) -> Floats:
    """Return the log marginal likelihood of the counts, in nats, for each distribution and prior strength, (..., G).

    Parameters
    ----------
    prior : (..., S) float64
        Elicited probabilities of S states. An impossible state has probability 0.
    counts : (..., S) float64
        Numbers of labelled patients in each state. An impossible state has no patients.
    strengths : (G,) float64
        Strengths of the elicited distribution, in cases.

    """
    cases = prior[..., None, :] * strengths[:, None]
    there = cases > 0
    alike = np.where(there, cases, 1.0)
    of_states = np.where(there, gammaln(alike + counts[..., None, :]) - gammaln(alike), 0.0).sum(axis=-1)
    return np.asarray(gammaln(strengths) - gammaln(strengths + counts.sum(axis=-1, keepdims=True)) + of_states)


def fitted_weights(log_likelihood: Floats) -> Floats:
    """Return the prior probabilities of the G possible strengths, (G,), fitted by maximum marginal likelihood.

    The probabilities w are computed by EM, which starts from equal probabilities and stops within `EM_TOLERANCE` nats
    of the maximum. Let w_g be the probability of strength g, and let L_rg be the likelihood of distribution r under
    strength g. The marginal likelihood of distribution r is M_r = sum_g w_g L_rg. Let d_g be the mean of L_rg / M_r
    over the R distributions r. The log-likelihood of w is then at most R (max_g d_g - 1) below its maximum.

    Parameters
    ----------
    log_likelihood : (R, G) float64
        `log_marginal` of the distributions with at least one labelled patient. If R is 0, the result has equal weights.

    """
    n, grid = log_likelihood.shape
    weights = np.full(grid, 1.0 / grid)
    if n == 0:
        return weights
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    for _ in range(MOST_ROUNDS):
        relative = (likelihood / (likelihood @ weights)[:, None]).mean(axis=0)
        if n * (relative.max() - 1.0) <= EM_TOLERANCE:
            break
        weights = weights * relative
    return np.asarray(weights / weights.sum())


def posterior_means(prior: Floats, counts: Floats, of_strength: Floats, strengths: Floats = STRENGTHS) -> Floats:
    """Return the posterior mean of each distribution, (..., S).

    Parameters
    ----------
    prior, counts : (..., S) float64
        As in `log_marginal`.
    of_strength : (..., G) float64
        Posterior probability of each strength of the distribution.
    strengths : (G,) float64
        Strengths of the elicited distribution, in cases.

    """
    total = strengths + counts.sum(axis=-1, keepdims=True)
    of_prior = (of_strength * strengths / total).sum(axis=-1, keepdims=True)
    of_counts = (of_strength / total).sum(axis=-1, keepdims=True)
    return np.asarray(of_prior * prior + of_counts * counts)


@dataclass(frozen=True, eq=False)
class Update:
    """Store the distributions of a bundle before and after an update with labelled patients.

    For each entity v from 0 to N - 1, class v contains the patients with this entity, and class N + v contains the
    patients without this entity. If the bundle's setting `holds` is `one or none`, one more class contains the patients
    without any entity.

    Parameters
    ----------
    elicited, updated : (C, M, 3) float64
        Probabilities of -1, 0, +1 before and after the update.
    counts : (C, M, 3) int64
        Numbers of labelled patients of the class by value. For a member of an exclusive group, only patients with all
        members measured are counted.
    strength : (C, M) float64
        Posterior geometric mean of the strength of each elicited distribution, or NaN if it has no patients.
    weights, level_weights : (G,) float64
        Prior probabilities of `STRENGTHS`: `weights` for the distributions, and `level_weights` for the overall
        frequencies that the first step of the update corrects.

    """

    elicited: Floats
    updated: Floats
    counts: Ints
    strength: Floats
    weights: Floats
    level_weights: Floats

    @property
    def patients(self) -> Ints:
        """Return the number of labelled patients with which each distribution was updated, (C, M) int64."""
        return np.asarray(self.counts.sum(axis=2))


def update_of(bundle: Bundle, values: npt.ArrayLike, labels: npt.ArrayLike, strengths: Floats = STRENGTHS) -> Update:
    """Return the distributions of a bundle before and after an update with labelled patients.

    Parameters
    ----------
    bundle : Bundle
        The elicited bundle; it must have probabilities.
    values : (P, M) array_like
        Values -1, 0 or +1. NaN, or any other number, means that the feature was not measured.
    labels : (P, N) array_like
        Labels 1 or 0 of each patient and entity, or NaN if unknown.
    strengths : (G,) float64
        The grid of strengths.

    Raises
    ------
    BundleError : the bundle has no probabilities.

    """
    check_probabilities(bundle)
    x, y = np.asarray(values, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    both = [bundle.how_often(entity)[:2] for entity in bundle.entities]
    classes, members = [each[side] for side in (0, 1) for each in both], [y == 1, y == 0]
    if bundle.holds == "one or none":
        classes.append(bundle.background)
        members.append((y == 0).all(axis=1, keepdims=True))
    elicited, of_class = np.array(classes), np.concatenate(members, axis=1).T.astype(np.float64)
    counts = np.stack([of_class @ (x == value) for value in (-1, 0, 1)], axis=2)
    variables = [_ungrouped_variables(bundle, elicited, counts), *_group_variables(bundle, elicited, of_class, x)]
    level_weights = fitted_weights(np.empty((0, len(strengths))))
    if bundle.holds == "several":
        variables, level_weights = _correct_levels(variables, len(bundle.entities), strengths)
    weights, of_strengths = _fit_strengths([(each.prior, each.counts) for each in variables], strengths)
    updated, strength = elicited.copy(), np.full(elicited.shape[:2], np.nan)
    for variable, of_strength in zip(variables, of_strengths, strict=True):
        at, some = variable.features, np.asarray(variable.counts.any(axis=-1))
        means = posterior_means(variable.prior, variable.counts, of_strength, strengths)
        mean_strength = np.exp(of_strength @ np.log(strengths))
        updated[:, at] = np.where(some[..., None], variable.by_feature(means), elicited[:, at])
        strength[:, at] = np.where(some, mean_strength, np.nan)
        counts[:, at] = variable.by_feature(variable.counts)
    return Update(elicited, updated, np.rint(counts).astype(np.int64), strength, weights, level_weights)


def _fit_strengths(parts: Sequence[tuple[Floats, Floats]], strengths: Floats) -> tuple[Floats, list[Floats]]:
    """Return the prior probabilities of the strengths, (G,), and their posterior probabilities for each distribution.

    The second result is a list with one array of posterior probabilities, (..., G), for each pair in `parts`.

    Parameters
    ----------
    parts : pairs of elicited probabilities and counts, (..., S) each. All parts share the prior of the strengths

    """
    marginals = [log_marginal(prior, counts, strengths) for prior, counts in parts]
    seen = [np.asarray(counts.any(axis=-1)) for _, counts in parts]
    weights = fitted_weights(np.concatenate([each[some] for each, some in zip(marginals, seen, strict=True)]))
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    return weights, [np.asarray(softmax(each + log_weights, axis=-1)) for each in marginals]


def _correct_levels(
    variables: Sequence[_Variables], n_entities: int, strengths: Floats
) -> tuple[list[_Variables], Floats]:
    """Return the variables after the first step of the update, which corrects the overall frequencies of the values.

    The second result contains the prior probabilities of the G possible `strengths`, (G,). They are fitted to all
    labelled patients.
    """
    one, zero = slice(n_entities), slice(n_entities, 2 * n_entities)
    parts = []
    for each in variables:
        n_one, n_zero = (each.counts[side].sum(axis=-1, keepdims=True) for side in (one, zero))
        both = (n_one > 0) & (n_zero > 0)
        share = np.where(both, n_one / np.maximum(n_one + n_zero, 1.0), 0.5)
        mixture = share * each.prior[one] + (1.0 - share) * each.prior[zero]
        parts.append((mixture, np.where(both, each.counts[one] + each.counts[zero], 0.0)))
    weights, of_strengths = _fit_strengths(parts, strengths)
    made = []
    for each, (mixture, counts), of_strength in zip(variables, parts, of_strengths, strict=True):
        level = posterior_means(mixture, counts, of_strength, strengths)
        ratio = np.where(mixture > 0, level / np.where(mixture > 0, mixture, 1.0), 0.0)
        prior = each.prior.copy()
        for side in (one, zero):
            moved = each.prior[side] * ratio
            prior[side] = moved / moved.sum(axis=-1, keepdims=True)
        made.append(replace(each, prior=prior))
    return made, weights


@dataclass(frozen=True, eq=False)
class _Variables:
    """Store variables with S states each, for C classes.

    The variables are either single features or one exclusive group. For single features, K is F. For a group, K is 1,
    and the last state means that no member is +1.

    Attributes
    ----------
    features : (F,) int64, indices
    prior, counts : (C, K, S) float64

    """

    features: Ints
    prior: Floats
    counts: Floats
    is_group: bool = False

    def by_feature(self, states: Floats) -> Floats:
        """Return the probabilities of -1, 0 and +1 of each feature, (C, F, 3), from `states`, (C, K, S)."""
        if not self.is_group:
            return states
        high = states[:, 0, :-1]
        return np.stack([0.0 * high, states[:, 0].sum(axis=1, keepdims=True) - high, high], axis=2)


def _ungrouped_variables(bundle: Bundle, elicited: Floats, counts: Floats) -> _Variables:
    """Return the `_Variables` of all features that are not in an exclusive group.

    The arguments `elicited` and `counts` have the shape (C, M, 3).
    """
    grouped = [j for _, members in bundle.exclusive for j in members]
    at = np.setdiff1d(np.arange(len(bundle.features)), grouped).astype(np.int64)
    return _Variables(at, elicited[:, at], counts[:, at])


def _group_variables(bundle: Bundle, elicited: Floats, of_class: Floats, values: Floats) -> Iterator[_Variables]:
    """Yield each exclusive group. Only patients for whom all members of the group were measured are counted.

    Parameters
    ----------
    elicited : (C, M, 3) float64
    of_class : (C, P) float64, 1 where a patient belongs to the class
    values : (P, M) float64

    """
    for _, members in bundle.exclusive:
        at = np.array(members, dtype=np.int64)
        of_group = values[:, at]
        known = np.asarray(np.isin(of_group, (0, 1)).all(axis=1))
        high = (of_group == 1) & known[:, None]
        states = np.column_stack([high, known & ~high.any(axis=1)])
        chances = np.array([group_states(each[at, 2], bundle.floor) for each in elicited])
        prior = np.column_stack([chances, 1.0 - chances.sum(axis=1)])
        yield _Variables(at, prior[:, None], (of_class @ states)[:, None], is_group=True)


def check_probabilities(bundle: Bundle) -> None:
    """Raise a `BundleError` if the bundle has directions but no probabilities."""
    if not bundle.has_probabilities:
        found, expected = (
            "directions without probabilities, which labelled patients cannot update",
            "probabilities of the values",
        )
        step = "add p_low_with, p_high_with, p_low_without and p_high_without to unary.csv (docs/bundle.md)"
        raise BundleError(Fault(f"bundle {bundle.name}", found, expected, step))


def updated_bundle(bundle: Bundle, update: Update, provenance: Mapping[str, Any] | None = None) -> Bundle:
    """Return the bundle with the updated distributions and the number of labelled patients used for each of them.

    If a row has no potential, its direction is computed from its probabilities. The bundle may have no row for an
    entity and a feature. If the update used labelled patients for this entity and this feature, a row with potential 0
    is added. If the update changes the background of a feature, a row with the previous background is added for each
    entity that used it.

    Parameters
    ----------
    bundle : Bundle
        The elicited bundle.
    update : Update
        Result of `update_of`.
    provenance : mapping
        Entry about the update. It is appended to `updates` in the new bundle's provenance.

    """
    n, m = len(bundle.entities), len(bundle.features)
    rates = bundle.rates or Rates(m)
    old = rates.probability_rows
    patients = update.patients
    shares, counts = np.full((n, m, 2, 3), np.nan), np.zeros((n, m, 2), dtype=np.int64)
    directed, written = np.ones((n, m), dtype=np.bool_), np.zeros((n, m), dtype=np.bool_)
    at = old.entity, old.feature
    shares[at] = np.stack([old.with_entity, old.without], axis=1)
    directed[at], written[at] = old.directed, True
    counts[at] = 0 if old.patients is None else old.patients
    table = _updated_feature_table(bundle, update)
    with_rows, without_rows = patients[:n], patients[n : 2 * n]
    seen = (with_rows > 0) | (without_rows > 0)
    shares[seen] = np.stack([update.updated[:n], update.updated[n : 2 * n]], axis=2)[seen]
    counts += np.stack([with_rows, without_rows], axis=2)
    written |= seen
    made = replace(rates, table=table, probability_rows=_rows_with_probabilities(written, shares, directed, counts))
    moved = (np.abs(made.background - rates.background) > 0).any(axis=1)
    rests = ~seen & moved & np.isnan(shares[..., 0]).any(axis=2)
    shares[rests] = np.stack([update.elicited[:n], update.elicited[n : 2 * n]], axis=2)[rests]
    made = replace(made, probability_rows=_rows_with_probabilities(written | rests, shares, directed, counts))
    unary, bare = bundle.unary.copy(), ~made.probability_rows.directed
    unary[made.probability_rows.entity[bare], made.probability_rows.feature[bare]] = made.directions()[bare]
    said = dict(bundle.provenance)
    if provenance is not None:
        said["updates"] = [*said.get("updates", []), dict(provenance)]
    return replace(bundle, unary=unary, rates=made, provenance=said)


def _rows_with_probabilities(written: Bools, shares: Floats, directed: Bools, counts: Ints) -> ProbabilityRows:
    """Return the rows of unary.csv that have probabilities.

    Parameters
    ----------
    written : (N, M) bool, True if there is a row
    directed : (N, M) bool, True if the row has a potential
    shares : (N, M, 2, 3) float64, probabilities with and without the entity
    counts : (N, M, 2) int64, labelled patients

    """
    entity, feature = np.nonzero(written)
    low, high = shares[written][..., 0], shares[written][..., 2]
    # The reader of unary.csv also computes the probability of 0 with `three_values`.
    each = np.maximum(three_values(low, high), 0.0)
    return ProbabilityRows(entity, feature, each[:, 0], each[:, 1], directed[written], counts[written])


def _updated_feature_table(bundle: Bundle, update: Update) -> Features | None:
    """Return the bundle's table of features, after its probabilities are updated by the patients without any entity."""
    table = None if bundle.rates is None else bundle.rates.table
    n = len(bundle.entities)
    if len(update.updated) == 2 * n or not (seen := update.patients[-1] > 0).any():
        return table
    if table is None:
        table = features_of(pd.DataFrame({"feature": bundle.features, "kind": "continuous"}))
    p_low, p_high = table.p_low.copy(), table.p_high.copy()
    p_low[seen], p_high[seen] = update.updated[-1, seen, 0], update.updated[-1, seen, 2]
    return replace(table, p_low=p_low, p_high=p_high)


def moved_most(bundle: Bundle, update: Update) -> pd.DataFrame:
    """Return the probabilities of low and high values before and after an update, sorted by change, largest first.

    The column `class` is `with` or `without`, and `value` is `low` or `high`. The column `patients` is the number of
    labelled patients of the class in whom the feature was measured. The column `count` is the number of these patients
    with the value. If the feature was measured in no labelled patient of the class, the probability is omitted.
    """
    names = [(entity, side) for side in CLASS_SUFFIXES for entity in bundle.entities]
    names += [(NO_ENTITY, "")] * (len(update.updated) - len(names))
    c, j, side = np.nonzero((update.patients > 0)[:, :, None] & bundle.possible[None, :, ::2])
    table = pd.DataFrame(
        {
            "entity": [names[i][0] for i in c],
            "class": [names[i][1] for i in c],
            "feature": [bundle.features[i] for i in j],
            "value": np.where(side == 0, "low", "high"),
            "elicited": update.elicited[c, j, 2 * side],
            "updated": update.updated[c, j, 2 * side],
            "count": update.counts[c, j, 2 * side],
            "patients": update.patients[c, j],
        }
    )
    order = np.argsort(-(table["updated"] - table["elicited"]).abs().to_numpy().round(12), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def report_of(bundle: Bundle, update: Update, labels: npt.ArrayLike) -> dict[str, Any]:
    """Return the description of an update that is saved in the provenance of the updated bundle.

    Parameters
    ----------
    labels : (P, N) float64, 1, 0 or NaN, as passed to `update_of`

    """
    y = np.asarray(labels, dtype=np.float64)
    table = moved_most(bundle, update).head(N_LISTED_CHANGES).round(WRITTEN_DECIMALS)
    rows = [{name: value for name, value in row.items() if value != ""} for row in table.to_dict("records")]
    labelled = {
        entity: {"with": int((y[:, v] == 1).sum()), "without": int((y[:, v] == 0).sum())}
        for v, entity in enumerate(bundle.entities)
    }
    said = {
        "of": bundle.digest,
        "patients": int((~np.isnan(y)).any(axis=1).sum()),
        "labelled": labelled,
        "strengths": _nonzero_strengths(update.weights),
        "moved_most": rows,
    }
    if bundle.holds == "several":
        said["strengths_of_levels"] = _nonzero_strengths(update.level_weights)
    if bundle.holds == "one or none":
        said["without_any"] = int((y == 0).all(axis=1).sum())
    return said


def _nonzero_strengths(weights: Floats) -> dict[str, float]:
    """Return a mapping from strength to probability, for strengths whose rounded probability is above 0."""
    found = {f"{s:g}": round(float(w), WRITTEN_DECIMALS) for s, w in zip(STRENGTHS, weights, strict=True)}
    return {strength: weight for strength, weight in found.items() if weight > 0}


def update_text(said: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """Return the result of `report_of` as text: numbers of patients, strengths, and the largest changes.

    Parameters
    ----------
    shown : function from a name to its display name, such as `Bundle.shown`

    Examples
    --------
    >>> print(update_text({"patients": 3, "labelled": {"flu": {"with": 1, "without": 2}}, "strengths": {"8": 1.0},
    ...                    "moved_most": []}))
    updated by 3 labelled patients: flu 1 with, 2 without
    patients that an elicited probability is worth: 8

    """
    each = first_names(
        [f"{shown(name)} {n['with']} with, {n['without']} without" for name, n in said["labelled"].items()]
    )
    common = {strength: share for strength, share in said["strengths"].items() if share >= LEAST_SHARE}
    strengths = ", ".join(f"{strength} ({share:.0%})" for strength, share in common.items())
    lines = [
        f"updated by {said['patients']} labelled patients: {each}",
        f"patients that an elicited probability is worth: {strengths if len(common) > 1 else ''.join(common)}",
    ]
    if said["moved_most"]:
        table = pd.DataFrame(said["moved_most"]).fillna("")
        names = [column for column in ("entity", "feature") if column in table]
        table[names] = table[names].map(shown)
        lines += ["probabilities that moved most:", table.to_string(index=False, float_format="{:.2f}".format)]
    return "\n".join(lines)


def update(bundle: Bundle | str | Path, X: pd.DataFrame, y: pd.DataFrame, *, couplings: bool = True) -> Bundle:
    """Return the bundle updated with labelled patients.

    The elicited probabilities are the prior, and the patients are the data.

    Parameters
    ----------
    bundle : Bundle or path
        A bundle with probabilities, or its folder.
    X : (P, features) DataFrame
        Values -1, 0, +1 or missing. Rows are patients, and columns are features. Unknown columns are ignored. Features
        without a column or without a measured value keep their elicited probabilities.
    y : (P, entities) DataFrame
        Labels 1, 0 or missing. Rows are patients, and columns are entities. An entity without a column keeps its
        probabilities. Patients are matched by the index. A patient who is in only one of the tables is skipped.
    couplings : bool
        True to keep the elicited couplings. The update does not change couplings. docs/few_labels.md shows the effect
        of couplings.

    Returns
    -------
    Bundle : the updated bundle. Each probability has the numbers of patients `n_with` and `n_without`. The provenance
        lists the largest changes

    Raises
    ------
    BundleError : the bundle has directions alone.
    CohortError : values are not ternary or are impossible, labels are not 0 or 1, or no patient is labelled.

    Examples
    --------
    >>> import pandas as pd
    >>> from afa.model.bundle import bundle_from_frame
    >>> row = {"entity": "flu", "feature": "fever", "potential": 1.0, "p_low_with": 0.1, "p_high_with": 0.5}
    >>> bundle = bundle_from_frame(pd.DataFrame([row | {"p_low_without": 0.1, "p_high_without": 0.2}]))
    >>> X, y = pd.DataFrame({"fever": [1] * 40}), pd.DataFrame({"flu": [1] * 40})
    >>> made = update(bundle, X, y)
    >>> made.patients_behind("flu").tolist(), bool(made.how_often("flu")[0][0, 2] > 0.8)
    ([[40, 0]], True)

    """
    model = bundle_given(bundle)
    check_probabilities(model)
    values, labels = codes_of_frame(X, model), labels_of_frame(y, model)
    return update_by(model, values, labels, couplings=couplings)


def update_by(bundle: Bundle, X: pd.DataFrame, y: pd.DataFrame, *, couplings: bool = True) -> Bundle:
    """Return the bundle updated with two checked tables of numbers, and record the update in its provenance.

    Parameters
    ----------
    X, y : as in `update`, with NaN for missing values
    couplings : True to keep the couplings

    """
    labelled = set(y.index)
    patients = [name for name in X.index if name in labelled]
    values = X.reindex(index=patients, columns=list(bundle.features)).to_numpy(dtype=np.float64)
    labels = y.reindex(index=patients, columns=list(bundle.entities)).to_numpy(dtype=np.float64)
    if np.isnan(labels).all():
        found = f"no label of {len(X)} patients with values"
        step = "name the patients in both tables alike, and label at least one"
        raise CohortError(Fault("the labels", found, "at least one patient with values and a label", step))
    _check_values(bundle, patients, values)
    made = update_of(bundle, values, labels)
    said = report_of(bundle, made, labels) | ({} if couplings else {"couplings": "dropped"})
    return updated_bundle(bundle if couplings else without_couplings(bundle), made, said)


def _check_values(bundle: Bundle, patients: Sequence[str], values: Floats) -> None:
    """Raise a `CohortError` if a value is impossible, or if a patient has +1 for two members of an exclusive group."""
    faults = list[Fault]()
    for place, value in enumerate((-1, 0, 1)):
        for j in np.flatnonzero(((values == value) & ~bundle.possible[:, place]).any(axis=0)):
            who = list(itertools.compress(patients, values[:, j] == value))
            expected = " or ".join(f"{v}" for v, can in zip((-1, 0, 1), bundle.possible[j], strict=True) if can)
            step = "encode the values with the features.csv of the bundle"
            faults.append(Fault(f"feature {bundle.features[j]}", f"{value} of {first_names(who)}", expected, step))
    for name, members in bundle.exclusive:
        twice = list(itertools.compress(patients, (values[:, list(members)] == 1).sum(axis=1) > 1))
        if twice:
            found, expected = f"several members at +1 for {first_names(twice)}", "at most one"
            faults.append(Fault(f"exclusive group {name}", found, expected, "correct the values"))
    CohortError.raise_for(faults)


def without_couplings(bundle: Bundle) -> Bundle:
    """Return the bundle without its couplings."""
    nothing = np.zeros(len(bundle.packed.value), dtype=np.bool_)
    numbers = np.arange(len(bundle.entities)), np.arange(len(bundle.features))
    return replace(bundle, packed=bundle.packed.renumbered(*numbers, nothing))


def without_knowledge(bundle: Bundle) -> Bundle:
    """Return a copy of the bundle without couplings, and with equal probabilities of each feature's possible values.

    In an exclusive group, all possible states of the group have equal probabilities.
    """
    n, m = len(bundle.entities), len(bundle.features)
    rates = bundle.rates or Rates(m)
    share = np.zeros((m, 3))
    share[:] = bundle.possible / bundle.possible.sum(axis=1, keepdims=True)
    for _, members in bundle.exclusive:
        high = 1.0 / (len(members) + 1)
        share[list(members)] = [0.0, 1.0 - high, high]
    every = np.tile(share[None, :, None], (n, 1, 2, 1))
    table = None if rates.table is None else replace(rates.table, p_low=share[:, 0], p_high=share[:, 2])
    probability_rows = _rows_with_probabilities(
        np.ones((n, m), np.bool_), every, np.ones((n, m), np.bool_), np.zeros((n, m, 2), dtype=np.int64)
    )
    made = replace(rates, table=table, probability_rows=probability_rows)
    return replace(without_couplings(bundle), unary=np.zeros((n, m)), rates=made)
