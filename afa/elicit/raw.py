"""A recorded elicitation of files (`phenotypes.csv` and `raw/`), read strictly, and as entries of the record."""

from __future__ import annotations

import csv
import hashlib
import json
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.csvfile import LONGEST_NAME, RowFaults, earlier_row, name_column, number_column, quoted, read_table
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.elicit.study import PAIR_RUN, PAIRWISE, UNARY, read_entities
from afa.elicit.tables import PAIR_SIGN, SIGN
from afa.errors import ElicitationError, Fault
from afa.files import read_whole

RUNS = ("r1", "r2", "r3")
GENE_KEYS = (
    "gene_symbol",
    "category",
    "direction_in_disease",
    "mechanism_of_action",
    "tissue",
    "lit_prob",
    "evidence_source",
)
PAIR_COLUMNS = ("gene1", "gene2", "lit_direction", "lit_prob", "evidence_source", "supporting_text")
MOST_FAULTS = 1_000


@dataclass(frozen=True)
class Recorded:
    """The recorded answers.

    `phenotypes` has the columns phenotype, group, definition, in entity order; `answers` one row per gene named, with
    run, phenotype, gene, direction, lit_prob, mechanism; `pairs` one row per pair asked, with phenotype, gene_a,
    gene_b, sign (+1, -1 or 0), lit_prob, text. `digest` is the SHA-256 over all files that were read.
    """

    phenotypes: pd.DataFrame
    answers: pd.DataFrame
    pairs: pd.DataFrame
    digest: str


def read_recorded(folder: str | Path) -> Recorded:
    """Read `phenotypes.csv` and `raw/` of a recorded elicitation; an `ElicitationError` lists every fault at once."""
    root = Path(folder)
    faults: list[Fault] = []
    phenotypes = read_entities(root / "phenotypes.csv", faults)
    if faults:
        raise ElicitationError(faults)
    names = phenotypes["phenotype"].tolist()
    expected = {root / "raw" / "unary" / run / f"{name}.json" for run in RUNS for name in names}
    expected |= {root / "raw" / "pairwise" / f"{name}.csv" for name in names}
    found = {path for path in (root / "raw").rglob("*") if path.is_file() and not path.name.startswith(".")}
    step = f"the runs are {', '.join(RUNS)}, the phenotypes those of phenotypes.csv; rename or remove the file"
    faults += [
        Fault(str(path), "a file of no known run and phenotype", "only answers to what was asked", step)
        for path in sorted(found - expected)
    ]
    genes = [
        gene for run in RUNS for name in names for gene in _read_answer(root / "raw" / "unary" / run, run, name, faults)
    ]
    pairs = [_read_pairs(root / "raw" / "pairwise" / f"{name}.csv", name, faults) for name in names]
    if faults:
        raise ElicitationError(_first(faults, root))
    columns = ["run", "phenotype", "gene", "direction", "lit_prob", "mechanism"]
    digest = _digest(root, [root / "phenotypes.csv", *sorted(expected)])
    return Recorded(phenotypes, pd.DataFrame(genes, columns=columns), pd.concat(pairs, ignore_index=True), digest)


def _read_answer(folder: Path, run: str, phenotype: str, faults: list[Fault]) -> list[tuple[Any, ...]]:
    """The genes of one answer file as rows of `Recorded.answers`; faulty ones are left out."""
    path = folder / f"{phenotype}.json"
    try:
        document = json.loads(read_whole(path).decode("utf-8-sig"), object_pairs_hook=_unique_keys)
    except OSError as error:
        faults.append(Fault(str(path), error.strerror or "an error", "the answer of this run", "add the file"))
        return []
    except (ValueError, RecursionError) as error:
        faults.append(Fault(str(path), f"text that is not JSON ({error})", "one JSON object", "mend the file"))
        return []
    if not isinstance(document, dict) or not isinstance(document.get("genes"), list) or not document["genes"]:
        expected = "an object with phenotype, run and a list of genes that is not empty"
        faults.append(Fault(f"{path}, key genes", "no such list", expected, "correct the answer"))
        return []
    for key, value in (("phenotype", phenotype), ("run", run)):
        if document.get(key) != value:
            found = _short(document.get(key))
            faults.append(Fault(f"{path}, key {key}", found, f"{value!r}, as the file is named", "move or correct it"))
    faults += _key_faults(str(path), document, ("phenotype", "run", "genes"), missing=False)
    genes = []
    seen: dict[str, int] = {}
    for index, gene in enumerate(document["genes"]):
        where = f"{path}, gene {index}"
        wrong = list(_gene_faults(where, gene))
        symbol = gene.get("gene_symbol") if isinstance(gene, dict) else None
        if isinstance(symbol, str) and seen.setdefault(symbol, index) != index:
            found = f"{symbol}, as in gene {seen[symbol]}"
            wrong.append(Fault(f"{where}, key gene_symbol", found, "each gene once in an answer", "remove one"))
        faults += wrong
        if not wrong:
            texts = (gene["gene_symbol"], gene["direction_in_disease"])
            genes.append((run, phenotype, *texts, float(gene["lit_prob"]), gene["mechanism_of_action"]))
    return genes


def _gene_faults(where: str, gene: Any) -> Iterator[Fault]:
    """What is wrong with one gene of an answer; genes are counted from 0, as in the JSON list."""
    if not isinstance(gene, dict):
        yield Fault(where, _short(gene), "an object", "correct the answer")
        return
    yield from _key_faults(where, gene, GENE_KEYS, missing=True)
    for key in (key for key in GENE_KEYS if key in gene and key != "lit_prob"):
        value = gene[key]
        if not isinstance(value, str) or (key == "gene_symbol" and (not value or value != value.strip())):
            yield Fault(f"{where}, key {key}", _short(value), "text", "correct the answer")
        elif not _can_be_written(value):
            expected = "text without NUL and halves of characters"
            yield Fault(f"{where}, key {key}", _short(value), expected, "correct the answer")
        elif key == "gene_symbol" and not (value.isprintable() and len(value) <= LONGEST_NAME):
            expected = f"a name of at most {LONGEST_NAME} characters, none of them invisible"
            yield Fault(f"{where}, key {key}", _short(value), expected, "correct the answer")
        elif key == "direction_in_disease" and value not in SIGN:
            yield Fault(f"{where}, key {key}", _short(value), " or ".join(SIGN), "correct the answer")
    probability = gene.get("lit_prob", 0.0)
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability <= 1:
        yield Fault(f"{where}, key lit_prob", _short(probability), "a number in [0, 1]", "correct the answer")


def _key_faults(where: str, document: Mapping[str, Any], keys: Sequence[str], *, missing: bool) -> list[Fault]:
    step = f"the keys are {', '.join(keys)}"
    faults = [
        Fault(f"{where}, key {key}", "an unknown key", "no such key", step) for key in document if key not in keys
    ]
    if missing:
        faults += [Fault(f"{where}, key {key}", "nothing", "a value", step) for key in keys if key not in document]
    return faults


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {twice[:LONGEST_NAME]!r} given twice")
    return document


def _read_pairs(path: Path, phenotype: str, faults: list[Fault]) -> pd.DataFrame:
    rows = RowFaults(path)
    table = read_table(path, required=PAIR_COLUMNS, faults=rows)
    columns = {name: list(texts) for name, texts in table.columns.items()}
    known = {name: index for index, name in enumerate(dict.fromkeys((*columns["gene1"], *columns["gene2"])))}
    codes = np.column_stack([name_column(table, column, rows, known) for column in ("gene1", "gene2")])
    codes.sort(axis=1)
    sound = (codes >= 0).all(axis=1)
    for row in np.flatnonzero(sound & (codes[:, 0] == codes[:, 1])).tolist():
        found = f"{columns['gene1'][row]} paired with itself"
        rows.add(int(table.lines[row]), "gene2", found, "two different genes", "remove the row")
    earlier = earlier_row(np.where(sound, codes[:, 0] * (len(known) + 1) + codes[:, 1], -1))
    for row in np.flatnonzero(earlier >= 0).tolist():
        found = f"the same pair as line {int(table.lines[earlier[row]])}"
        rows.add(int(table.lines[row]), "", found, "each pair once, in either order", "remove one of the two rows")
    for row, direction in enumerate(columns["lit_direction"]):
        if direction not in PAIR_SIGN:
            expected = ", ".join(PAIR_SIGN)
            rows.add(int(table.lines[row]), "lit_direction", quoted(direction), expected, "correct the answer")
    probability = number_column(table, "lit_prob", rows, low=0.0, high=1.0)
    faults += rows.listed()
    return pd.DataFrame(
        {
            "phenotype": phenotype,
            "gene_a": columns["gene1"],
            "gene_b": columns["gene2"],
            "sign": [PAIR_SIGN.get(direction, 0) for direction in columns["lit_direction"]],
            "lit_prob": probability,
            "text": columns["supporting_text"],
        }
    )


def _first(faults: list[Fault], root: Path) -> list[Fault]:
    if len(faults) <= MOST_FAULTS:
        return faults
    more = f"{len(faults) - MOST_FAULTS} more faults"
    return [*faults[:MOST_FAULTS], Fault(str(root), more, "none", "mend those named above and try again")]


def _can_be_written(text: str) -> bool:
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)


def _short(value: Any) -> str:
    return reprlib.repr(value)[:60]


def _digest(root: Path, paths: Sequence[Path]) -> str:
    state = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        state.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        state.update(data)
    return state.hexdigest()


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
