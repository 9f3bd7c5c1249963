"""What is asked in a study: the genes of each phenotype by each voter, then every pair of the genes that survive."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from afa.elicit.store import Question
from afa.elicit.study import PAIR_RUN, Study

UNARY, PAIRWISE = "unary", "pairwise"


def unary_questions(study: Study) -> list[Question]:
    """One question per voter and phenotype, voter by voter."""
    return [Question(UNARY, {"phenotype": name}, voter) for voter in study.settings.voters for name in study.names]


def pair_questions(study: Study, kept: pd.DataFrame) -> list[Question]:
    """One question per phenotype and unordered pair of its surviving genes; the anchor is the first by name.

    kept : rows phenotype, gene, potential, of `afa.elicit.consensus.consensus`.
    """
    survivors = {name: sorted(genes) for name, genes in kept.groupby("phenotype")["gene"]}
    return [
        Question(PAIRWISE, {"phenotype": name, "gene1": one, "gene2": other}, PAIR_RUN)
        for name in study.names
        for one, other in combinations(survivors.get(name, []), 2)
    ]
