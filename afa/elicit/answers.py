"""Create the questions of a study, define the schemas of the answers, and parse the text that a model returns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, Self, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from afa.elicit.record import Question
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import quoted
from afa.io.yamlfile import first_error
from afa.model.features import Features
from afa.model.study import (
    ANCHOR,
    CONDITIONAL,
    CUTS,
    PAIR_PROMPTS,
    PAIR_RUN,
    PAIRWISE,
    RATES,
    UNARY,
    Ends,
    PairMode,
    Study,
)

TEXT_LENGTH = 600
"""Largest number of characters of a supporting text, as in the paper."""
DIRECTIONS = {1: "Upregulated", -1: "Downregulated"}
Probability = Annotated[float, Field(ge=0, le=1)]


def unary_questions(study: Study) -> list[Question]:
    """Return one question for each pair of a voter and a phenotype, in the order of the voters."""
    return [Question(UNARY, {"phenotype": name}, voter) for voter in study.settings.voters for name in study.names]


def pair_questions(study: Study, kept: pd.DataFrame, mode: PairMode | None = None) -> list[Question]:
    """Return questions on all pairs of genes that are kept for the same phenotype.

    The anchor of a pair is the gene whose name is first in alphabetical order.

    Parameters
    ----------
    kept : rows phenotype, gene, potential
    mode : one question for each pair, or one for each anchor with all later genes; by default the study's setting

    """
    mode = mode or study.settings.pairs
    questions = []
    for name in study.names:
        own = kept[kept["phenotype"] == name]
        directions = dict(zip(own["gene"], own["potential"].map(DIRECTIONS), strict=True))
        genes = sorted(directions)
        if mode == "by_anchor":
            values = [{"gene1": gene, "partners": " ".join(genes[i + 1 :])} for i, gene in enumerate(genes[:-1])]
        else:
            values = [{"gene1": one, "gene2": other} for one, other in combinations(genes, 2)]
        questions += [
            Question(PAIR_PROMPTS[mode], {"phenotype": name, **each}, PAIR_RUN, directions) for each in values
        ]
    return questions


def cut_questions(study: Study) -> list[Question]:
    """Return, for each voter, one question on the cut points of all features that are not binary.

    If all features are binary, the list is empty.
    """
    features = known_features(study)
    numbers = [name for name, binary in zip(features.names, features.is_binary, strict=True) if not binary]
    values = {"features": json.dumps(dict.fromkeys(numbers))}
    return [Question(CUTS, values, voter) for voter in study.settings.voters] if numbers else []


def rate_questions(study: Study, ends: dict[str, Ends]) -> list[Question]:
    """Return, for each pair of a voter and an entity, one question on the probabilities of all features.

    A question to a voter (a run of a language model) contains the cut points that the same voter gave earlier.
    """
    return [
        Question(RATES, {"phenotype": name, "features": json.dumps(ends[voter])}, voter)
        for voter in study.settings.voters
        for name in study.names
    ]


def known_features(study: Study) -> Features:
    """Return the features that a study defines. Raise an `ElicitationError` if the study defines none."""
    if study.features is None:
        found, step = "no features.csv and no dictionary.csv", "add one: feature, kind, unit, values, definition"
        raise ElicitationError(Fault(f"study {study.settings.name}", found, "the features to ask about", step))
    return study.features


# The docstrings of the classes below are part of the JSON schema that a model receives with the prompt.
# If one of these docstrings changes, the digest of the prompt changes, and answers recorded with the earlier digest no
# longer match the prompt.


class Answer(BaseModel):
    """An answer is read strictly: no key beside those of its schema, no text for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RecordedGene(Answer):
    """A gene of a record made elsewhere, which has neither snippet nor references."""

    gene_symbol: str
    category: str
    direction_in_disease: Literal["Upregulated", "Downregulated"]
    mechanism_of_action: str
    tissue: str
    lit_prob: Probability
    evidence_source: str


class RecordedUnary(Answer):
    """The genes of one phenotype in a record made elsewhere."""

    phenotype: str
    run: str
    genes: list[RecordedGene]


class GeneAnswer(RecordedGene):
    """One gene that shifts under the phenotype; `reference_indices` count the abstracts of the prompt from 1."""

    gene_symbol: Annotated[str, Field(min_length=1)]
    evidence_source: Literal["literature", "model_knowledge"]
    snippet: str
    reference_indices: list[Annotated[int, Field(ge=1)]]


class Reference(Answer):
    """One reference of an answer, as an abstract of the prompt has it."""

    title: str
    pmid: str | None
    doi: str | None


class UnaryAnswer(Answer):
    """The genes of one phenotype, and the references that they rest on."""

    phenotype: str
    genes: Annotated[list[GeneAnswer], Field(min_length=1)]
    references: list[Reference] = []


class RecordedPair(Answer):
    """A pair in a record made elsewhere, which has no references."""

    lit_direction: Literal["same", "opposite", "unclear"]
    lit_prob: Probability
    evidence_source: str
    supporting_text: str


class PairAnswer(RecordedPair):
    """Whether two genes shift together under a phenotype."""

    evidence_source: Literal["literature", "model_knowledge", "none"]
    supporting_text: Annotated[str, Field(max_length=TEXT_LENGTH)]
    reference_indices: list[Annotated[int, Field(ge=1)]]


class PartnerAnswer(PairAnswer):
    """Whether one gene shifts together with the anchor under a phenotype."""

    gene2: Annotated[str, Field(min_length=1)]


class AnchorAnswer(Answer):
    """Whether each of several genes shifts together with the anchor, `gene1`, under a phenotype."""

    gene1: str
    pairs: Annotated[list[PartnerAnswer], Field(min_length=1)]


class ConditionalAnswer(Answer):
    """How probable it is that gene 2 shifts as gene 1 does, in patients with the phenotype and in those without it."""

    p_with: Probability
    p_without: Probability
    evidence_source: Literal["literature", "model_knowledge", "none"]
    supporting_text: Annotated[str, Field(max_length=TEXT_LENGTH)]
    reference_indices: list[Annotated[int, Field(ge=1)]]


class CutAnswer(Answer):
    """Below and above which value a feature is called low or high; null for a side that does not exist."""

    feature: Annotated[str, Field(min_length=1)]
    low: Annotated[float, Field(allow_inf_nan=False)] | None
    high: Annotated[float, Field(allow_inf_nan=False)] | None

    @model_validator(mode="after")
    def _check_cut_order(self) -> Self:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"{self.feature}: low is above high")
        return self


class CutsAnswer(Answer):
    """The cut points of several features."""

    features: Annotated[list[CutAnswer], Field(min_length=1)]


class RateAnswer(Answer):
    """Which way a feature shifts with a phenotype, and how often it is high and low with and without."""

    feature: Annotated[str, Field(min_length=1)]
    direction: Literal[-1, 0, 1]
    p_high_with: Probability
    p_high_without: Probability
    p_low_with: Probability
    p_low_without: Probability
    confidence: Probability
    reason: Annotated[str, Field(max_length=TEXT_LENGTH)]

    @model_validator(mode="after")
    def _check_probability_sums(self) -> Self:
        if max(self.p_high_with + self.p_low_with, self.p_high_without + self.p_low_without) > 1 + 1e-9:
            raise ValueError(f"{self.feature}: high and low together are above 1")
        return self


class RatesAnswer(Answer):
    """How often the values of several features occur with and without a phenotype."""

    phenotype: str
    features: Annotated[list[RateAnswer], Field(min_length=1)]


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


ANSWER_SCHEMAS: Mapping[str, type[Answer]] = {
    UNARY: UnaryAnswer,
    PAIRWISE: PairAnswer,
    ANCHOR: AnchorAnswer,
    CONDITIONAL: ConditionalAnswer,
    CUTS: CutsAnswer,
    RATES: RatesAnswer,
    "binary_potentials": BinaryTurn,
    "binary_literature": BinaryTurn,
    "multiclass_potentials": MulticlassTurn,
    "multiclass_literature": MulticlassTurn,
}
"""Every prompt by name, with the schema of its answer."""
RECORDED_SCHEMAS: Mapping[str, type[Answer]] = {UNARY: RecordedUnary, PAIRWISE: RecordedPair}
"""Prompt -> schema of its answers in imported records."""

A = TypeVar("A", bound=Answer)


def read_answer(schema: type[A], text: str) -> A:
    """Return the answer that a model's text contains.

    Raise a `ValueError` that states the reason if the text contains no answer.
    """
    return read_wrapped(schema, text)[0]


def read_wrapped(schema: type[A], text: str) -> tuple[A, list[str]]:
    """Return the answer that a model's text contains, and notes on ignored parts of the text.

    The parser ignores three things: the model's thoughts, text before and after the JSON object, and a code fence. The
    parser removes keys that are not in the schema, and cuts texts that are longer than the schema allows. An answer
    that deviates from the schema in any other way is invalid.

    Raises
    ------
    ValueError : with a one-line reason, if there is no answer, or several different ones.

    """
    inner, notes = text.strip().removeprefix("\ufeff"), list[str]()
    spans = list(_object_spans(inner))
    if spans != [(0, len(inner))] and (thoughts := list(_THOUGHTS_END.finditer(inner))):
        inner, notes = inner[thoughts[-1].end() :].strip(), ["thoughts set aside"]
        spans = list(_object_spans(inner))
    found, reasons = list[tuple[int, int, A, list[str]]](), list[ValueError]()
    for start, end in spans:
        try:
            found.append((start, end, *_read_object(schema, inner[start:end])))
        except ValueError as error:
            reasons.append(error)
    if not spans:
        return _read_object(schema, inner[max(inner.find("{"), 0) :])  # raises a `ValueError` with the error's position
    if not found:
        # If several objects are invalid, report the error of the longest object.
        raise reasons[max(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0])]
    if any(answer != found[0][2] for _, _, answer, _ in found):
        raise ValueError(f"the whole answer: {len(found)} answers that differ")
    start, end, answer, fitted = found[-1]
    return answer, [*notes, *_ignored_text_notes(inner[:start], inner[end:]), *fitted]


_THOUGHTS_END = re.compile(
    r"</(?:\w+:)?(?:think|thinking|thoughts?|reason|reasoning|analysis|reflection|scratchpad)>"
    r"|\[/THINK\]|<\|(?:message|end_of_thought)\|>",
    re.IGNORECASE,
)
"""Pattern of the end of a model's thoughts: the closing tag, or the header of the final channel."""
_FENCE = re.compile(r"```\w*\s*$")
_BEGIN = re.compile(r'\{\s*["}]')
_JSON_DECODER = json.JSONDecoder()
MOST_OBJECTS = 1000
"""Largest number of objects searched in one text, including invalid ones."""


def _object_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each outermost JSON object in a text, for at most `MOST_OBJECTS` objects."""
    end = 0
    for _ in range(MOST_OBJECTS):
        begun = _BEGIN.search(text, end)
        if begun is None:
            return
        try:
            _, end = _JSON_DECODER.raw_decode(text, begun.start())
            yield begun.start(), end
        except json.JSONDecodeError as error:
            # The search for objects continues at the position of the error. Otherwise, an object that is nested in an
            # invalid object could be taken for the answer.
            end = max(error.pos, begun.start() + 1)
        except RecursionError:
            return


def _read_object(schema: type[A], text: str) -> tuple[A, list[str]]:
    """Return the answer that the JSON object `text` contains, and notes on removed keys and shortened texts.

    Raise a `ValueError` that states the reason if the object is no valid answer.
    """
    try:
        document = json.loads(text, object_pairs_hook=unique_keys)
        try:
            return schema.model_validate_json(text), []
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            if not {fault["type"] for fault in faults} <= {"extra_forbidden", "string_too_long"}:
                raise
            notes = [
                _remove_or_cut_value(document, fault["loc"], fault.get("ctx", {}).get("max_length")) for fault in faults
            ]
            return schema.model_validate_json(json.dumps(document)), notes
    except ValidationError as error:
        raise ValueError(first_error(error, "the whole answer")) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the whole answer: no JSON ({error})") from None


def _ignored_text_notes(before: str, after: str) -> list[str]:
    """Return notes on ignored text before and after an answer."""
    notes = []
    if (fence := _FENCE.search(before)) and after.lstrip().startswith("```"):
        before, after, notes = before[: fence.start()], after.lstrip()[3:], ["fence set aside"]
    notes += ["words before it set aside"] if before.strip() else []
    return [*notes, "words after it set aside"] if after.strip() else notes


def _remove_or_cut_value(document: Any, place: Sequence[int | str], longest: int | None) -> str:
    """Remove the value at `place`, or cut the value to `longest` characters. Return a note on the change."""
    *path, last = place
    for step in path:
        document = document[step]
    name = ".".join(map(str, place))
    if longest is None:
        del document[last]
        return f"{name[:80]} removed"
    note = f"{name} cut from {len(document[last])} to {longest} characters"
    document[last] = document[last][:longest]
    return note


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dictionary. Raise a `ValueError` if a key is repeated."""
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {quoted(twice)} given twice in one object")
    return document


def beside_the_question(answer: Answer, values: Mapping[str, str]) -> str:
    """Return a text that says why an answer does not match the question with the given `values`.

    If the answer matches the question, return an empty text.
    """
    if isinstance(answer, (UnaryAnswer, RatesAnswer)) and _normalized_name(answer.phenotype) != _normalized_name(
        values["phenotype"]
    ):
        return f"phenotype: an answer on {answer.phenotype[:80]!r}"
    if isinstance(answer, AnchorAnswer):
        if answer.gene1 != values["gene1"]:
            return f"gene1: an answer on {answer.gene1[:80]!r}"
        return _name_mismatch("pairs", values["partners"].split(), [pair.gene2 for pair in answer.pairs])
    if isinstance(answer, (CutsAnswer, RatesAnswer)):
        ends = json.loads(values["features"])
        other = _name_mismatch("features", ends, [each.feature for each in answer.features])
        return other or (_impossible_probability(answer, ends) if isinstance(answer, RatesAnswer) else "")
    return ""


def _name_mismatch(what: str, asked: Collection[str], given: Sequence[str]) -> str:
    """Return a text that lists missing, unexpected or repeated names, or an empty text if there are none."""
    if lacking := [name for name in asked if name not in given]:
        return f"{what}: none with {', '.join(lacking)}"
    if others := [name for name, times in Counter(given).items() if times > 1 or name not in asked]:
        return f"{what}: {', '.join(others)[:200]}, not asked for or twice"
    return ""


def _impossible_probability(answer: RatesAnswer, ends: Mapping[str, Sequence[float | None] | None]) -> str:
    """Return an error text if an impossible value of a feature has a probability above 0, else an empty text.

    For example, a feature without a low cut point cannot have the value low.
    """
    for each in answer.features:
        low, high = ends[each.feature] or (None, None)
        for end, other, name in ((low, high, "low"), (high, low, "high")):
            stated = max(getattr(each, f"p_{name}_with"), getattr(each, f"p_{name}_without"))
            if end is None and other is not None and stated > 0:
                return f"{each.feature}: it cannot be {name}, so that p_{name}_with and p_{name}_without are 0"
    return ""


def _normalized_name(name: str) -> str:
    """Return the letters and digits of a name in lower case. A definition in brackets after the name is removed.

    A language model often repeats a name with other capitals, blanks or punctuation.
    """
    return "".join(filter(str.isalnum, name.partition("(")[0].casefold()))
