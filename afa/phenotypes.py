"""Which sign to look for next, on published patients with rare diseases: how soon is the right disease found?

Knowledge and patients are apart: diseases are described by annotations of the Human Phenotype Ontology, patients by
what their papers report. The planner asks for signs by what they are expected to tell about the disease
(`afa.inference.hierarchy`); other orders are beside it, on the same patients and the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from afa.errors import CohortError, Fault
from afa.formats.hpo import DiseaseTerms
from afa.formats.ontology import Ontology
from afa.inference.answers import Answers
from afa.inference.hierarchy import Hierarchy
from afa.mrf import Floats
from afa.stats.resampling import ratio_interval

COLUMNS = ("patient", "pmid", "disease_id", "observed", "excluded")
LATER = 26_720_000
"""PubMed numbers above this are later than the annotations of 2015."""
ORDERS = ("planner", "random", "information_content", "most_frequent", "paper")
ROUNDS = (0, 1, 2, 3, 5, 8, 12, 20)
KEYS = ["patient", "paper", "questions", "order"]


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


def rank_of(score: Floats, disease: int) -> float:
    """Rank of a disease, 1 the best; those of equal score share the middle of their ranks."""
    at = score[disease]
    return 1.0 + float((score > at).sum()) + float((score == at).sum() - 1) / 2


def likelihood_ratio_score(known: Hierarchy, present: Sequence[int], absent: Sequence[int]) -> Floats:
    """(N,) log-likelihood ratios summed over signs one by one, as LIRICAL does; the knowledge is the same.

    A sign that a disease is annotated with, or that an annotated one implies, has its frequency. A sign below an
    annotated one shares that one's frequency by the background; any other has the background, a ratio of 1. An absent
    sign has (1 - P) / (1 - background). Robinson et al., Am J Hum Genet 107 (2020) 403.
    """
    score = np.zeros(len(known.entities))
    starts, entities, p = known.columns
    for signs, is_there in ((present, True), (absent, False)):
        for sign in signs:
            usual = known.background[sign]
            own = np.full(len(known.entities), usual)
            for above in sorted(known.ancestors[sign], key=lambda a: -known.background[a]):  # the nearest one last
                at = slice(*starts[above : above + 2])
                own[entities[at]] = p[at] * usual / known.background[above]
            at = slice(*starts[sign : sign + 2])
            own[entities[at]] = p[at]
            own = np.clip(own, known.floor, 1.0 - known.floor)
            score += np.log(own / usual) if is_there else np.log((1.0 - own) / (1.0 - usual))
    return score


def shuffled(known: Hierarchy, seed: int) -> Hierarchy:
    """The same diseases with one another's annotations."""
    order = np.random.default_rng(seed).permutation(len(known.entities))
    return Hierarchy(
        known.entities, known.features, known.probabilities[order], known.background, known.parents, known.floor
    )


def walk(
    known: Hierarchy, patient: Patient, signs: Sequence[int], order: str, *, seed: int = 0, most: int | None = None
) -> list[float]:
    """Rank of the patient's disease before the first question and after each, until none is left or `most` are asked.

    A sign that is implied is never asked for. Those that the patient's paper does not report are answered *not noted*:
    the question counts, and nothing moves.
    """
    choose = _choice(known, signs, order, np.random.default_rng([seed, *patient.name.encode()]))
    there, missing = set(patient.present), set(patient.absent)
    implied = there.union(*(known.ancestors[at].tolist() for at in there))
    ruled_out = missing.union(*(known.descendants[at].tolist() for at in missing))
    present, absent = list[int](), list[int]()
    answers, left = Answers.of(known), list(signs)
    ranks = [rank_of(answers.posterior, patient.disease)]
    while (left := [sign for sign in left if answers.open[sign]]) and (most is None or len(ranks) <= most):
        sign = choose(answers, left)
        left.remove(sign)
        ranks.append(ranks[-1])
        if sign in implied or sign in ruled_out:
            (present if sign in implied else absent).append(sign)
            answers = Answers.of(known, present, absent)
            ranks[-1] = rank_of(answers.posterior, patient.disease)
    return ranks


def _choice(
    known: Hierarchy, signs: Sequence[int], order: str, generator: np.random.Generator
) -> Callable[[Answers, list[int]], int]:
    """What picks the next sign of those that are left."""
    if order == "planner":
        return lambda answers, left: answers.most_informative(left)
    if order == "random":
        drawn = generator.permutation(len(signs))
        place = {sign: int(drawn[i]) for i, sign in enumerate(signs)}
        return lambda _, left: min(left, key=place.__getitem__)
    if order == "information_content":
        return lambda _, left: min(left, key=lambda sign: known.background[sign])
    if order == "most_frequent":
        return lambda _, left: max(left, key=lambda sign: known.background[sign])
    return lambda _, left: left[0]


def at_full_observation(known: Hierarchy, patients: Sequence[Patient], seed: int = 0) -> pd.DataFrame:
    """Rank of each patient's disease once all that the paper reports is known, a row a patient, signs and scorer.

    Returns
    -------
    DataFrame : patient, paper, signs (`all`, or `present` where absent ones are left out), scorer (`posterior`,
        `likelihood_ratio`, or `shuffled`: the posterior by the annotations of another disease), rank

    """
    wrong, rows = shuffled(known, seed), []
    for each in patients:
        for signs, absent in (("all", each.absent), ("present", ())):
            scores = {
                "posterior": Answers.of(known, each.present, absent).log_likelihood,
                "likelihood_ratio": likelihood_ratio_score(known, each.present, absent),
                "shuffled": Answers.of(wrong, each.present, absent).log_likelihood,
            }
            rows += [(each.name, each.paper, signs, name, rank_of(s, each.disease)) for name, s in scores.items()]
    return pd.DataFrame(rows, columns=["patient", "paper", "signs", "scorer", "rank"])


def acquisition(
    known: Hierarchy, patients: Sequence[Patient], *, questions: str, most: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Rank of each patient's disease after each question, a row a patient, order and round.

    Parameters
    ----------
    questions : which signs can be asked for: `reported` by the paper, `present` ones alone, or `every` sign that is
        known, where one that the paper does not report is answered *not noted*
    most : questions at most; until nothing is left unless given

    Returns
    -------
    DataFrame : patient, paper, questions, order, asked, rank

    """
    every, parts = range(len(known.features)), []
    for each in patients:
        reported = (*each.present, *(each.absent if questions == "reported" else ()))
        signs = every if questions == "every" else reported
        for order in ORDERS:
            if questions == "every" and order == "paper":
                continue
            ranks = walk(known, each, signs, order, seed=seed, most=most)
            rows = {"patient": each.name, "paper": each.paper, "questions": questions, "order": order}
            parts.append(pd.DataFrame({**rows, "asked": range(len(ranks)), "rank": ranks}))
    return pd.concat(parts, ignore_index=True)


def until_final(walked: pd.DataFrame) -> pd.DataFrame:
    """Questions until the rank is within 10 % of the final one and stays there; a row a patient and order."""
    last = walked.groupby(KEYS)["rank"].transform("last")
    away = walked["asked"].where(walked["rank"] > 1.1 * last, -1) + 1
    return away.groupby([walked[key] for key in KEYS]).max().rename("asked").reset_index()


def over_papers(table: pd.DataFrame, value: str, by: Sequence[str], *, resamples: int = 1_000) -> pd.DataFrame:
    """Mean over patients with a 95 % interval: papers are resampled, since patients of one paper are alike."""
    papers = sorted(table["paper"].unique())
    place = pd.Series(range(len(papers)), index=papers)
    rows = []
    for key, part in table.groupby(list(by), sort=False):
        at = place[part["paper"]].to_numpy()
        total, count = (
            np.bincount(at, weights=weights, minlength=len(papers)).astype(np.float64)[:, None]
            for weights in (part[value], np.ones(len(part)))
        )
        low, high = ratio_interval(total, count, resamples=resamples, confidence=0.95, purpose="papers")
        rows.append((*key, float(total.sum() / count.sum()), low[0], high[0], len(part)))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "patients"])


def summary(full: pd.DataFrame, walked: pd.DataFrame) -> pd.DataFrame:
    """What the two tables say, one fact a row: what, signs or questions, of (scorer or order), asked, mean, low, high.

    `first` and `ten` are shares of patients; `log_rank` is the mean logarithm; `until_final` counts questions.
    """
    parts = []
    for what, share in (("first", full["rank"] < 1.5), ("ten", full["rank"] <= 10)):
        found = over_papers(full.assign(share=share.astype(float)), "share", ["signs", "scorer"])
        parts.append(found.rename(columns={"signs": "questions", "scorer": "of"}).assign(what=what))
    lasting = walked.pivot_table(index=KEYS, columns="asked", values="rank").ffill(axis=1)
    shown = lasting[[t for t in ROUNDS if t in lasting]].melt(ignore_index=False, value_name="rank").reset_index()
    shown["log_rank"] = np.log(shown["rank"])
    found = over_papers(shown, "log_rank", ["questions", "order", "asked"])
    parts.append(found.rename(columns={"order": "of"}).assign(what="log_rank"))
    found = over_papers(until_final(walked), "asked", ["questions", "order"])
    parts.append(found.rename(columns={"order": "of"}).assign(what="until_final"))
    columns = ["what", "questions", "of", "asked", "mean", "low", "high", "patients"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)
