"""Write the report of a run as one self-contained HTML page.

The page is assembled from the files of a run and from the project's documents. This module computes no numbers. The
notebooks and the explorer are embedded in the page as gzip-compressed base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from afa import __version__
from afa.cohort.cohort import Cohort, load_cohort
from afa.errors import Fault, ReportError
from afa.evaluate.inputs import load_inputs
from afa.evaluate.long_tables import read_table
from afa.evaluate.page_parts import MARKDOWN, document, items, packed, page
from afa.evaluate.summary import read_summary
from afa.io.files import sha256_of
from afa.model.bundle import load_bundle
from afa.paper.report.benchmarks import by_rule, read_jobs
from afa.paper.report.notebook_page import notebook_caption, notebook_page
from afa.paper.report.screen import basis, load_stored_effects
from afa.paper.report.sections import (
    choosing,
    complexity,
    counted,
    errata_title,
    f_target_said,
    figure,
    findings,
    language_model,
    not_run,
    paper_shapes,
    rounds_said,
    sentences,
    settings_beside,
    title_of,
    voter_ranges,
    voters_said,
)
from afa.paper.report.verdicts import NOTHING_TO_REPRODUCE, verdict_words

SHOWN_DIGITS = 12
"""Number of digits of a digest that the page shows. `provenance.json` has all digits."""
CHAPTER_PAGES = {"Past the paper": "past_the_paper.md"}
"""Chapter -> the page of `docs` with which the chapter begins."""
COMPARISON_TABLES = ("comparison", "verdicts", "screen", "voters")
"""Tables of the comparison with the paper."""


def report_html(
    run: Path, parts: Mapping[str, str], paper: Path, docs: Path, left_out: Mapping[str, str], field: Path | None = None
) -> str:
    """Return the report of a finished run as one HTML page.

    Parameters
    ----------
    parts : name of a figure's notebook -> its place as `CHAPTER: TITLE`, in the order of the page
    paper, docs : folders of the paper's tables and of the project's documentation
    left_out : name of a part that this run lacks -> reason
    field : folder with the results of `afa league field` for the cohort, or None

    Raises
    ------
    ReportError : a file needed for the page is missing.

    """
    # A page of `docs` about the paper is included only if the run is compared with the paper.
    chapters = () if "comparison" in left_out else {place.partition(": ")[0] for place in parts.values()}
    leads = {chapter: docs / name for chapter, name in CHAPTER_PAGES.items() if chapter in chapters}
    _check_complete(run, [*parts], [docs / "decisions.md", docs / "errata.md", *leads.values()], left_out)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    cohort = load_cohort(run / "cohort")
    summary = read_summary(run / "summary.csv")
    jobs = read_jobs(run / "benchmarks", shards=config["shards"])
    decisions, errata = document(docs / "decisions.md"), document(docs / "errata.md")
    measured: dict[str, Any] = {}
    if field is not None:
        from afa.paper.report.league import (  # noqa: PLC0415 (slow to import, and few runs are of a field)
            field_report_values as measured_in,
        )

        measured = measured_in(field)
    return page(
        "report.html",
        run=run.name,
        cohort=cohort,
        bundle=load_bundle(run / "bundle"),
        **_comparison_values(run, paper, left_out, cohort, summary),
        left_out=left_out,
        measured=measured,
        **_figures(run, parts, provenance["jobs"], findings(summary)),
        models=language_model(summary),
        choosing=choosing(summary),
        f_target=f_target_said(summary, jobs, len(cohort.patients)),
        leads={chapter: Markup(document(path)) for chapter, path in leads.items()},  # noqa: S704
        decisions=Markup(decisions),  # noqa: S704 (of the project's own files)
        errata=Markup(errata),  # noqa: S704
        errata_title=errata_title((docs / "errata.md").read_text(encoding="utf-8")),
        items=items(decisions) | items(errata),
        rules=by_rule(jobs),
        config=json.dumps(config, indent=1),
        confidence=config["bootstrap"]["confidence"],
        environment=provenance["environment"],
        made_with=provenance["made_with"],
        finished=max((job["ended"] for job in provenance["jobs"]), default=""),
        digests={
            "settings (config.json)": sha256_of(run / "config.json"),
            "cohort, features": sha256_of(run / "cohort" / "features.parquet"),
            "cohort, labels": sha256_of(run / "cohort" / "labels.parquet"),
            "summary.csv": sha256_of(run / "summary.csv"),
            "the paper's claims (claims.csv)": sha256_of(paper / "claims.csv"),
        },
        short=SHOWN_DIGITS,
        explorer="" if "allocation" in left_out else packed((run / "explorer.html").read_bytes()),
    )


def run_readme(run: Path) -> str:
    """Return a README in Markdown that describes the files in a run's folder."""
    cohort, bundle = load_cohort(run / "cohort"), load_bundle(run / "bundle")
    return page("run.md", run=run.name, cohort=cohort, bundle=bundle, version=__version__)


def _figures(
    run: Path,
    parts: Mapping[str, str],
    jobs: Sequence[Mapping[str, Any]],
    said: Mapping[str, str],
) -> dict[str, Any]:
    """Return the figures of the report. Each figure is listed with all jobs on which it depends.

    `said` maps the name of each figure before the appendix to a sentence about the figure. In the result, `main` lists
    the figures before the appendix, and `chapters` lists the figures of each chapter of the appendix.
    """
    main: list[dict[str, Any]] = []
    chapters: dict[str, list[dict[str, Any]]] = {}
    for name, place in parts.items():
        chapter, _, title = place.partition(": ")
        notebook = run / "notebooks" / f"{name}.ipynb"
        rules: dict[str, list[Mapping[str, Any]]] = {}
        for job in upstream(f"results/{run.name}/notebooks/{name}.ipynb", jobs):
            rules.setdefault(job["rule"], []).append(job)
        figure = {
            "name": name,
            "title": title,
            "image": base64.b64encode((run / "figures" / f"{name}.svg").read_bytes()).decode("ascii"),
            "caption": Markup(MARKDOWN.render(notebook_caption(notebook))),  # noqa: S704 (escaped by the renderer)
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
        if name in said:
            main.append(figure | {"finding": said[name]})
        else:
            chapters.setdefault(chapter, []).append(figure)
    return {"main": main, "chapters": chapters}


def upstream(output: str, jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the jobs on which the file `output` depends. `jobs` are the jobs of a provenance file.

    The last job is the job that wrote `output`.
    """
    jobs = list(jobs)
    wanted, found = {output}, []
    for job in reversed(jobs):
        if any(_is_within(path, name) or _is_within(name, path) for path in job["outputs"] for name in wanted):
            wanted |= set(job["inputs"])
            found.append(job)
    return found[::-1]


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _comparison_values(
    run: Path, paper: Path, left_out: Mapping[str, str], cohort: Cohort, summary: pd.DataFrame
) -> dict[str, Any]:
    """Return the values that the report's template needs for the comparison with the paper.

    If the run is not compared with the paper, the values are empty lists.
    """
    if "comparison" in left_out:
        return {"lines": [], "not_run": []}
    comparison, counts, screen, voters = (read_table(run / "comparison", name) for name in COMPARISON_TABLES)
    carried = [each for each in load_stored_effects(paper / "carried") if each.cohort != cohort.name]
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    printed = pd.read_csv(paper / "hyperparams.csv", dtype=str)
    bundle, _ = load_inputs(run / "bundle", run / "cohort")
    return {
        "lines": comparison[comparison["verdict"] != NOTHING_TO_REPRODUCE].to_dict("records"),
        "words": verdict_words,
        "shapes": paper_shapes(comparison),
        "counted": list(counted(counts)),
        "sentences": sentences(screen),
        "voters_said": voters_said(screen, voters),
        "effects": screen.to_dict("records"),
        "spread": voter_ranges(voters),
        "carried": carried,
        "settings": basis(config) if carried else "",
        "figure": figure(screen, carried, cohort.name, voters),
        "rounds_said": rounds_said(len(cohort.features)),
        "settings_beside": settings_beside(printed, config, len(bundle.entities), len(cohort.features)),
        "complexity": complexity(summary, bundle, len(cohort.patients) * len(config["random_order"]["seeds"])),
        "not_run": not_run(comparison, cohort.name),
        "figure_title": title_of(screen),
    }


def _check_complete(run: Path, parts: Sequence[str], texts: Sequence[Path], left_out: Mapping[str, str]) -> None:
    names = ["config.json", "provenance.json", "summary.csv", "benchmarks"]
    names += [] if "allocation" in left_out else ["explorer.html"]
    if "comparison" not in left_out:
        names += [f"comparison/{name}.parquet" for name in COMPARISON_TABLES]
    names += [name for part in parts for name in (f"notebooks/{part}.ipynb", f"figures/{part}.svg")]
    lacking = [path for path in (*(run / name for name in names), *texts) if not path.exists()]
    if lacking:
        raise ReportError([Fault(str(path), "nothing", "a part of the report", "run the workflow") for path in lacking])
