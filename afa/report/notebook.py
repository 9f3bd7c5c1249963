"""Running a figure notebook, with papermill and without any network socket, and making a page of it."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template

import papermill
from nbconvert.exporters.html import HTMLExporter
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from afa.errors import Fault, ReportError
from afa.files import atomic_file
from afa.report.page_parts import style, template


def run_notebook(
    source: str | Path, target: str | Path, parameters: Mapping[str, str], *, page: str | Path | None = None
) -> None:
    """Run the notebook `source` with its parameters set, and write it as it ran to `target` and as HTML to `page`.

    The kernel is spoken to over Unix sockets: it also runs where there is no network device at all. A cell that
    fails is a `ReportError`, and nothing is written.
    """
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    # The path of a Unix socket may have about 100 characters; a home folder's may be longer.
    with tempfile.TemporaryDirectory() as runtime, atomic_file(target) as temporary:
        os.environ["JUPYTER_RUNTIME_DIR"] = runtime
        try:
            notebook = papermill.execute_notebook(
                str(source),
                str(temporary),
                parameters=dict(parameters),
                kernel_name="python3",
                progress_bar=False,
                request_save_on_cell_execute=False,
                # Without a path of its own the kernel binds sockets in the working folder, where another run's may be.
                config=Config({"KernelManager": {"transport": "ipc", "ip": str(Path(runtime) / "kernel")}}),
            )
        except PapermillExecutionError as error:
            found = f"{error.ename}: {error.evalue}"
            step = f"run the notebook by hand with these parameters: {dict(parameters)}"
            raise ReportError(Fault(f"{source}, cell {error.exec_count}", found, "a cell that runs", step)) from error
        finally:
            if before is None:
                del os.environ["JUPYTER_RUNTIME_DIR"]
            else:
                os.environ["JUPYTER_RUNTIME_DIR"] = before
        if page is not None:
            with atomic_file(page) as file:
                file.write_text(notebook_page(notebook, Path(page).stem), encoding="utf-8")


def notebook_page(notebook: NotebookNode, title: str) -> str:
    """The notebook as one HTML page: texts and results without the code, and nothing fetched."""
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",  # the cells alone: the page around them is ours, without a notebook editor's styles
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    body, _ = exporter.from_notebook_node(_with_descriptions(notebook, title))
    return Template(template("notebook.html")).substitute(title=escape(title), style=style("notebook.css"), body=body)


def _with_descriptions(notebook: NotebookNode, title: str) -> NotebookNode:
    """A copy whose pictures are described to those who do not see them: by the notebook's heading."""
    lines = (line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines())
    heading = next((line.removeprefix("# ") for line in lines if line.startswith("# ")), title)
    described = copy.deepcopy(notebook)
    for cell in described.cells:
        cell.metadata.setdefault("alt", f"Figure: {heading}")
    return described
