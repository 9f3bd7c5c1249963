"""What an elicitation would still cost, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

import pandas as pd

from afa.elicit.account import Prices, Used
from afa.elicit.answered import genes_named
from afa.elicit.live import Asking
from afa.elicit.questions import PAIRWISE, UNARY, pair_questions, unary_questions
from afa.elicit.stages import consensus_stage
from afa.elicit.store import Entry, Question
from afa.elicit.study import PAIR_RUN
from afa.elicit.usable import usable_genes

OUTLOOK_COLUMNS = ["prompt", "questions", "calls", "prompt_tokens", "answer_tokens", "money", "how"]
ACCOUNT_COLUMNS = [
    "prompt",
    "run",
    "model",
    "outcome",
    "attempts",
    "prompt_tokens",
    "answer_tokens",
    "uncounted",
    "money",
]
EXACT, MOST = "as counted", "at most: the genes are not known yet"


def outlook(asking: Asking, *, min_agree: int) -> pd.DataFrame:
    """What asking for a study still uses at most, a row per prompt, with the columns of `OUTLOOK_COLUMNS`.

    calls : one for each question without an answer; those that must be repeated come on top. Before all genes are
    named, the number of pairs is the largest that the study allows.
    """
    study = asking.study
    unary = unary_questions(study)
    rows = [_row(UNARY, len(unary), asking.left(unary), EXACT)]
    known = asking.recorded(unary)
    if all(entry is not None and entry.outcome == "answered" for entry in known):
        named, _ = usable_genes(genes_named(known), most_genes=study.settings.most_genes)
        kept = consensus_stage(study, named, min_agree=min_agree)["kept"]
        pairs = pair_questions(study, kept)
        rows.append(_row(PAIRWISE, len(pairs), asking.left(pairs, kept), EXACT))
    else:
        rows.append(_most_pairs(asking, min_agree))
    return pd.DataFrame(rows, columns=OUTLOOK_COLUMNS)


def account_table(entries: Iterable[Entry], prices: Prices) -> pd.DataFrame:
    """What a record has used, a row per prompt, run, model and outcome, with the columns of `ACCOUNT_COLUMNS`.

    uncounted : attempts of which the endpoint told no tokens.
    """
    rows = [
        (
            entry.question.prompt,
            entry.question.run,
            entry.model,
            entry.outcome,
            1,
            *((0, 0, 1) if isinstance(entry.tokens, str) else (*entry.tokens, 0)),
        )
        for entry in entries
    ]
    table = pd.DataFrame(rows, columns=ACCOUNT_COLUMNS[:-1])
    table = table.groupby(ACCOUNT_COLUMNS[:4], sort=True, as_index=False).sum()
    spent = [prices.of(p, a) for p, a in zip(table["prompt_tokens"], table["answer_tokens"], strict=True)]
    return table.assign(money=spent)


def _most_pairs(asking: Asking, min_agree: int) -> tuple[object, ...]:
    """Where every voter names as many genes as it may, and every gene is named by no more than must agree."""
    study = asking.study
    settings = study.settings
    survivors = len(settings.voters) * settings.most_genes // min_agree
    pairs = len(study.names) * comb(survivors, 2)
    longest = max(study.names, key=lambda name: len(name) + len(study.definition(name)))
    genes = {"gene1": "A" * 10, "gene2": "B" * 10}
    kept = pd.DataFrame({"phenotype": [longest], "gene": [genes["gene1"]], "potential": [-1]})
    one = asking.left([Question(PAIRWISE, {"phenotype": longest, **genes}, PAIR_RUN)], kept)
    used = Used(pairs, one.prompt_tokens * pairs, one.answer_tokens * pairs, one.money * pairs)
    return _row(PAIRWISE, pairs, used, MOST)


def _row(prompt: str, questions: int, used: Used, how: str) -> tuple[object, ...]:
    return prompt, questions, used.calls, used.prompt_tokens, used.answer_tokens, used.money, how
