"""What Snakemake has recorded of finished jobs, as jobs of `afa.report.provenance`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snakemake.io import IOFile
from snakemake.persistence.file import FilePersistence

from afa.codedigest import DIGEST_LENGTH
from afa.errors import Fault, ReportError
from afa.report.provenance import Job
from afa.workflow import AGAIN, Contents


class Records:
    """The records in `folder`, the `.snakemake` of a project, by the path of an output.

    Raises
    ------
    ReportError : a folder without records.

    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "metadata").is_dir():
            found, step = "no records of finished jobs", "call it from the folder in which the workflow ran"
            raise ReportError(Fault(str(folder), found, "Snakemake's folder .snakemake", step))
        self._records = FilePersistence(nolock=True, path=folder.resolve())
        self._contents = Contents(self._records)

    def job(self, output: str) -> Job | None:
        """The job that made `output`, without digests of its outputs; None for what no rule made."""
        record = self._records.metadata(IOFile(output))
        if record is None:
            return None
        return Job(
            rule=record.rule or "",
            outputs={output: ""},
            inputs=self._inputs(output, record.input or ()),
            command=" ".join((record.shellcmd or "").split()),
            code=tuple(_code_digests(record.params or [])),
            started=_time(record.starttime),
            ended=_time(record.endtime),
        )

    def check(self, targets: Iterable[str], jobs: Iterable[Job]) -> None:
        """Refuse, as a `ReportError`, results that are not what their jobs made of what lies there now.

        targets : paths that must have a job. jobs : those behind them.
        """
        made = [output for job in jobs for output in job.outputs]
        unmade = [target for target in targets if target not in made]
        faults = [
            Fault(target, "no record of its job", "the record of a job that ended well", AGAIN) for target in unmade
        ]
        faults += filter(None, map(self._contents.fault, made))
        if faults:
            raise ReportError(dict.fromkeys(faults))

    def _inputs(self, output: str, paths: Iterable[str]) -> Mapping[str, str]:
        """The paths that a job was given, with the digest of what it read there; none for a folder given by a name."""
        stamp = self._contents.stamp(output)
        read = stamp.inputs if stamp else {}
        return {path: read.get(path, "").partition(" ")[0] for path in paths}


def _code_digests(params: Iterable[Any]) -> Iterator[str]:
    """Digests among the parameters of a job, which Snakemake records as Python literals."""
    for param in params:
        text = str(param).strip("'\"")
        if len(text) % DIGEST_LENGTH == 0 and text and set(text) <= set("0123456789abcdef"):
            for start in range(0, len(text), DIGEST_LENGTH):
                yield text[start : start + DIGEST_LENGTH]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
