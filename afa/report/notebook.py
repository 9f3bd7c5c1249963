"""Running a figure notebook in this process, and making a page of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pandas as pd
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from traitlets.config import Config

from afa.errors import Fault, ReportError
from afa.files import atomic_file
from afa.report.page_parts import page

if TYPE_CHECKING:
    from nbconvert.exporters.html import HTMLExporter

SVG = "image/svg+xml"
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


def run_notebook(source: str | Path, target: str | Path, parameters: Mapping[str, str]) -> None:
    """Run the notebook `source` with its parameters set, and write it as it ran to `target`.

    Its cells run in this process: a kernel of their own would be a second Python that loads the same packages. What a
    cell prints stands before what it displays. A cell that fails is a `ReportError`, and nothing is written.
    """
    notebook = nbformat.read(source, as_version=4)
    # The cell that sets the parameters stands after the one tagged `parameters`, which has their defaults.
    lines = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    metadata = {"tags": ["injected-parameters"]}
    tagged = [number for number, cell in enumerate(notebook.cells, 1) if "parameters" in cell.metadata.get("tags", [])]
    notebook.cells.insert((tagged or [0])[0], new_code_cell(lines, id="injected-parameters", metadata=metadata))
    with _shell() as shell:
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            with shell.display_trap, capture_output() as captured:
                result = shell.run_cell(cell.source, store_history=True)  # type: ignore[no-untyped-call]
            cell.execution_count = shell.execution_count - 1
            printed = {"stdout": captured.stdout, "stderr": captured.stderr}
            cell.outputs = [new_output("stream", name=name, text=text) for name, text in printed.items() if text]
            for shown in captured.outputs:
                plain = ADDRESS.sub(">", shown.data.get("text/plain", ""))  # no two runs have the same addresses
                data = shown.data | {"text/plain": plain}
                cell.outputs.append(new_output("display_data", data, metadata=shown.metadata))
            error = result.error_before_exec or result.error_in_exec
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise error
            if error is not None:
                found = f"{type(error).__name__}: {error}"
                step = f"run the notebook by hand with these parameters: {dict(parameters)}"
                where = f"{source}, cell {cell.execution_count}"
                raise ReportError(Fault(where, found, "a cell that runs", step)) from error
    with atomic_file(target) as temporary:
        nbformat.write(notebook, temporary)


@contextmanager
def _shell() -> Iterator[InteractiveShell]:
    """A new IPython, which leaves nothing in the user's home. Tables have as many columns as in a notebook."""
    with tempfile.TemporaryDirectory() as folder, pd.option_context("display.max_columns", 20):
        InteractiveShell.clear_instance()
        config = Config({"HistoryAccessor": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}})
        shell = InteractiveShell.instance(ipython_dir=folder, config=config)
        try:
            yield shell
        finally:
            shell.restore_sys_module_state()  # type: ignore[no-untyped-call]
            InteractiveShell.clear_instance()


def notebook_page(path: Path) -> str:
    """A notebook that ran as one HTML page: texts and results without code, figure and caption, and nothing fetched."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if not _is_caption(cell)]
    for cell in notebook.cells:
        cell.outputs = [output for output in cell.get("outputs", []) if SVG not in output.get("data", {})]
    body, _ = _exporter().from_notebook_node(notebook)
    return page("notebook.html", title=path.stem, body=Markup(body))  # noqa: S704 (escaped by nbconvert)


@cache
def _exporter() -> HTMLExporter:
    """What makes HTML of a notebook; its templates are compiled once."""
    from nbconvert.exporters.html import HTMLExporter  # noqa: PLC0415 (slow to load, and a notebook runs without)

    return HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",  # the cells alone: the page around them is ours, without a notebook editor's styles
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )


def notebook_figure(path: Path) -> str:
    """The figure of a notebook that ran, as SVG; a `ReportError` where it has none."""
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]
    found = [output.data[SVG] for output in outputs if SVG in output.get("data", {})]
    if not found:
        raise ReportError(Fault(str(path), "no figure", "a notebook that ran and drew one", "run the workflow"))
    return str(found[0])


def notebook_caption(path: Path) -> str:
    """The words of the cell tagged `caption`, in Markdown; a `ReportError` where there is none."""
    found = [cell.source for cell in nbformat.read(path, as_version=4).cells if _is_caption(cell)]
    if not found:
        raise ReportError(Fault(str(path), "no caption", "a text cell tagged `caption` below the figure", "write one"))
    return str(found[0])


def _is_caption(cell: NotebookNode) -> bool:
    return "caption" in cell.metadata.get("tags", [])
