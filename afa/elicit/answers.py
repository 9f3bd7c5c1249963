"""What a language model is asked to answer, as schemas: genes of a phenotype, a pair of genes, a turn of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

TEXT_LENGTH = 600
"""Characters of a supporting text, as the paper has it."""
Probability = Annotated[float, Field(ge=0, le=1)]


class Answer(BaseModel):
    """An answer is read strictly: no key beside those of its schema, no text for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GeneAnswer(Answer):
    """One gene that shifts under the phenotype; `reference_indices` count the abstracts of the prompt from 1."""

    gene_symbol: Annotated[str, Field(min_length=1)]
    category: str
    direction_in_disease: Literal["Upregulated", "Downregulated"]
    mechanism_of_action: str
    tissue: str
    lit_prob: Probability
    evidence_source: Literal["literature", "model_knowledge"]
    snippet: str
    reference_indices: list[Annotated[int, Field(ge=1)]]


class UnaryAnswer(Answer):
    """The genes of one phenotype."""

    phenotype: str
    genes: Annotated[list[GeneAnswer], Field(min_length=1)]


class PairAnswer(Answer):
    """Whether two genes shift together under a phenotype."""

    lit_direction: Literal["same", "opposite", "unclear"]
    lit_prob: Probability
    evidence_source: Literal["literature", "model_knowledge", "none"]
    supporting_text: Annotated[str, Field(max_length=TEXT_LENGTH)]
    reference_indices: list[Annotated[int, Field(ge=1)]]


class BinaryTurn(Answer):
    """One turn of a plan for one condition: what to measure next, and how probable the condition is now."""

    patient_id: str
    next_gene_to_measure: str | None
    top_k_labels: Annotated[list[str], Field(min_length=1, max_length=1)]
    lit_prob: Probability
    supporting_text: Annotated[str, Field(max_length=TEXT_LENGTH)]


class MulticlassTurn(Answer):
    """One turn of a plan over all phenotypes: what to measure next, and the ranking now, the most likely first."""

    patient_id: str
    next_gene_to_measure: str | None
    top_k_labels: Annotated[list[str], Field(min_length=1)]
    done: bool


A = TypeVar("A", bound=Answer)


def read_answer(schema: type[A], text: str) -> A:
    """The answer that a model's text holds; a `ValueError` says in a line why it holds none."""
    try:
        json.loads(text, object_pairs_hook=_unique_keys)
        return schema.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the whole answer'}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the whole answer: no JSON ({error})") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return document


def beside_the_question(answer: Answer, values: Mapping[str, str]) -> str:
    """Why an answer is one to another question than that of `values`, in a line; empty where it is not."""
    if isinstance(answer, UnaryAnswer) and _words(answer.phenotype) != _words(values["phenotype"]):
        return f"phenotype: an answer on {answer.phenotype[:80]!r}"
    return ""


def _words(name: str) -> str:
    """A name without what models change in it: capitals, blanks, signs, and a definition in brackets after it."""
    return "".join(filter(str.isalnum, name.partition("(")[0].casefold()))
