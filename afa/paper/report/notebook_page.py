"""Extract two parts of an executed notebook for the report: its texts and results as HTML, and its figure's caption."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup
from nbformat import NotebookNode

from afa.errors import Fault, ReportError
from afa.evaluate.page_parts import page
from afa.paper.report.cells import TAG
from afa.paper.report.notebook import read_notebook

if TYPE_CHECKING:
    from nbconvert.exporters.html import HTMLExporter

SVG_TYPE = "image/svg+xml"
MARKDOWN_TYPE = "text/markdown"


def notebook_page(path: Path) -> str:
    """Return the texts and results of an executed notebook as one HTML page.

    The page contains neither the code, nor the figure, nor the caption of the figure.
    """
    notebook = read_notebook(path)
    notebook.cells = [cell for cell in notebook.cells if not _is_caption(cell)]
    for cell in notebook.cells:
        cell.outputs = [output for output in cell.get("outputs", []) if SVG_TYPE not in output.get("data", {})]
    body, _ = _exporter().from_notebook_node(notebook)
    return page("notebook.html", title=path.stem, body=Markup(body))  # noqa: S704 (escaped by nbconvert)


@cache
def _exporter() -> HTMLExporter:
    """Return the exporter from notebooks to HTML. The exporter is cached, because its creation takes time."""
    from nbconvert.exporters.html import HTMLExporter  # noqa: PLC0415 (slow to load)

    return HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",  # export only the cells; our template notebook.html adds the rest of the page
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )


def notebook_caption(path: Path) -> str:
    """Return the caption of an executed notebook, in Markdown. Raise a `ReportError` if the caption is missing."""
    outputs = [output for cell in read_notebook(path).cells if _is_caption(cell) for output in cell.get("outputs", [])]
    found = [output.data[MARKDOWN_TYPE] for output in outputs if MARKDOWN_TYPE in output.get("data", {})]
    if not found:
        expected = "a notebook that ran, with `show_caption` in a cell tagged `caption`"
        raise ReportError(Fault(str(path), "no caption", expected, "run the workflow"))
    return str(found[0])


def _is_caption(cell: NotebookNode) -> bool:
    return TAG in cell.metadata.get("tags", [])
