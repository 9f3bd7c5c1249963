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
from afa.files import sha256_of
from afa.report.benchmarks import by_rule, read_jobs
from afa.report.notebook import notebook_caption, notebook_figure, notebook_page
from afa.report.page_parts import caption, document, items, packed, page
from afa.report.publish import DICTIONARY
from afa.report.screen import basis, load_carried
from afa.report.sections import counted, figure, findings, language_model, paper_shapes, sentences, title_of
from afa.report.verdicts import NOTHING, verdict_words
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


def report_page(
    run: Path, parts: Sequence[Part], texts: Texts, left_out: Mapping[str, str], field: Path | None = None
) -> str:
    """The page of a finished run, as HTML.

    left_out : what this run does not have, by name, and why. field : what `afa league field` made of the cohort's.

    Raises
    ------
    ReportError : something that the page is made of is not there.

    """
    _check_complete(run, parts, texts, left_out)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    cohort = load_cohort(run / "cohort")
    summary = read_summary(run / "summary.csv")
    decisions, errata = document(texts.docs / "decisions.md"), document(texts.docs / "errata.md")
    measured: dict[str, Any] = {}
    if field is not None:
        from afa.report.league import measured as measured_in  # noqa: PLC0415 (slow to load, and few runs are of a field)

        measured = measured_in(field)
    return page(
        "report.html",
        run=run.name,
        cohort=cohort,
        bundle=load_bundle(run / "bundle"),
        **_compared(run, texts, left_out, cohort.name),
        left_out=left_out,
        measured=measured,
        **_figures(run, parts, config, provenance["jobs"], findings(summary)),
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
        digests={
            "settings (config.json)": sha256_of(run / "config.json"),
            "cohort, features": sha256_of(run / "cohort" / "features.parquet"),
            "cohort, labels": sha256_of(run / "cohort" / "labels.parquet"),
            "summary.csv": sha256_of(run / "summary.csv"),
            "the paper's claims (claims.csv)": sha256_of(texts.paper / "claims.csv"),
        },
        short=SHORT,
        explorer="" if "allocation" in left_out else packed((run / "explorer.html").read_bytes()),
    )


def run_readme(run: Path) -> str:
    """What lies in the folder of a run, as Markdown."""
    cohort, bundle = load_cohort(run / "cohort"), load_bundle(run / "bundle")
    return page("run.md", run=run.name, cohort=cohort, bundle=bundle, version=__version__)


def _figures(
    run: Path,
    parts: Sequence[Part],
    config: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    said: Mapping[str, str],
) -> dict[str, Any]:
    """Figures with what each was made of: those with a finding, `main`, and the appendix by chapter, in their order."""
    main: list[dict[str, Any]] = []
    chapters: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        notebook = run / "notebooks" / f"{part.name}.ipynb"
        rules: dict[str, list[Mapping[str, Any]]] = {}
        for job in upstream(f"results/{run.name}/notebooks/{part.name}.ipynb", jobs):
            rules.setdefault(job["rule"], []).append(job)
        figure = {
            "name": part.name,
            "title": part.title,
            "image": base64.b64encode(notebook_figure(notebook).encode()).decode("ascii"),
            "caption": Markup(caption(notebook_caption(notebook), config)),  # noqa: S704 (escaped by the renderer)
            "notebook": packed(notebook_page(notebook).encode()),
            "behind": [
                {
                    "rule": rule,
                    "count": len(made),
                    "command": made[0]["command"],
                    "ended": max(job["ended"] for job in made),
                    "code": " ".join(dict.fromkeys(made[-1]["code"])),
                }
                for rule, made in rules.items()
            ],
        }
        if part.name in said:
            main.append(figure | {"finding": said[part.name]})
        else:
            chapters.setdefault(part.chapter, []).append(figure)
    return {"main": main, "chapters": chapters}


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


def _leads(parts: Sequence[Part], texts: Texts, left_out: Mapping[str, str]) -> dict[str, Path]:
    """By chapter of the report, the page that opens it; they speak of the paper's cohorts, and open no other's."""
    if "comparison" in left_out:
        return {}
    return {part.chapter: texts.docs / LEADS[part.chapter] for part in parts if part.chapter in LEADS}


def _tables(folder: Path) -> list[dict[str, Any]]:
    """The published tables: name, rows, columns, size on disk."""
    told = []
    for path in sorted(folder.glob("*.csv"), key=lambda path: (path.stem != DICTIONARY, path.stem)):
        table = pd.read_csv(path)
        told.append({"name": path.stem, "rows": len(table), "columns": ", ".join(map(str, table.columns))})
    return told


def _compared(run: Path, texts: Texts, left_out: Mapping[str, str], cohort: str) -> dict[str, Any]:
    """What came of the paper's statements; nothing where the run is not compared with it."""
    if "comparison" in left_out:
        return {"lines": []}
    comparison, counts, screen = (read_table(run / "comparison", name) for name in ("comparison", "verdicts", "screen"))
    lines = comparison[comparison["verdict"] != NOTHING].to_dict("records")
    carried = [each for each in load_carried(texts.paper / "carried") if each.cohort != cohort]
    return {
        "lines": lines,
        "words": verdict_words,
        "shapes": paper_shapes(comparison),
        "verdicts": sorted({word for line in lines for word in verdict_words(line).split(", ")}),
        "counted": list(counted(counts)),
        "sentences": sentences(screen),
        "effects": screen.to_dict("records"),
        "carried": carried,
        "settings": basis(json.loads((run / "config.json").read_text(encoding="utf-8"))) if carried else "",
        "figure": figure(screen, carried, cohort),
        "figure_title": title_of(screen),
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
