"""How accuracy at full observation falls as elicitation errs: each potential's sign is wrong with some probability.

A flipped model decides two groups of patients: those drawn exactly from the unflipped entity's own class conditionals,
whose class is known, and the cohort's, by their clinical labels. It decides by the sign of its score S~(x), `raw`, as
the paper does, and by the sign of S~(x) - (log Z~_1 - log Z~_0), `calibrated`, which without flips is the best
decision there is on drawn patients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, field_validator

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine import elimination
from afa.engine.compile import in_threads
from afa.errors import InferenceError
from afa.inference.elimination import BYTES
from afa.mrf import ROUNDING, Floats, PairwiseMRF
from afa.orders import generator_of
from afa.stages.base import Section, Stage
from afa.stages.inputs import drawn_patients, labels_of
from afa.stats.accuracy import Resampled, mean_ratio
from afa.stats.resampling import interval, wilson
from afa.stats.summary import COLUMNS as SUMMARY
from afa.stats.summary import summary_rows
from afa.stats.tables import joined, rows_of

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

Flip = Annotated[float, Field(ge=0, le=0.5)]


class Settings(Section):
    """Accuracy at full observation when signs of the potentials are wrong."""

    flips: tuple[Flip, ...] = Field((0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5), min_length=2)
    """chances that a potential's sign is turned round; must begin with 0"""

    @field_validator("flips")
    @classmethod
    def _begin_with_none(cls, flips: tuple[Flip, ...]) -> tuple[Flip, ...]:
        if flips[0] != 0:
            raise ValueError("a list that begins with 0, which all others are held against")
        return flips

    replicates: int = Field(5, ge=1)
    """damaged models of each entity at each chance"""
    simulated: int = Field(200, ge=20, multiple_of=2)
    """patients drawn from each task's own model, half of each class"""


COLUMNS = {
    "calls": "population entity patient label flip decision right n cohort bundle",
    "labels": "entity patients positive missing cohort bundle",
    "left_out": "entity quantity reason cohort bundle",
    "references": "entity calibrated raw shift log_z1 log_z0 expected_sign expected_score cohort bundle",
    "replicates": "population entity flip replicate decision right n right_positive n_positive cohort bundle",
}
STAGE = Stage(
    settings=("elicitation_error",),
    section=Settings,
    figure=("Binary classification", "accuracy against wrong signs"),
    tables=COLUMNS,
    rows={"elicitation_error": "what wrong potentials cost"},
    space_mb=0.1,
)
EXPERIMENT = "elicitation_error"
DECISIONS = ("raw", "calibrated")
LAW = ("shift", "log_z1", "log_z0", "expected_sign", "expected_score")
EXACT = {"calibrated": None, "raw": "sign_of_score"}
"""Variant of the exact accuracy of each decision."""


def run(
    bundle: Bundle, cohort: Cohort, *, elicitation_error: Settings, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Decide drawn and labelled patients by models with a share of wrong signs.

    Every non-zero unary and every coupling has its sign turned with each of the chances; 0 is always done, once. Drawn
    patients are half of each class, in pairs of one patient of either class.

    Returns five tables; `right` counts a tie as one half. `calls`, by (population, entity, patient, label, flip,
    decision): `right` of `n` replicates. The population is `drawn` or `clinical`; a drawn patient is named by its pair.

    `replicates`, by (population, entity, flip, replicate, decision): `right` of `n` patients, and `right_positive` of
    `n_positive` of class 1.

    `references`, by entity: exact accuracy on drawn patients without flips, by `calibrated` (Bayes) and `raw` decision;
    `shift`, `log_z1`, `log_z0` and `expected_score` in nats, `expected_sign` (`afa.engine.elimination`).

    `labels`, by entity, of patients of the cohort; `left_out`, by (entity, quantity): what could not be done exactly,
    and the reason: the `calibrated_decision` and all of drawn patients, or the `exact_accuracy`.
    """
    replicates = range(elicitation_error.replicates)
    grid = [(0.0, 0), *((flip, r) for flip in elicitation_error.flips if flip > 0 for r in replicates)]
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    labels, names = labels_of(bundle, cohort), np.array(cohort.patients, dtype=object)
    # pairs of drawn patients, the first of each from p_1, the second from p_0
    classes = np.tile(np.array([1, 0], dtype=np.int8), elicitation_error.simulated // 2)
    pairs = np.array([f"pair {i // 2}" for i in range(len(classes))], dtype=object)
    for v, entity in enumerate(bundle.entities):
        models, known, left_out = flipped_models(bundle, entity, grid), ~np.isnan(labels[:, v]), dict[str, str]()
        groups = {"clinical": (names[known], labels[known, v].astype(np.int8), cohort.values[known])}
        shifts: Floats | None = None
        try:
            shifts = models.shifts(threads)
            groups["drawn"] = pairs, classes, drawn_patients(models.mrf, classes, EXPERIMENT, entity)
        except InferenceError as error:
            left_out["calibrated_decision"] = error.faults[0].found
        try:
            law = elimination.score_distribution(models.mrf, threads=threads)
            exact = {"calibrated": law.bayes_accuracy, "raw": law.accuracy_of_sign()}
            exact |= {name: getattr(law, name) for name in LAW}
            parts["references"].append(pd.DataFrame([{"entity": entity, **exact}]))
        except InferenceError as error:
            left_out["exact_accuracy"] = error.faults[0].found
        for population, group in groups.items():
            for name, table in _decide(models, shifts, *group).items():
                parts[name].append(table.assign(entity=entity, population=population))
        parts["left_out"].append(pd.DataFrame({"quantity": [*left_out], "reason": left_out.values(), "entity": entity}))
    counts = {"positive": (labels == 1).sum(axis=0), "missing": np.isnan(labels).sum(axis=0)}
    parts["labels"] = [pd.DataFrame({"entity": bundle.entities, "patients": len(names), **counts})]
    return {name: joined(parts[name], held.split()[:-2]) for name, held in COLUMNS.items()}


@dataclass(frozen=True)
class Flipped:
    """F models of one entity on the same graph, some of their signs turned.

    flip : (F,) probability that a sign was turned. replicate : (F,) counts the models of one probability. unary :
    (F, M). row, column (E,), coupling (F, E) : the couplings.
    """

    mrf: PairwiseMRF
    flip: Floats
    replicate: NDArray[np.int64]
    unary: Floats
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    coupling: Floats

    def model(self, i: int) -> PairwiseMRF:
        """The i-th model."""
        couplings = np.zeros((self.mrf.n_features,) * 2)
        couplings[self.row, self.column] = couplings[self.column, self.row] = self.coupling[i]
        return PairwiseMRF(self.unary[i], couplings, self.mrf.prior, self.mrf.features)

    def scores(self, values: NDArray[np.int8]) -> Floats:
        """(P, F) energies of the profiles (P, M) in each model, nats."""
        products = (values[:, self.row] * values[:, self.column]).astype(np.float64)
        return self.mrf.prior + values.astype(np.float64) @ self.unary.T + products @ self.coupling.T

    def shifts(self, threads: int | None) -> Floats:
        """(F,) log Z_1 - log Z_0 at no observation of each model, nats. Raises `InferenceError` where too dense."""
        plan = elimination.elimination_plan(self.mrf)
        nothing = np.zeros((1, self.mrf.n_features), dtype=np.int8)
        found = np.empty(len(self.flip))

        def work(first: int, last: int) -> None:
            for i in range(first, last):
                log_z = elimination.log_partitions(self.model(i), nothing.astype(bool), nothing, plan=plan, threads=1)
                found[i] = log_z[0, 0] - log_z[0, 1]

        needed = BYTES * elimination.entries_at_no_observation(plan) / 3
        in_threads(work, len(found), elimination.threads_for(needed, threads))
        return found


def flipped_models(bundle: Bundle, entity: str, grid: Sequence[tuple[float, int]]) -> Flipped:
    """The models of one entity for each (flip, replicate); their signs depend on these and the names alone."""
    mrf, (row, column, coupling) = bundle.mrf(entity), bundle.packed.of(bundle.index(entity))
    held, unary = np.flatnonzero(mrf.unary), np.zeros((len(grid), mrf.n_features))
    couplings = np.empty((len(grid), len(coupling)))
    for i, (flip, replicate) in enumerate(grid):
        uniforms = generator_of(EXPERIMENT, entity, flip, replicate).random(len(held) + len(coupling))
        signs = np.where(uniforms < flip, -1.0, 1.0)
        unary[i, held], couplings[i] = signs[: len(held)] * mrf.unary[held], signs[len(held) :] * coupling
    flips, replicates = (np.array(each) for each in zip(*grid, strict=True))
    return Flipped(mrf, flips, replicates, unary, row, column, couplings)


def _decide(
    models: Flipped,
    shifts: Floats | None,
    names: NDArray[np.object_],
    labels: NDArray[np.int8],
    values: NDArray[np.int8],
) -> dict[str, pd.DataFrame]:
    """Decisions of patients (P,), values (P, M): right over the replicates of each flip, and over those of each model.

    1 where the sign of the margin is the label, 0 where it is the other, 1/2 at a tie (decisions.md S5).
    """
    scores, tie = models.scores(values), ROUNDING * models.mrf.reach
    margins = {"raw": scores} if shifts is None else {"raw": scores, "calibrated": scores - shifts}
    flips, n_replicates = np.unique(models.flip, return_counts=True)
    positive, calls, replicates = labels == 1, [], []
    for decision, margin in margins.items():
        sign = np.where(np.abs(margin) <= tie, 0.0, np.sign(margin))
        right = (1 + np.where(positive, 1.0, -1.0)[:, None] * sign) / 2
        by_flip = np.stack([right[:, models.flip == flip].sum(axis=1) for flip in flips], axis=1)
        each = rows_of(patient=names, flip=flips).assign(decision=decision, right=by_flip.ravel())
        calls.append(each.assign(label=np.repeat(labels, len(flips)), n=np.tile(n_replicates, len(names))))
        sums = {"right": right.sum(axis=0), "n": len(names)}
        sums |= {"right_positive": right[positive].sum(axis=0), "n_positive": int(positive.sum())}
        model = {"flip": models.flip, "replicate": models.replicate, "decision": decision}
        replicates.append(pd.DataFrame(model | sums))
    return {"calls": pd.concat(calls, ignore_index=True), "replicates": pd.concat(replicates, ignore_index=True)}


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `elicitation_error` of the tables of `elicitation_error`, all entities together.

    `target` is the population. `reference` is the decision, or `exact`: there the headline is the Bayes accuracy, and
    the variant `sign_of_score` that of `raw`. The model without flips is the headline, the others are the variant
    `flip`, with their chance of a flip as level; `n` counts (patient, entity) pairs, whatever the replicates.

    Intervals: of drawn patients without flips Wilson's, on the count of draws, since next to all of them are right; of
    all others a percentile bootstrap over patients, or over pairs of drawn ones, to which with flips the deviations of
    a bootstrap over each entity's flipped models are added. `balanced_accuracy` is the mean over entities, and over
    both classes of each.

    `rate` of the quantity `exact_inside` is 1 where the exact accuracy lies in the interval of the drawn patients, and
    of `entity_exact_inside` the share of entities for which it does.
    """
    calls, replicates, labels = tables["calls"], tables["replicates"], tables["labels"]
    rows = [_exact_rows(tables["references"])]
    for population in ("drawn", "clinical"):
        for decision in DECISIONS:
            chosen, models = (
                table[(table["population"] == population) & (table["decision"] == decision)]
                for table in (calls, replicates)
            )
            if len(chosen):
                part = _decided(chosen, models, population, bootstrap)
                rows.append(part.assign(target=population, reference=decision))
    rows.append(_inside(pd.concat(rows).reindex(columns=SUMMARY), tables["references"]))
    rows.append(_constant_answers(calls, bootstrap).assign(target="clinical"))
    rows.append(_counts(labels, tables["left_out"]))
    return summary_rows("elicitation_error", [part for part in rows if len(part)])


def _decided(calls: pd.DataFrame, replicates: pd.DataFrame, population: str, bootstrap: Bootstrap) -> pd.DataFrame:
    """Accuracy by flip, and of each entity without flips, of one population and decision."""
    resampled = Resampled.of(calls["patient"].unique(), **dict(bootstrap), purpose=EXPERIMENT)
    # halves and whole numbers: sums are exact
    counts = partial(resampled.part, right="right", total="n", by="flip")
    both = calls[calls.groupby("entity")["label"].transform("nunique") == 2]
    by_class = [counts(part) for _, part in both.groupby(["entity", "label"], sort=False)]
    measures = {"accuracy": ([counts(calls)], calls)}
    if population == "clinical" and by_class:
        measures["balanced_accuracy"] = (by_class, both)
    levels = [flip or np.nan for flip in sorted(calls["flip"].unique())]
    rows = []
    for metric, (parts, of) in measures.items():
        statistics = mean_ratio(parts, resampled.weights) + _of_models(replicates, metric, bootstrap.resamples)
        low, high = interval(statistics, confidence=bootstrap.confidence)
        row = resampled.mean(parts).assign(metric=metric, level=levels, low=low, high=high)
        rows.append(row.assign(n=of.groupby("flip").size().to_numpy()))
    for entity, part in calls[calls["flip"] == 0].groupby("entity", sort=False):
        rows.append(resampled.share(part, "right", "n", by=None).assign(metric="accuracy", entity=entity))
    whole = pd.concat(rows, ignore_index=True)
    unflipped = whole["level"].isna().to_numpy()
    whole.loc[~unflipped, "variant"] = "flip"
    if population == "drawn":
        value, n = (whole.loc[unflipped, name].to_numpy(np.float64) for name in ("value", "n"))
        ends = wilson(value * n, n, confidence=bootstrap.confidence)
        whole.loc[unflipped, "low"], whole.loc[unflipped, "high"] = ends
    return whole


def _of_models(replicates: pd.DataFrame, metric: str, resamples: int) -> Floats:
    """(R, flips) by how much the metric moves when each entity's models of one flip are drawn again from themselves."""
    known = replicates[replicates["n"] > 0]
    if metric == "balanced_accuracy":
        known = known[(known["n_positive"] > 0) & (known["n_positive"] < known["n"])]
        of_others = (known["right"] - known["right_positive"]) / (known["n"] - known["n_positive"])
        share = (known["right_positive"] / known["n_positive"] + of_others) / 2
        weight = 1 / known["entity"].nunique()
    else:
        share, weight = known["right"], 1 / known.loc[known["flip"] == 0, "n"].sum()
    moves = []
    for flip, part in known.assign(share=share).groupby("flip"):
        table = part.pivot(index="entity", columns="replicate", values="share").to_numpy(np.float64)
        n_models = table.shape[1]
        generator = generator_of(EXPERIMENT, "models", flip)
        drawn = generator.multinomial(n_models, np.full(n_models, 1 / n_models), size=(resamples, len(table)))
        moves.append(weight * np.einsum("rem,em->r", drawn / n_models - 1 / n_models, table))
    return np.stack(moves, axis=1)


def _exact_rows(references: pd.DataFrame) -> pd.DataFrame:
    """Exact accuracies of both decisions without flips: their means over entities, and of each entity."""
    tables = []
    for decision in DECISIONS if len(references) else ():
        values = references[decision].to_numpy(np.float64)
        table = pd.DataFrame({"entity": [None, *references["entity"]], "value": [values.mean(), *values], "n": 1})
        table.loc[0, "n"] = len(values)
        tables.append(table.assign(variant=EXACT[decision]))
    whole = joined(tables, ["entity", "value", "n", "variant"])
    return whole.assign(metric="accuracy", target="drawn", reference="exact")


def _inside(rows: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Whether the exact accuracy lies in the interval of the drawn patients, overall and as a share of entities."""
    made = []
    for decision in DECISIONS if len(references) else ():
        exact = references.set_index("entity")[decision].astype(np.float64)
        exact[""] = exact.mean()
        chosen = (rows["metric"] == "accuracy") & (rows["target"] == "drawn") & (rows["reference"] == decision)
        found = rows[chosen & rows["level"].isna()].fillna({"entity": ""}).set_index("entity")
        held = exact.reindex(found.index).between(found["low"], found["high"])[found.index.isin(exact.index)]
        of_all = held.index == ""
        for quantity, part in (("exact_inside", held[of_all]), ("entity_exact_inside", held[~of_all])):
            if len(part):
                made.append({"quantity": quantity, "reference": decision, "value": part.mean(), "n": len(part)})
    return pd.DataFrame(made).assign(metric="rate", target="drawn")


def _counts(labels: pd.DataFrame, left_out: pd.DataFrame) -> pd.DataFrame:
    """Labels that are missing for entities that have some, entities without any, and what exact inference left out."""
    without = labels["missing"] == labels["patients"]
    rows = [
        ("missing_label", labels.loc[~without, "missing"].sum(), "clinical"),
        ("entities_without_labels", without.sum(), "clinical"),
        *((f"left_out_{name}", count, None) for name, count in left_out.groupby("quantity").size().items()),
    ]
    return pd.DataFrame(rows, columns=["quantity", "value", "target"]).assign(metric="count")


def _constant_answers(calls: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Prevalence, and accuracy of the best constant answer per entity, over all labels and for each entity."""
    known = calls[(calls["population"] == "clinical") & (calls["decision"] == "raw") & (calls["flip"] == 0)]
    if not len(known):
        return pd.DataFrame()
    resampled = Resampled.of(known["patient"].unique(), **dict(bootstrap), purpose=EXPERIMENT)
    positive = known["label"].astype(float)
    usual = positive.groupby(known["entity"]).transform("mean") >= 0.5
    tables = []
    for metric, right in (("prevalence", positive), ("majority", (positive == usual).astype(float))):
        answered = known.assign(right=right, n=1.0)
        for entity, part in ((None, answered), *answered.groupby("entity", sort=False)):
            tables.append(resampled.share(part, "right", "n", by=None).assign(metric=metric, entity=entity))
    return pd.concat(tables, ignore_index=True)
