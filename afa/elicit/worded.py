"""The questions of a study in their wording, with what was retrieved for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from afa.elicit.answers import TEXT_LENGTH
from afa.elicit.prompts import prompt_digest, render
from afa.elicit.questions import PAIRWISE
from afa.elicit.request import Request
from afa.elicit.store import Entry, Question
from afa.elicit.study import Study
from afa.errors import ElicitationError, Fault

WORDS = {1: "Upregulated", -1: "Downregulated"}
Abstracts = Callable[[Question], Sequence[Mapping[str, Any]]]
"""What is retrieved for a question: title, source and text of each abstract, the best first."""


def worded(question: Question, study: Study, abstracts: Abstracts, kept: pd.DataFrame | None = None) -> Request:
    """The question in its wording; `kept` gives the direction of a pair's anchor."""
    settings, phenotype = study.settings, question.values["phenotype"]
    values = {
        "disease": settings.disease,
        "tissue": settings.tissue,
        "definition": study.definition(phenotype),
        "most_genes": settings.most_genes,
        "snippet_length": settings.snippet_length,
        "text_length": TEXT_LENGTH,
        "abstracts": list(abstracts(question)),
        **question.values,
    }
    if question.prompt == PAIRWISE and kept is not None:
        of_anchor = (kept["phenotype"] == phenotype) & (kept["gene"] == question.values["gene1"])
        values["direction1"] = WORDS[int(kept.loc[of_anchor, "potential"].iloc[0])]
    return Request(question, render(question.prompt, values))


def no_abstracts(question: Question) -> Sequence[Mapping[str, Any]]:
    """Asking without retrieval."""
    del question
    return ()


def check_wording(entry: Entry, study: Study, abstracts: Abstracts, kept: pd.DataFrame | None = None) -> None:
    """Refuse an answer that was given to other abstracts than these: its numbers would mean other publications.

    An answer to an earlier prompt, which cannot be rendered any more, is passed over.
    """
    question = entry.question
    if entry.prompt_digest != prompt_digest(question.prompt):
        return
    if worded(question, study, abstracts, kept).digest != entry.messages:
        where = f"the record, {question.prompt} {' '.join(question.values.values())}, run {question.run}"
        found, step = (
            "an answer to another wording, with other abstracts",
            "restore the searches that lie in the record",
        )
        raise ElicitationError(Fault(where, found, "the wording that study and abstracts make", f"{step}, or ask live"))
