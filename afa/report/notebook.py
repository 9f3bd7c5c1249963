"""Running a figure notebook in this process, and making a page of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pandas as pd
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from markupsafe import Markup
from nbformat import NotebookNode
from traitlets import Any as AnyValue
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

    Its cells run in this process: a kernel of their own would be a second Python that loads the same packages. A cell
    that fails is a `ReportError`, and nothing is written.
    """
    notebook = nbformat.read(source, as_version=4)
    _set_parameters(notebook, parameters)
    with _shell() as shell:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                error = shell.run(cell)
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise error
                if error is not None:
                    found = f"{type(error).__name__}: {error}"
                    step = f"run the notebook by hand with these parameters: {dict(parameters)}"
                    where = f"{source}, cell {cell.execution_count}"
                    raise ReportError(Fault(where, found, "a cell that runs", step)) from error
    with atomic_file(target) as temporary:
        nbformat.write(notebook, temporary)


def _set_parameters(notebook: NotebookNode, parameters: Mapping[str, str]) -> None:
    """Put a cell that sets the parameters after the one tagged `parameters`, which has their defaults."""
    tags = ["injected-parameters"]
    lines = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    cell = NotebookNode(cell_type="code", id=tags[0], metadata={"tags": tags}, source=lines)
    tagged = [number for number, each in enumerate(notebook.cells) if "parameters" in each.metadata.get("tags", [])]
    notebook.cells.insert(tagged[0] + 1 if tagged else 0, cell)


class _Results(DisplayHook):
    """What a cell's last line is."""

    shell: _Shell

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        made = {"execution_count": self.prompt_count, "data": format_dict, "metadata": md_dict or {}}
        self.shell.outputs.append(NotebookNode(output_type="execute_result", **made))

    def finish_displayhook(self) -> None:
        self._is_active = False


class _Displayed(DisplayPublisher):
    """What a cell displays."""

    shell: _Shell

    def publish(self, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
        self.shell.outputs.append(NotebookNode(output_type="display_data", data=data, metadata=metadata or {}))


class _Printed(TextIOBase):
    """What a cell writes to standard output or standard error, beside what it displays and in its order."""

    def __init__(self, name: str, shell: _Shell) -> None:
        self._name, self._shell = name, shell

    def write(self, text: str) -> int:
        outputs = self._shell.outputs
        if not (outputs and outputs[-1].output_type == "stream" and outputs[-1].name == self._name):
            outputs.append(NotebookNode(output_type="stream", name=self._name, text=""))
        outputs[-1].text += text
        return len(text)


class _Shell(InteractiveShell):
    """IPython without a terminal: `outputs` has those of the cell that runs."""

    displayhook_class = AnyValue(_Results)
    display_pub_class = AnyValue(_Displayed)
    outputs = AnyValue()

    def run(self, cell: NotebookNode) -> BaseException | None:
        """Run a code cell and fill in its outputs and number; returns what it raised."""
        self.outputs = cell.outputs = []
        with redirect_stdout(_Printed("stdout", self)), redirect_stderr(_Printed("stderr", self)):
            result = self.run_cell(cell.source, store_history=True)  # type: ignore[no-untyped-call]
        cell.execution_count = self.execution_count - 1
        for data in (output.data for output in cell.outputs if "data" in output):  # no two runs have the same addresses
            data["text/plain"] = ADDRESS.sub(">", data.get("text/plain", ""))
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        return error


@contextmanager
def _shell() -> Iterator[_Shell]:
    """A new IPython, which leaves nothing in the user's home. Tables have as many columns as in a notebook."""
    with tempfile.TemporaryDirectory() as folder, pd.option_context("display.max_columns", 20):
        _Shell.clear_instance()
        config = Config({"HistoryAccessor": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}})
        shell = _Shell.instance(ipython_dir=folder, config=config)
        try:
            yield shell
        finally:
            shell.restore_sys_module_state()  # type: ignore[no-untyped-call]
            _Shell.clear_instance()


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
