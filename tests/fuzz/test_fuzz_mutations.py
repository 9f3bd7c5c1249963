"""Sound files of every reader, broken at random: afa's own errors come out, each with its file named, and nothing else.

A case is drawn from `AFA_FUZZ_SEED`, the reader's name and the case's number alone, so that the number in a message is
all that it takes to see it again. `AFA_FUZZ_CASES` says how many there are for each reader.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from fuzz.corpus import Reader, readers, real_gene_matrix
from fuzz.harness import BROKEN, SEED, check
from fuzz.mutations import mutated_file

NAMES = (
    "bundle",
    "cohort",
    "series_matrix",
    "soft",
    "gene_matrix",
    "sample_files",
    "run_config",
    "cohort_config",
    "recorded",
    "portfolio",
    "gene_names",
    "cohort_build",
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return readers(tmp_path_factory.mktemp("corpus"))


def _write(reader: Reader, folder: Path) -> Path:
    for name, content in reader.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _run(reader: Reader, folder: Path) -> tuple[int, int]:
    """Cases that were refused and cases that were read; the sound files must be read."""
    _write(reader, folder)
    assert check(reader, folder) is None, "the sound files are refused"
    refused = 0
    for case in range(BROKEN):
        random = Random(f"{SEED}/{reader.name}/{case}")
        name = random.choice(sorted(reader.files))
        (folder / name).write_bytes(mutated_file(name, reader.files[name], random))
        try:
            refused += check(reader, folder) is not None
        except AssertionError as error:
            raise AssertionError(f"case {case}, {name}: {error}") from error
        (folder / name).write_bytes(reader.files[name])
    return refused, BROKEN - refused


def test_every_reader_of_the_corpus_is_fuzzed(known: dict[str, Reader]) -> None:
    assert tuple(known) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_gives_an_error_of_ours_that_names_it_and_leaves_nothing(
    known: dict[str, Reader], name: str, tmp_path: Path
) -> None:
    refused, read = _run(known[name], tmp_path / "in")
    assert refused > BROKEN // 4, f"{read} of {BROKEN} broken files were read as if they were sound"


@pytest.mark.mirror
def test_the_broken_head_of_a_real_matrix_gives_an_error_of_ours_that_names_it(
    geo_mirror: Path, tmp_path: Path
) -> None:
    refused, _ = _run(real_gene_matrix(geo_mirror), tmp_path / "in")
    assert refused > BROKEN // 4
