"""A recorded elicitation of files, as entries of the record: what its files do not have is unknown, never filled in."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from afa.elicit.questions import PAIRWISE, UNARY
from afa.elicit.recorded import PAIR_COLUMNS, RUNS, read_recorded
from afa.elicit.store import UNKNOWN, Entry, Question
from afa.elicit.study import PAIR_RUN


def imported(folder: str | Path) -> Iterator[Entry]:
    """The entries of a folder with `phenotypes.csv` and `raw/`: each unary file, and each row of a pairwise file.

    raw : a unary answer is the file's text; a pair's is its row as JSON, by the columns of the file.

    Raises
    ------
    ElicitationError : every fault of the files.

    """
    root = Path(folder)
    names = [str(name) for name in read_recorded(root).phenotypes["phenotype"]]
    for run in RUNS:
        for name in names:
            text = (root / "raw" / "unary" / run / f"{name}.json").read_text(encoding="utf-8-sig")
            yield _entry(Question(UNARY, {"phenotype": name}, run), text)
    for name in names:
        with (root / "raw" / "pairwise" / f"{name}.csv").open(encoding="utf-8-sig", newline="") as stream:
            for row in csv.DictReader(stream, restval=""):
                values = {"phenotype": name, "gene1": row["gene1"], "gene2": row["gene2"]}
                yield _entry(Question(PAIRWISE, values, PAIR_RUN), _as_json(row))


def _as_json(row: Mapping[str, str]) -> str:
    answer: dict[str, object] = {column: row[column] for column in PAIR_COLUMNS[2:]}
    return json.dumps({**answer, "lit_prob": float(row["lit_prob"])}, ensure_ascii=False)


def _entry(question: Question, raw: str) -> Entry:
    return Entry(
        question=question,
        model=UNKNOWN,
        parameters=UNKNOWN,
        prompt_digest=UNKNOWN,
        messages=UNKNOWN,
        outcome="answered",
        raw=raw,
        detail="",
        attempt=1,
        time=UNKNOWN,
        tokens=UNKNOWN,
    )
