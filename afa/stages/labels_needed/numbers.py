"""Classifiers against zero-shot scores by numbers of labelled patients: both on the same patients, paired in resamples.

A patient is resampled with all answers about it, of every repeat in which it was told and not labelled. AUROC is taken
over pairs of patients who were told in the same repeat, by the same classifier. Classifiers of shuffled labels are
resampled instead: where one of them comes to hangs on the shuffle far more than on who is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.orders import generator_of
from afa.stages.labels.tasks import GREEDY, RANDOM
from afa.stages.labels_needed.classifiers import COUPLINGS, METHODS
from afa.stats.accuracy import Resampled, share_of
from afa.stats.resampling import interval, with_interval
from afa.stats.summary import summary_rows
from afa.stats.tables import axis_among, rows_by

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

ZERO_SHOT = "posterior"
"""Method of the zero-shot score: less its value at no observation, as in the table `labels`."""
RANKED, DECIDED = "auroc", "balanced_accuracy"
EXPLICIT = "explicit"
"""Method of the zero-shot score by how often, where the bundle says it; in the summary a coupling of `ZERO_SHOT`."""

Mask = NDArray[np.bool_]


class Key(NamedTuple):
    """What a curve over sizes is of; `permuted` where labels were shuffled."""

    metric: str
    reference: str
    allocation: str
    t: int
    method: str
    permuted: bool


Found = dict[Key, dict[int, dict[str, Floats]]]
"""By key, size and label: the value on all patients, then in every resample, (R + 1,)."""


@dataclass(frozen=True)
class Told:
    """Who of P patients was told in which of K repeats, with weights of the patients (R + 1, P)."""

    tested: Mask
    positive: Mask
    weights: Floats

    def auroc(self, scores: Floats) -> Floats:
        """(R + 1,) share of the pairs of one repeat that scores (K, P) put in order, ties one half; NaN without any."""
        one, other = scores[:, self.positive, None], scores[:, None, ~self.positive]
        higher = np.where(self._together, (one > other) + 0.5 * (one == other), 0.0).sum(axis=0)
        return share_of(self._weighted(higher), self._pairs)

    def balanced_accuracy(self, scores: Floats) -> Floats:
        """(R + 1,) mean over classes of the share of signs of scores (K, P) that are right, 0 being half right.

        A mean over repeats, of those in which both classes are drawn; NaN without any.
        """
        right = 0.5 + 0.5 * np.sign(scores) * np.where(self.positive, 1.0, -1.0)
        earned = np.where(self.tested, right, 0.0)
        both = np.ones((len(self.weights), len(scores)), dtype=np.bool_)
        shares = np.zeros(both.shape)
        for chosen, weights, total in self._classes:
            both &= total > 0
            shares += (weights @ earned[:, chosen].T) / np.maximum(total, 1) / 2
        return share_of((shares * both).sum(axis=1), both.sum(axis=1, dtype=np.float64))

    @cached_property
    def repeats(self) -> list[Told]:
        """Each repeat by itself, with all patients counted once."""
        plain = np.ones((1, len(self.positive)))
        return [Told(self.tested[[k]], self.positive, plain) for k in range(len(self.tested))]

    @cached_property
    def _classes(self) -> list[tuple[Mask, Floats, Floats]]:
        """Who is positive and who negative; with their weights (R + 1, C), and those of the told, (R + 1, K)."""
        chosen = [(mask, self.weights[:, mask]) for mask in (self.positive, ~self.positive)]
        return [(mask, weights, weights @ self.tested[:, mask].T.astype(np.float64)) for mask, weights in chosen]

    @cached_property
    def _together(self) -> Mask:
        return self.tested[:, self.positive, None] & self.tested[:, None, ~self.positive]

    @cached_property
    def _pairs(self) -> Floats:
        return self._weighted(self._together.sum(axis=0))

    def _weighted(self, pairs: Floats | NDArray[np.int64]) -> Floats:
        (_, of_positive, _), (_, of_negative, _) = self._classes
        summed: Floats = ((of_positive @ pairs) * of_negative).sum(axis=1)
        return summed


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `labels_needed` of the tables of the stage `labels_needed`.

    `count` of the quantity `auroc` is the number of labelled patients from which on a classifier's mean AUROC is above
    that of the zero-shot score, on the same patients; empty where it is not even with the most. `balanced_accuracy` is
    the other quantity, of `gap` too; `level` is the number of labelled patients. Variants: `clearly`, from which on the
    interval of the difference is above 0; `permuted`, with shuffled labels. Rows with an `entity` are of one label.
    """
    patients = list(tables["zero_shot"]["patient"].unique())
    rows = [_counts(tables)]
    if len(tables["predictions"]):
        resampled = Resampled.of(patients, **dict(bootstrap), purpose="labels_needed")
        found, cases = _found(tables, patients, resampled.every)
        rows += [_curves(found, cases, bootstrap.confidence), _overtaken(found, bootstrap.confidence)]
    table = pd.concat(rows, ignore_index=True)
    table["gain"] = table["allocation"].map({GREEDY: "cmi"}) if "allocation" in table else None
    return summary_rows("labels_needed", table.assign(target="clinical"))


def _counts(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Labels by how far they were used."""
    splits, left_out = tables["splits"], tables["left_out"]
    not_used, sizes = int(left_out["size"].isna().sum()), sorted({*splits["size"], *left_out["size"].dropna()})
    counts = [("labels", None, splits["entity"].nunique()), ("labels_not_used", None, not_used)]
    counts += [("labels", size, splits.loc[splits["size"] == size, "entity"].nunique()) for size in sizes]
    return pd.DataFrame(counts, columns=["quantity", "level", "value"]).assign(metric="count")


def _found(
    tables: Mapping[str, pd.DataFrame], patients: Sequence[str], weights: Floats
) -> tuple[Found, dict[tuple[int, bool], dict[str, int]]]:
    """Every metric by key, size and label; and the answers behind it, by size and by whether labels were shuffled."""
    found: Found = {}
    cases: dict[tuple[int, bool], dict[str, int]] = {}
    zero_shot = ZeroShot.of(tables["zero_shot"], patients)
    splits = tables["splits"].sort_values("repeat").groupby(["entity", "size"])["seed"]
    seeds = {names: list(column) for names, column in splits}
    for (reference, entity, size, permuted), trained in _runs(tables["predictions"], patients).items():
        known, positive = zero_shot.labels[reference, entity]
        tested = ~np.isnan(next(iter(trained.values())))
        rivals = {} if permuted else zero_shot.runs(reference, entity, seeds[entity, size], trained)
        cases.setdefault((size, permuted), {})[entity] = int(tested.sum())
        told = Told(tested[:, known], positive, weights[:, known])
        chosen = generator_of("labels needed", "chance", entity, size).integers(
            len(tested), size=(len(weights) - 1, len(seeds[entity, size]))
        )
        for (method, allocation, t), scores in (trained | rivals).items():
            for metric, measured in ((RANKED, Told.auroc), (DECIDED, Told.balanced_accuracy)):
                key = Key(metric, reference, allocation, t, method, permuted)
                whole = scores[:, known]
                values = _by_chance(told, whole, measured, chosen) if permuted else measured(told, whole)
                found.setdefault(key, {}).setdefault(size, {})[entity] = values
    return found, cases


def _by_chance(
    told: Told, scores: Floats, measured: Callable[[Told, Floats], Floats], chosen: NDArray[np.int64]
) -> Floats:
    """(R + 1,) the mean over shuffles, and that over the `chosen` (R, K) of them, as many as there are draws."""
    each = np.array([measured(one, scores[[k]])[0] for k, one in enumerate(told.repeats)])
    return np.append(each.mean(), each[chosen].mean(axis=1))


Runs = dict[tuple[str, str, int], Floats]
"""Log-odds (K, P) by (method, allocation, t); NaN for who was labelled, or whose label is not known."""


def _runs(predictions: pd.DataFrame, patients: Sequence[str]) -> dict[tuple[str, str, int, bool], Runs]:
    """By reference, entity, size, and whether labels were shuffled; all of it sorted."""
    place, repeat = axis_among(predictions["patient"], patients).codes, predictions["repeat"].to_numpy()
    log_odds = predictions["log_odds"].to_numpy()
    columns = ["reference", "entity", "size", "permuted", "method", "allocation", "t"]
    found: dict[tuple[str, str, int, bool], Runs] = {}
    for key, rows in sorted(rows_by(predictions, columns).items(), key=lambda item: item[0]):
        reference, entity, size, permuted, *run = key
        scores = np.full((repeat[rows].max() + 1, len(patients)), np.nan)
        scores[repeat[rows], place[rows]] = log_odds[rows]
        found.setdefault((reference, entity, int(size), bool(permuted)), {})[tuple(run)] = scores
    return found


@dataclass(frozen=True)
class ZeroShot:
    """Scores (P,) by reference, entity, method, allocation, t and seed, -1 where there is none.

    labels : by reference and entity, places of the patients with a label and whose is positive.
    """

    scores: Mapping[tuple[str, str, str, str, int, int], Floats]
    labels: Mapping[tuple[str, str], tuple[NDArray[np.int64], Mask]]

    @classmethod
    def of(cls, table: pd.DataFrame, patients: Sequence[str]) -> ZeroShot:
        place, calibrated = axis_among(table["patient"], patients).codes, table["calibrated"].to_numpy()
        scores, labels = {}, {}
        columns = ["reference", "entity", "coupling", "allocation", "t", "seed"]
        for (reference, entity, coupling, *run), rows in rows_by(table, columns).items():
            key = reference, entity, EXPLICIT if coupling == EXPLICIT else ZERO_SHOT, *run
            scores[key] = np.full(len(patients), np.nan)
            scores[key][place[rows]] = calibrated[rows]
            labels[key[:2]] = place[rows], table["label"].to_numpy()[rows] == 1
        return cls(scores, labels)

    def runs(self, reference: str, entity: str, seeds: Sequence[int], like: Runs) -> Runs:
        """The scores at the states that classifiers have, along the random order of each repeat."""
        methods = dict.fromkeys(method for name, of, method, *_ in self.scores if (name, of) == (reference, entity))
        states = dict.fromkeys((allocation, t) for _, allocation, t in like)
        return {
            (method, allocation, t): np.stack(
                [
                    self.scores[reference, entity, method, allocation, t, seed if allocation == RANDOM else -1]
                    for seed in seeds
                ]
            )
            for method, (allocation, t) in product(methods, states)
        }


def _curves(found: Found, cases: Mapping[tuple[int, bool], Mapping[str, int]], confidence: float) -> pd.DataFrame:
    """Every metric by number of labelled patients, as a mean over labels and by label; and what classifiers gain."""
    lines: list[dict[str, object]] = []
    columns: list[Floats] = []
    for key, by_size in found.items():
        gaps = _gaps(found, key) if key.method in METHODS and not key.permuted else {}
        for size, values in by_size.items():
            n = cases[size, key.permuted]
            shown: dict[tuple[str, str | None], dict[str, Floats]] = {(key.metric, None): values}
            if gaps:
                shown["gap", key.metric] = gaps[size]
            for (metric, quantity), by_label in shown.items():
                of_all = {**_of(key), "metric": metric, "quantity": quantity, "entity": None, "level": size}
                lines.append({**of_all, "n": sum(n.values())})
                columns.append(_mean(by_label))
                if key.metric == RANKED and not key.permuted:
                    for name, value in by_label.items():
                        lines.append({**of_all, "entity": name, "n": n[name]})
                        columns.append(value)
    return pd.DataFrame(lines).join(with_interval(np.column_stack(columns), confidence=confidence))


def _of(key: Key) -> dict[str, object]:
    """What the summary calls a key; a classifier has no couplings."""
    coupling = {ZERO_SHOT: COUPLINGS[key.reference], EXPLICIT: EXPLICIT}.get(key.method)
    method = ZERO_SHOT if key.method == EXPLICIT else key.method
    names = {"method": method, "reference": key.reference, "coupling": coupling}
    return {**names, "variant": "permuted" if key.permuted else None, "allocation": key.allocation, "t": key.t}


def _gaps(found: Found, key: Key) -> dict[int, dict[str, Floats]]:
    """By size and label, what a classifier has more than the zero-shot score at the same state.

    That is the score by how often where there is no other.
    """
    rival = found.get(key._replace(method=ZERO_SHOT)) or found[key._replace(method=EXPLICIT)]
    return {
        size: {name: value - rival[size][name] for name, value in values.items()} for size, values in found[key].items()
    }


def _mean(by_label: Mapping[str, Floats]) -> Floats:
    mean: Floats = np.mean(list(by_label.values()), axis=0)
    return mean


def _overtaken(found: Found, confidence: float) -> pd.DataFrame:
    """From how many labelled patients on a classifier is ahead; the interval is of that number over resamples."""
    tail = (1 - confidence) / 2
    lines: list[dict[str, object]] = []
    for key in found:
        if key.method not in METHODS or key.permuted or key.t == 0:
            continue
        gaps = {size: _mean(by_label) for size, by_label in sorted(_gaps(found, key).items())}
        sizes, every = list(gaps), np.array(list(gaps.values()))
        first = _first_ahead(every > 0, sizes)
        clear = _first_ahead(interval(every[:, 1:].T, confidence=confidence)[0][:, None] > 0, sizes)
        low, high = np.quantile(first[1:], [tail, 1 - tail], method="inverted_cdf")
        for variant, numbers in ((None, (first[0], low, high)), ("clearly", (clear[0], np.nan, np.nan))):
            value, least, most = (number if np.isfinite(number) else None for number in numbers)
            of = {**_of(key), "metric": "count", "quantity": key.metric, "variant": variant}
            lines.append({**of, "value": value, "low": least, "high": most, "n": max(sizes)})
    return pd.DataFrame(lines)


def _first_ahead(ahead: Mask, sizes: Sequence[int]) -> Floats:
    """(R,) the smallest size from which on all rows of `ahead` (S, R) hold; infinite where the last does not."""
    always = np.logical_and.accumulate(ahead[::-1], axis=0)[::-1]
    return np.where(always.any(axis=0), np.array(sizes, dtype=np.float64)[always.argmax(axis=0)], np.inf)
