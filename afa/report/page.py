"""The report page: one HTML file with everything that a reader needs, and nothing fetched.

It is made of what a run left behind, and of the project's own texts; it computes no number. Pages inside it, the
notebooks and the explorer, travel packed, as base64 of gzip.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from afa import __version__
from afa.bundle import load_bundle
from afa.cohort.cohort import load_cohort
from afa.errors import Fault, ReportError
from afa.files import sha256_of, write_text
from afa.report.benchmarks import by_rule, read_jobs
from afa.report.notebook import notebook_caption, notebook_figure, notebook_page
from afa.report.page_parts import caption, document, items, packed, page
from afa.report.publish import DICTIONARY
from afa.report.screen import basis, load_carried
from afa.report.sections import (
    counted,
    digits,
    every_line,
    figure,
    findings,
    language_model,
    paper_shapes,
    sentences,
    title_of,
)
from afa.report.verdicts import verdict_words
from afa.stats.summary import read_summary
from afa.stats.tables import read_table

SHORT = 12
"""Digits of a digest that are shown; all of them stand in `provenance.json`."""
LEADS = {"Past the paper": "past_the_paper.md"}
"""Pages of `docs` that open a chapter."""


@dataclass(frozen=True)
class Part:
    """A figure of the report: the name of its notebook and files, the chapter that it stands in, and its title."""

    name: str
    chapter: str
    title: str


@dataclass(frozen=True)
class Texts:
    """Folders of the project's own texts: the paper's tables, and the documentation."""

    paper: Path
    docs: Path


def parts_of(texts: Sequence[str]) -> list[Part]:
    """Parts as they are given in a command, `NAME=CHAPTER: TITLE`; a `ReportError` for another form."""
    parts = []
    for text in texts:
        name, equals, place = text.partition("=")
        chapter, colon, title = place.partition(": ")
        if not (equals and colon and name and chapter and title):
            raise ReportError(Fault("--part", repr(text), "NAME=CHAPTER: TITLE", "write it so"))
        parts.append(Part(name, chapter, title))
    return parts


def write_page(
    run: Path,
    parts: Sequence[Part],
    texts: Texts,
    out: Path,
    *,
    readme: Path | None = None,
    left_out: Mapping[str, str] | None = None,
    field: Path | None = None,
) -> None:
    """Write the page of a finished run; it appears when it is complete.

    readme : where to say what lies in the run's folder.

    left_out : what this run does not have, by name, and why. field : what `afa league field` made of the cohort's.

    Raises
    ------
    ReportError : something that the page is made of is not there.

    """
    write_text(out, report_page(run, parts, texts, left_out or {}, field))
    if readme is not None:
        write_text(readme, run_readme(run))


def report_page(
    run: Path, parts: Sequence[Part], texts: Texts, left_out: Mapping[str, str], field: Path | None = None
) -> str:
    """The page as HTML."""
    _check_complete(run, parts, texts, left_out)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    cohort = load_cohort(run / "cohort")
    summary = read_summary(run / "summary.csv")
    decisions, errata = document(texts.docs / "decisions.md"), document(texts.docs / "errata.md")
    return page(
        "report.html",
        run=run.name,
        cohort=cohort,
        bundle=load_bundle(run / "bundle"),
        **_compared(run, texts, left_out, cohort.name),
        left_out=left_out,
        measured=_measured(field) if field else {},
        **_figures(_chapters(run, parts, config, provenance["jobs"]), findings(summary)),
        models=language_model(summary),
        leads={chapter: Markup(document(path)) for chapter, path in _leads(parts, texts, left_out).items()},  # noqa: S704
        tables=_tables(run / "published"),
        decisions=Markup(decisions),  # noqa: S704 (of the project's own files)
        errata=Markup(errata),  # noqa: S704
        items=items(decisions) | items(errata),
        rules=by_rule(read_jobs(run / "benchmarks", shards=config["shards"])),
        config=json.dumps(config, indent=1),
        confidence=config["bootstrap"]["confidence"],
        environment=provenance["environment"],
        finished=max((job["ended"] for job in provenance["jobs"]), default=""),
        digests=_digests(run, texts),
        short=SHORT,
        explorer="" if "allocation" in left_out else packed((run / "explorer.html").read_bytes()),
    )


def run_readme(run: Path) -> str:
    """What lies in the folder of a run, as Markdown."""
    cohort, bundle = load_cohort(run / "cohort"), load_bundle(run / "bundle")
    return page("run.md", run=run.name, cohort=cohort, bundle=bundle, version=__version__)


def _measured(field: Path) -> dict[str, Any]:
    from afa.report.league import measured  # noqa: PLC0415 (slow to load, and few runs are of a field)

    return measured(field)


def _chapters(
    run: Path, parts: Sequence[Part], config: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """By chapter, in the order given, its figures with what each was made of."""
    chapters: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        notebook = run / "notebooks" / f"{part.name}.ipynb"
        behind = upstream(f"results/{run.name}/notebooks/{part.name}.ipynb", jobs)
        text = caption(notebook_caption(notebook), config)
        chapters.setdefault(part.chapter, []).append(
            {
                "name": part.name,
                "title": part.title,
                "image": base64.b64encode(notebook_figure(notebook).encode()).decode("ascii"),
                "caption": Markup(text),  # noqa: S704 (escaped by the renderer)
                "notebook": packed(notebook_page(notebook).encode()),
                "behind": _by_command(behind),
            }
        )
    return chapters


def upstream(output: str, jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs, of a provenance file, that `output` depends on, its own last; a file of a folder may be named."""
    jobs = list(jobs)
    wanted, found = {output}, []
    for job in reversed(jobs):
        if any(_within(path, name) or _within(name, path) for path in job["outputs"] for name in wanted):
            wanted |= set(job["inputs"])
            found.append(job)
    return found[::-1]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _figures(chapters: Mapping[str, Sequence[dict[str, Any]]], said: Mapping[str, str]) -> dict[str, Any]:
    """Figures with a finding stand before all others, which are the appendix, by chapter."""
    main = [
        figure | {"finding": said[figure["name"]]}
        for part in chapters.values()
        for figure in part
        if figure["name"] in said
    ]
    rest = {name: [figure for figure in part if figure["name"] not in said] for name, part in chapters.items()}
    return {"main": main, "chapters": {name: part for name, part in rest.items() if part}}


def _leads(parts: Sequence[Part], texts: Texts, left_out: Mapping[str, str]) -> dict[str, Path]:
    """By chapter of the report, the page that opens it; they speak of the paper's cohorts, and open no other's."""
    if "comparison" in left_out:
        return {}
    return {part.chapter: texts.docs / LEADS[part.chapter] for part in parts if part.chapter in LEADS}


def _by_command(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Jobs of one rule gathered: the first one's command, and how many there were."""
    rules: dict[str, dict[str, Any]] = {}
    for job in jobs:
        told = rules.setdefault(job["rule"], {"rule": job["rule"], "count": 0, "command": job["command"], "ended": ""})
        told["count"] += 1
        told["ended"] = max(told["ended"], job["ended"])
        told["code"] = " ".join(dict.fromkeys(job["code"]))
    return list(rules.values())


def _tables(folder: Path) -> list[dict[str, Any]]:
    """The published tables: name, rows, columns, size on disk."""
    told = []
    for path in sorted(folder.glob("*.csv"), key=lambda path: (path.stem != DICTIONARY, path.stem)):
        table = pd.read_csv(path)
        told.append({"name": path.stem, "rows": len(table), "columns": ", ".join(map(str, table.columns))})
    return told


def _digests(run: Path, texts: Texts) -> dict[str, str]:
    """SHA-256 of what the whole run hangs on."""
    return {
        "settings (config.json)": sha256_of(run / "config.json"),
        "cohort, features": sha256_of(run / "cohort" / "features.parquet"),
        "cohort, labels": sha256_of(run / "cohort" / "labels.parquet"),
        "summary.csv": sha256_of(run / "summary.csv"),
        "the paper's claims (claims.csv)": sha256_of(texts.paper / "claims.csv"),
    }


def _compared(run: Path, texts: Texts, left_out: Mapping[str, str], cohort: str) -> dict[str, Any]:
    """What came of the paper's statements; nothing where the run is not compared with it."""
    if "comparison" in left_out:
        return {"lines": []}
    lines, screen = every_line(read_table(run / "comparison", "comparison")), read_table(run / "comparison", "screen")
    carried = [each for each in load_carried(texts.paper / "carried") if each.cohort != cohort]
    return {
        "lines": lines,
        "shapes": paper_shapes(read_table(run / "comparison", "comparison")),
        "verdicts": sorted({word for line in lines for word in line["verdict"].split(", ")}),
        "counted": list(counted(read_table(run / "comparison", "verdicts"))),
        "sentences": sentences(screen),
        "effects": [row | {"words": verdict_words(row)} for row in screen.to_dict("records")],
        "carried": carried,
        "settings": basis(json.loads((run / "config.json").read_text(encoding="utf-8"))) if carried else "",
        "figure": figure(screen, carried, cohort),
        "figure_title": title_of(screen),
        "tenth": lambda value: digits(round(value, 1)),
    }


def _check_complete(run: Path, parts: Sequence[Part], texts: Texts, left_out: Mapping[str, str]) -> None:
    files = [run / name for name in ("config.json", "provenance.json", "summary.csv", "benchmarks")]
    files += [] if "allocation" in left_out else [run / "explorer.html"]
    if "comparison" not in left_out:
        files += [run / "comparison" / f"{name}.parquet" for name in ("comparison", "verdicts", "screen")]
    files += [run / "notebooks" / f"{part.name}.ipynb" for part in parts]
    files += [texts.docs / "decisions.md", texts.docs / "errata.md"]
    files += _leads(parts, texts, left_out).values()
    faults = [
        Fault(str(path), "nothing", "a part of the report", "run the workflow") for path in files if not path.exists()
    ]
    if faults:
        raise ReportError(faults)
