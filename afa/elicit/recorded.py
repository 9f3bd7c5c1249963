"""Recorded answers are read from a folder of files, looked up by question, and merged."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, field_validator

from afa.elicit.answers import RecordedGene, RecordedUnary, unique_keys
from afa.elicit.record import (
    ENTRIES,
    MERGED,
    RETRIEVED,
    TRIES,
    UNKNOWN,
    WORDINGS,
    Entry,
    JsonLines,
    Question,
    Record,
    first_answer,
)
from afa.elicit.tables import PAIR_SIGN
from afa.errors import ConfigError, ElicitationError, Fault
from afa.io.csvfile import LONGEST_NAME, first_of, is_name, name_column, number_column, quoted, read_table
from afa.io.files import atomic_file, atomic_folder, read_unpacked
from afa.io.yamlfile import check_model
from afa.model.study import PAIR_RUN, PAIRWISE, UNARY, read_entities

RUNS = ("r1", "r2", "r3")
PAIR_COLUMNS = ("gene1", "gene2", "lit_direction", "lit_prob", "evidence_source", "supporting_text")


def imported(folder: str | Path) -> list[Entry]:
    """Return the entries of a folder with `phenotypes.csv` and `raw/`.

    A unary file gives one entry, whose `raw` is the file's text. Each row of a pairwise file gives one entry, whose
    `raw` is the row as JSON.

    Raises
    ------
    ElicitationError : all faults of the files.

    """
    root, faults = Path(folder), list[Fault]()
    names = [str(name) for name in read_entities(root / "phenotypes.csv", faults)["phenotype"]]
    ElicitationError.raise_for(faults)
    answers = {root / "raw" / "unary" / run / f"{name}.json": (name, run) for run in RUNS for name in names}
    pairs = {root / "raw" / "pairwise" / f"{name}.csv": name for name in names}
    found = {path for path in (root / "raw").rglob("*") if path.is_file() and not path.name.startswith(".")}
    step = f"the runs are {', '.join(RUNS)}, the phenotypes those of phenotypes.csv; rename or remove the file"
    faults += [
        Fault(str(path), "a file of no known run and phenotype", "only answers to what was asked", step)
        for path in sorted(found - answers.keys() - pairs.keys())
    ]
    entries = [_unary(path, name, run, faults) for path, (name, run) in answers.items()]
    entries += [each for path, name in pairs.items() for each in _pairs(path, name, faults)]
    ElicitationError.raise_for(first_of(faults, root))
    return entries


def _a_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"text of at most {LONGEST_NAME} characters, none of them invisible, without spaces around it")
    return text


class _Gene(RecordedGene):
    """A gene of a file. The symbol of a gene must be a valid name, and its texts must be fit for a table."""

    gene_symbol: Annotated[str, AfterValidator(_a_name)]

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
            raise ValueError("text without NUL and halves of characters")
        return value


class _Unary(RecordedUnary):
    """The answer in a file. An answer must name at least one gene, and each gene once."""

    genes: Annotated[list[_Gene], Field(min_length=1)]  # type: ignore[assignment]

    @field_validator("genes")
    @classmethod
    def _each_once(cls, genes: list[_Gene]) -> list[_Gene]:
        symbol, times = Counter(gene.gene_symbol for gene in genes).most_common(1)[0]
        if times > 1:
            raise ValueError(f"each gene once, not {symbol} twice")
        return genes


def _unary(path: Path, phenotype: str, run: str, faults: list[Fault]) -> Entry:
    """Return the entry of one answer file. Faults of the file are added to `faults`."""
    text = ""
    try:
        text = read_unpacked(path).decode("utf-8-sig").replace("\r\n", "\n")
        answer = check_model(json.loads(text, object_pairs_hook=unique_keys), _Unary, str(path))
        for key, found, named in (("phenotype", answer.phenotype, phenotype), ("run", answer.run, run)):
            if found != named:
                expected = f"{named!r}, as the file is named"
                faults.append(Fault(f"{path}, key {key}", quoted(found), expected, "move or correct it"))
    except ConfigError as error:
        faults += error.faults
    except OSError as error:
        faults.append(Fault(str(path), error.strerror or "an error", "the answer of this run", "add the file"))
    except (ValueError, RecursionError) as error:
        faults.append(Fault(str(path), f"text that is not JSON ({error})", "one JSON object", "correct the file"))
    return _entry(Question(UNARY, {"phenotype": phenotype}, run), text)


def _pairs(path: Path, phenotype: str, faults: list[Fault]) -> Iterator[Entry]:
    """Yield the entries of one file of pairs. Faults of the file are added to `faults`."""
    table = read_table(path, required=PAIR_COLUMNS)
    genes = table.columns["gene1"], table.columns["gene2"]
    known = {name: index for index, name in enumerate(dict.fromkeys((*genes[0], *genes[1])))}
    codes = np.column_stack([name_column(table, column, known) for column in ("gene1", "gene2")])
    codes.sort(axis=1)
    sound = (codes >= 0).all(axis=1)
    same = sound & (codes[:, 0] == codes[:, 1])
    table.wrong(
        same, "gene2", "two different genes", "remove the row", lambda row: f"{genes[0][row]} paired with itself"
    )
    table.once(np.where(sound, codes[:, 0] * len(known) + codes[:, 1], -1), "each pair once, in either order")
    table.words("lit_direction", tuple(PAIR_SIGN))
    probability = number_column(table, "lit_prob", low=0.0, high=1.0).tolist()
    faults += table.faults.listed()
    for gene1, gene2, *texts, number in zip(*(table.columns[name] for name in PAIR_COLUMNS), probability, strict=True):
        answer = {**dict(zip(PAIR_COLUMNS[2:], texts, strict=True)), "lit_prob": number}
        question = Question(PAIRWISE, {"phenotype": phenotype, "gene1": gene1, "gene2": gene2}, PAIR_RUN)
        yield _entry(question, json.dumps(answer, ensure_ascii=False))


def _entry(question: Question, raw: str) -> Entry:
    names = ("model", "parameters", "prompt_digest", "messages", "time", "tokens")
    unknown: dict[str, Any] = dict.fromkeys(names, UNKNOWN)
    return Entry(question=question, outcome="answered", raw=raw, detail="", attempt=1, **unknown)


class Recorded:
    """Entries of a record, looked up by question.

    Any model and wording is accepted if the record has only one for the question.

    Parameters
    ----------
    models : model of each voter; for a voter listed here, only answers of this model count
    place : the record's folder

    """

    def __init__(self, entries: Iterable[Entry], models: Mapping[str, str] | None = None, place: str = "") -> None:
        self.place = place or "the record"
        self._entries: dict[tuple[object, ...], list[Entry]] = {}
        for entry in entries:
            if (models or {}).get(entry.question.run, entry.model) == entry.model:
                self._entries.setdefault(entry.question.name, []).append(entry)

    def answers(self, questions: Sequence[Question]) -> list[Entry | None]:
        """Return the recorded entry of each question. A pair is found in either order of its genes.

        Raises
        ------
        ElicitationError : a question has answers of several models, or to several wordings.

        """
        found = [self._entries.get(question.name, []) for question in questions]
        for entries in found:
            answered = {entry.key: entry for entry in entries if entry.outcome == "answered"}
            if len(answered) < 2:
                continue
            models = sorted({entry.model for entry in answered.values()})
            run, expected = entries[0].question.run, "answers of one model"
            given, step = f"answers of {', '.join(models)}", f"name the model of voter {run} under models in study.yaml"
            if len(models) == 1:
                given, expected = f"{given} to {len(answered)} wordings or manners of asking", "answers to one"
                step = (
                    "let `afa elicit merge --prompt` write the answers to one wording into a record of their own, or "
                    "ask live, which knows its wording"
                )
            raise ElicitationError(Fault(f"{self.place}, {entries[0].question}", given, expected, step))
        return [first_answer(entries) for entries in found]


def write_record(entries: Iterable[Entry], folder: str | Path, name: str) -> int:
    """Write entries as `<name>.jsonl` into a folder, and return their number.

    Each entry is written once, sorted by question.

    Raises
    ------
    ElicitationError : the folder already holds other entries.

    """
    path = Path(folder) / f"{name}{ENTRIES}"
    if others := sorted(file.name for file in Path(folder).glob(f"*{ENTRIES}") if file != path):
        step = "name an empty folder; `afa elicit merge` puts several into one"
        raise ElicitationError(Fault(str(folder), f"a record already ({others[0]})", f"nothing but {path.name}", step))
    lines = sorted({(_place(entry), json.dumps(entry.document, sort_keys=True)) for entry in entries})
    _write_lines(path, [line.encode() for _, line in lines])
    return len(lines)


def merge(records: Sequence[Path], destination: Path, *, model: str = "", prompt: str = "") -> int:
    """Write the entries of several records into one folder, and return their number.

    The order of the records does not matter. All calls are merged, whatever entries are selected, so that all use still
    counts.

    Parameters
    ----------
    model : select only answers of this model
    prompt : select only answers to the template whose digest begins so

    Raises
    ------
    ElicitationError : a folder without a record, a fault in a record, or no selected answer.
    ConfigError : the destination has files other than those of a merged record.

    """
    ours = [*(f"{MERGED}{suffix}" for suffix in (ENTRIES, WORDINGS, TRIES)), f"{RETRIEVED}/*"]
    chosen: list[Entry] = []
    for record in records:
        entries = list(Record(record).entries())
        if not entries:
            raise ElicitationError(Fault(str(record), "no answers", "a record", "name folders with files of answers"))
        chosen += [entry for entry in entries if model in ("", entry.model) and entry.prompt_digest.startswith(prompt)]
    if not chosen:
        found = f"no answer of the model {model!r} to the prompt {prompt!r}"
        step = "take them from the lines of the record, or leave the option out"
        raise ElicitationError(Fault("--model and --prompt", found, "one answer or more", step))
    with atomic_folder(destination, ours, f"{MERGED}{ENTRIES}") as made:
        count = write_record(chosen, made, MERGED)
        for suffix in (WORDINGS, TRIES):
            faults: list[Fault] = []
            lines = sorted({line for record in records for _, line in JsonLines(record, suffix).new(faults)})
            ElicitationError.raise_for(faults)
            if lines:
                _write_lines(made / f"{MERGED}{suffix}", lines)
        for record in records:
            if (record / RETRIEVED).is_dir():
                shutil.copytree(record / RETRIEVED, made / RETRIEVED, dirs_exist_ok=True)
    return count


def _write_lines(path: Path, lines: Sequence[bytes]) -> None:
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"".join(line + b"\n" for line in lines))


def _place(entry: Entry) -> tuple[str, ...]:
    question = entry.question
    return question.prompt, question.run, *(value for _, value in sorted(question.values.items())), entry.time
