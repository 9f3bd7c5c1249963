"""A result is up to date when its record says what lies there now, on either side of its job."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest
from snakemake.persistence import MetadataRecord
from snakemake.persistence.file import FilePersistence

from afa import workflow
from afa.errors import ReportError
from afa.report.provenance import Records, trace
from afa.workflow import Contents, Stamp, content_of


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FilePersistence:
    """Of a shard made of an edited file, and of a table made of the shard, which is gone."""
    monkeypatch.chdir(tmp_path)
    for name in ("source.csv", "shard", "table"):
        Path(name).write_text(name)
    kept = FilePersistence(nolock=True, path=tmp_path / ".snakemake")
    record(kept, "shard", ["source.csv"], temporary=("shard",))
    record(kept, "table", ["shard"])
    Path("shard").unlink()
    return kept


def record(kept: FilePersistence, output: str, inputs: list[str], temporary: tuple[str, ...] = ()) -> None:
    stamp = Stamp({name: content_of(name) for name in inputs}, {output: content_of(output)}, temporary)
    checksums = {workflow._KEY: asdict(stamp)}
    kept._write_record(output, MetadataRecord(rule=f"make_{output}", input=inputs, input_checksums=checksums))


def found(records: FilePersistence, output: str) -> str | None:
    fault = Contents(records).fault(output)
    return None if fault is None else f"{fault.where}: {fault.found}"


def test_what_was_made_of_what_is_there_is_up_to_date_without_its_temporary_files(records: FilePersistence) -> None:
    assert found(records, "shard") is None
    assert found(records, "table") is None


def test_an_edited_source_with_an_older_date_is_another_content(records: FilePersistence) -> None:
    Path("source.csv").write_text("edited")
    os.utime("source.csv", (0, 0))
    assert found(records, "shard") == "source.csv: another content"


def test_a_touched_source_is_the_same_content(records: FilePersistence) -> None:
    os.utime("source.csv", (4e9, 4e9))
    assert found(records, "shard") is None


@pytest.mark.parametrize(("output", "said"), [("table", "table: nothing"), ("unknown", "unknown: no record of what")])
def test_a_missing_output_and_one_without_a_record_are_not(records: FilePersistence, output: str, said: str) -> None:
    Path("table").unlink()
    assert str(found(records, output)).startswith(said)


def test_a_changed_byte_of_an_output_is_seen(records: FilePersistence) -> None:
    Path("table").write_text("Table")
    assert found(records, "table") == "table: another content"


def test_a_shard_that_was_made_anew_and_differs_is_seen_by_what_was_made_of_it(records: FilePersistence) -> None:
    Path("shard").write_text("other")
    record(records, "shard", ["source.csv"], temporary=("shard",))
    Path("shard").unlink()
    assert found(records, "table") == "shard: another content"


def test_a_folder_is_its_files_and_their_names_but_hidden_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = content_of(tmp_path)
    (tmp_path / ".snakemake_timestamp").write_text("")
    assert content_of(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert content_of(tmp_path) != first


def test_a_large_file_is_read_again_only_when_its_size_or_time_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "LARGE", 3)
    series = tmp_path / "series.gz"
    series.write_text("long")
    kept = content_of(series)
    reads: list[Path] = []
    plain = workflow.sha256_of
    monkeypatch.setattr(workflow, "sha256_of", lambda path: (reads.append(path), plain(path))[1])
    assert content_of(series, kept) == kept
    assert reads == []
    os.utime(series, (0, 0))
    assert content_of(series, kept).partition(" ")[0] == kept.partition(" ")[0]
    assert reads == [series]


def test_provenance_is_refused_where_a_result_does_not_belong_to_what_lies_there(records: FilePersistence) -> None:
    Path("source.csv").write_text("edited")
    kept = Records(Path(".snakemake"))
    with pytest.raises(ReportError, match=r"source.csv: found another content; expected what was read to make shard"):
        kept.check(["table"], trace(["table"], kept.job))


def test_provenance_is_refused_where_a_result_has_no_record(records: FilePersistence) -> None:
    Path("page").write_text("by hand")
    kept = Records(Path(".snakemake"))
    with pytest.raises(ReportError, match="page: found no record of its job"):
        kept.check(["page", "table"], trace(["page", "table"], kept.job))


def test_the_time_of_a_folder_outlives_the_file_that_had_it(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tables"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_text("1")
    stamp = folder / ".snakemake_timestamp"
    stamp.write_text("")
    os.utime(stamp, (100, 100))
    before = content_of(folder)
    workflow.remove_timestamps(tmp_path / "run")
    assert [path.name for path in folder.iterdir()] == ["a.parquet"]
    assert folder.stat().st_mtime == 100
    assert content_of(folder) == before
