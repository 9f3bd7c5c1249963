"""Which sign to look for next, on published patients with rare diseases: how soon is the right disease found?

Knowledge and patients are apart: diseases are described by annotations of the Human Phenotype Ontology, patients by
what their papers report. The planner asks for signs by what they are expected to tell about the disease
(`afa.inference.hierarchy`); other orders are beside it, on the same patients and the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from afa.formats.patients import Patient
from afa.inference.answers import Answers
from afa.inference.hierarchy import Hierarchy
from afa.mrf import Floats
from afa.stats.accuracy import Resampled

LATER = 26_720_000
"""PubMed numbers above this are later than the annotations of 2015."""
ORDERS = ("planner", "random", "information_content", "most_frequent", "paper")
ALL_NOTED = "every, else absent"
ROUNDS = (0, 1, 2, 3, 5, 8, 12, 20)
KEYS = ["patient", "paper", "questions", "order"]
FACTS = {"signs": "questions", "scorer": "of", "order": "of"}
"""Columns of both tables by what the summary calls them."""


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
    _, starts, entities, p, _, _ = known.spoken
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


def frequency_score(known: Hierarchy, present: Sequence[int], absent: Sequence[int]) -> Floats:
    """(N,) how often a disease has the present signs, summed, less how often it has the absent ones."""
    _, starts, entities, p, _, _ = known.spoken
    score = np.zeros(len(known.entities))
    for signs, weight in ((present, 1.0), (absent, -1.0)):
        for sign in signs:
            at = slice(*starts[sign : sign + 2])
            score[entities[at]] += weight * p[at]
    return score


def walk(
    known: Hierarchy,
    patient: Patient,
    signs: Sequence[int],
    order: str,
    *,
    seed: int = 0,
    most: int | None = None,
    noted: bool = True,
) -> list[float]:
    """Rank of the patient's disease before the first question and after each, until none is left or `most` are asked.

    A sign that is implied is never asked for. Those that the patient's paper does not report are answered *not noted*:
    the question counts, and nothing moves. Unless `noted`, they are answered *absent*.
    """
    generator = np.random.default_rng([seed, *patient.name.encode()])
    drawn = dict(zip(signs, generator.permutation(len(signs)).tolist(), strict=True))
    frequency = known.background.__getitem__
    choose: Callable[[Answers, list[int]], int] = {
        "planner": Answers.most_informative,
        "random": lambda _, left: min(left, key=drawn.__getitem__),
        "information_content": lambda _, left: min(left, key=frequency),
        "most_frequent": lambda _, left: max(left, key=frequency),
        "paper": lambda _, left: left[0],
    }[order]
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
        if sign in implied or sign in ruled_out or not noted:
            (present if sign in implied else absent).append(sign)
            answers = Answers.of(known, present, absent)
            ranks[-1] = rank_of(answers.posterior, patient.disease)
    return ranks


def at_full_observation(known: Hierarchy, patients: Sequence[Patient], seed: int = 0) -> pd.DataFrame:
    """Rank of each patient's disease once all that the paper reports is known, a row a patient, signs and scorer.

    Returns
    -------
    DataFrame : patient, paper, n_signs present, signs (`all`, or `present` where absent ones are left out), scorer
        (`posterior`, `likelihood_ratio`, `frequency`, or `shuffled`: the posterior by the annotations of another
        disease), rank

    """
    others = np.random.default_rng(seed).permutation(len(known.entities))
    wrong, rows = replace(known, probabilities=known.probabilities[others], prior=None), []
    for each in patients:
        for signs, absent in (("all", each.absent), ("present", ())):
            scores = {
                "posterior": Answers.of(known, each.present, absent).log_likelihood,
                "likelihood_ratio": likelihood_ratio_score(known, each.present, absent),
                "frequency": frequency_score(known, each.present, absent),
                "shuffled": Answers.of(wrong, each.present, absent).log_likelihood,
            }
            keys = each.name, each.paper, len(each.present), signs
            rows += [(*keys, name, rank_of(score, each.disease)) for name, score in scores.items()]
    return pd.DataFrame(rows, columns=["patient", "paper", "n_signs", "signs", "scorer", "rank"])


def acquisition(
    known: Hierarchy, patients: Sequence[Patient], *, questions: str, most: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Rank of each patient's disease after each question, a row a patient, order and round.

    Parameters
    ----------
    questions : which signs can be asked for: `reported` by the paper, `present` ones alone, or `every` sign that is
        known, where one that the paper does not report is answered *not noted*, or as `every, else absent` *absent*
    most : questions at most; until nothing is left unless given

    Returns
    -------
    DataFrame : patient, paper, questions, order, asked, rank

    """
    every, parts = range(len(known.features)), []
    for each in patients:
        reported = (*each.present, *(each.absent if questions == "reported" else ()))
        signs = every if questions.startswith("every") else reported
        for order in ORDERS:
            if signs is every and order == "paper":
                continue
            ranks = walk(known, each, signs, order, seed=seed, most=most, noted=questions != ALL_NOTED)
            rows = {"patient": each.name, "paper": each.paper, "questions": questions, "order": order}
            parts.append(pd.DataFrame({**rows, "asked": range(len(ranks)), "rank": ranks}))
    return pd.concat(parts, ignore_index=True)


def until_final(walked: pd.DataFrame) -> pd.DataFrame:
    """Questions until the rank is within 10 % of the final one and stays there; a row a patient and order."""
    last = walked.groupby(KEYS)["rank"].transform("last")
    away = walked["asked"].where(walked["rank"] > 1.1 * last, -1) + 1
    return away.groupby([walked[key] for key in KEYS]).max().rename("asked").reset_index()


def over_papers(table: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Mean over patients with a 95 % interval: papers are resampled, since patients of one paper are alike.

    Where the table has a column `weight`, the mean is of `value` by unit of it: a ratio of sums.
    """
    papers = sorted(table["paper"].unique())
    place = pd.Series(range(len(papers)), index=papers)
    resampled = Resampled.of(papers, resamples=1_000, confidence=0.95, purpose="papers")
    rows = []
    for key, part in table.groupby(list(by), sort=False):
        at = place[part["paper"]].to_numpy()
        total, count = (
            np.bincount(at, weights=weights, minlength=len(papers)).astype(np.float64)[:, None]
            for weights in (part[value], part["weight"] if "weight" in part else np.ones(len(part)))
        )
        mean = resampled.mean([(total, count)]).iloc[0]
        rows.append((*key, float(total.sum() / count.sum()), mean["low"], mean["high"], len(part)))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "patients"])


def subsets(full: pd.DataFrame, stated: Collection[str]) -> dict[str, pd.Series]:
    """Rows of a table by patients: all, of later papers, and of those by frequencies and by number of signs.

    stated : patients whose disease has a frequency that was stated
    """
    number = full["paper"].str.extract(r"^PMID:(\d+)$")[0].astype(float)
    later = number > LATER
    parts = {"all": later | True, "earlier": ~later, "later": later}
    parts["later, with frequencies"] = later & full["patient"].isin(stated)
    for name, least, most in (("1 to 4 signs", 1, 4), ("5 to 9 signs", 5, 9), ("10 or more signs", 10, 10**6)):
        parts[f"later, {name}"] = later & full["n_signs"].between(least, most)
    return parts


def summary(full: pd.DataFrame, walked: pd.DataFrame, stated: Collection[str] = ()) -> pd.DataFrame:
    """What the two tables say, one fact a row: what, subset, questions, of (scorer or order), asked, mean, low, high.

    `first`, `five` and `ten` are shares of patients; `median` is of ranks, without an interval; `log_rank` is the mean
    logarithm; `until_final` counts questions. `A less B` and `A / B` compare the same patients.
    """
    columns = ["what", "subset", "questions", "of", "asked", "mean", "low", "high", "patients"]
    parts = []
    for subset, rows in subsets(full, stated).items():
        chosen = full[rows]
        if len(chosen):
            parts += [part.assign(subset=subset) for part in _at_full_observation(chosen)]
    parts += [part.assign(subset="walked") for part in _along_the_way(walked)]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)


def _at_full_observation(full: pd.DataFrame) -> Iterator[pd.DataFrame]:
    by = ["signs", "scorer"]
    for what, share in (("first", full["rank"] < 1.5), ("five", full["rank"] <= 5), ("ten", full["rank"] <= 10)):
        shares = full.assign(share=share.astype(float))
        yield over_papers(shares, "share", by).rename(columns=FACTS).assign(what=what)
        yield _less(shares, "share", ["patient", "paper", "signs"], "scorer", "posterior", ("likelihood_ratio",), what)
    medians = full.groupby(by)["rank"].agg(["median", "size"]).reset_index()
    yield medians.rename(columns=FACTS | {"median": "mean", "size": "patients"}).assign(what="median")


def _along_the_way(walked: pd.DataFrame) -> Iterator[pd.DataFrame]:
    others = tuple(order for order in ORDERS if order != "planner")
    lasting = walked.pivot_table(index=KEYS, columns="asked", values="rank").ffill(axis=1)
    shown = lasting[[t for t in ROUNDS if t in lasting]].melt(ignore_index=False, value_name="rank").reset_index()
    shown["log_rank"] = np.log(shown["rank"])
    yield over_papers(shown, "log_rank", ["questions", "order", "asked"]).rename(columns=FACTS).assign(what="log_rank")
    same = ["patient", "paper", "questions", "asked"]
    yield _less(shown, "log_rank", same, "order", "planner", others, "log_rank")
    needed = until_final(walked)
    yield over_papers(needed, "asked", ["questions", "order"]).rename(columns=FACTS).assign(what="until_final")
    for other in others:
        both = needed[needed["order"] == "planner"].merge(needed[needed["order"] == other], on=KEYS[:3])
        both = both.rename(columns={"asked_x": "planner", "asked_y": "weight"})
        if len(both):
            ratio = over_papers(both, "planner", ["questions"])
            yield ratio.assign(what="until_final", of=f"planner / {other}")


def _less(
    table: pd.DataFrame, value: str, same: list[str], by: str, one: str, others: Sequence[str], what: str
) -> pd.DataFrame:
    """Of the same patients, the value of one scorer or order less that of others."""
    parts = []
    wide = table.pivot_table(index=same, columns=by, values=value)
    for other in others:
        if other in wide:
            lead = (wide[one] - wide[other]).rename("lead").dropna().reset_index()
            found = over_papers(lead, "lead", [name for name in same if name not in ("patient", "paper")])
            parts.append(found.rename(columns=FACTS).assign(what=what, of=f"{one} less {other}"))
    return pd.concat(parts, ignore_index=True)
