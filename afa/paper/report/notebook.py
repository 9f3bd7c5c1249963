"""Execute a figure notebook with papermill, in a separate Jupyter kernel."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# nbformat imports jsonschema, and jsonschema imports rfc3987_syntax if this package is installed. The import of
# rfc3987_syntax takes two seconds. The next line prevents this import. The import is not needed: rfc3987_syntax checks
# the syntax of web addresses, and the notebook format has no field that must be a web address.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import nbformat  # noqa: E402
import papermill  # noqa: E402
from nbclient.exceptions import DeadKernelError  # noqa: E402
from nbformat import NotebookNode  # noqa: E402
from papermill.exceptions import PapermillExecutionError  # noqa: E402
from traitlets.config import Config  # noqa: E402

from afa.errors import Fault, ReportError  # noqa: E402
from afa.io.files import atomic_file  # noqa: E402

FIGURE = "figure"
"""Name of the notebook parameter with the path of the figure. The path has no suffix."""
FORMS = (".pdf", ".svg")
"""Suffixes with which `afa.evaluate.figures.save_figure` saves the figure of a notebook."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>|&gt;)")
KERNEL_SETTINGS = """\
c = get_config()
c.HistoryManager.enabled = False
c.InteractiveShellApp.ignore_cwd = True  # the package of this environment, not a folder `afa` of the working directory
"""
START_SECONDS = 600
"""Time limit for the start of a kernel. On a busy node or a slow file system, Python alone takes a minute to start."""


def run_notebook(source: str | Path, target: str | Path, parameters: Mapping[str, str]) -> None:
    """Run the notebook `source` by papermill, and write the executed notebook to `target`.

    Repeated executions write identical files, because three things are removed from the notebook: execution times,
    memory addresses of objects, and the text that cells write to stderr. Text that cells write to stderr is printed to
    the stderr of the calling process. The kernel reads no user settings and listens on no network port.

    Parameters
    ----------
    source : a notebook. Papermill inserts the parameters after the cell tagged `parameters`.
    target : path of the executed notebook. If a cell fails, no notebook and no figure is written.
    parameters : name -> value. Each parameter must have a default in the cell tagged `parameters`.

    Raises
    ------
    ReportError : `source` is no notebook, a parameter is unknown, or a cell fails.

    """
    notebook = read_notebook(source)
    known = papermill.inspect_notebook(notebook)
    if unknown := sorted(set(parameters) - set(known)):
        found, expected = f"no parameter {', '.join(unknown)}", ", ".join(known) or "a cell tagged `parameters`"
        raise ReportError(Fault(str(source), found, expected, "name one of these, or add its default to that cell"))
    try:
        ran = _execute_notebook(notebook, str(source), parameters)
    except BaseException:
        for form in FORMS if parameters.get(FIGURE) else ():
            Path(f"{parameters[FIGURE]}{form}").unlink(missing_ok=True)
        raise
    with atomic_file(target) as temporary:
        nbformat.write(_drop_run_details(ran, notebook), temporary)


def read_notebook(path: str | Path) -> NotebookNode:
    """Return the notebook at `path`. Raise a `ReportError` if the file is not a notebook."""
    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)
    except (ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReportError(Fault(str(path), f"no notebook ({words})", "a Jupyter notebook", "correct it")) from None
    return notebook


def _execute_notebook(notebook: NotebookNode, source: str, parameters: Mapping[str, str]) -> NotebookNode:
    """Execute the notebook with the given parameters, and return the executed copy."""
    step = f"open the notebook and run it with these parameters: {dict(parameters)}"
    try:
        with _isolated_kernel() as config:
            ran: NotebookNode = papermill.execute_notebook(
                notebook,
                None,
                dict(parameters),
                kernel_name="python3",
                language="python",
                progress_bar=sys.stderr.isatty(),
                stderr_file=sys.stderr,
                start_timeout=START_SECONDS,
                coalesce_streams=True,
                record_timing=False,
                config=config,
            )
    except PapermillExecutionError as error:
        place, found = _error_place(error, injected=bool(parameters)), f"{error.ename}: {error.evalue}"
        raise ReportError(Fault(f"{source}, {place}", found, "a cell that runs", step)) from None
    except (DeadKernelError, RuntimeError) as error:
        expected = "a kernel that runs to the last cell: it may have been killed for want of memory"
        raise ReportError(Fault(source, f"{type(error).__name__}: {error}", expected, step)) from None
    # Check that all cells were executed, because papermill reports no error if a cell calls `exit()`.
    if any(cell.cell_type == "code" and cell.source.strip() and not cell.execution_count for cell in ran.cells):
        raise ReportError(Fault(source, "a cell that leaves Python", "cells that all run", step))
    return ran


def _error_place(error: PapermillExecutionError, *, injected: bool) -> str:
    """Return the number of the code cell and the line in which an error occurred.

    The cell of parameters, which papermill inserts, is not counted.
    """
    lines = re.findall(r"Cell In\[\d+\], line (\d+)", ADDRESS.sub("", _strip_colours("\n".join(error.traceback))))
    number = (error.exec_count or 0) - injected
    return f"code cell {number}" + (f", line {lines[-1]}" if lines else "")


def _strip_colours(text: str) -> str:
    """Return the text without codes for terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@contextmanager
def _isolated_kernel() -> Iterator[Config]:
    """Yield the configuration of a Jupyter kernel that uses no network port and no file in the user's home folder.

    A network port would have two problems: two kernels that start at the same time can get the same port, and other
    users of the machine can see the port.
    """
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        profile = Path(folder, "profile_default")
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text(KERNEL_SETTINGS, encoding="utf-8")
        places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        settings = dict.fromkeys(places, folder) | {"JUPYTER_NO_CONFIG": "1", "JUPYTER_PATH": ""}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield Config({"KernelManager": {"transport": "ipc", "connection_file": str(Path(folder, "k.json"))}})
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _drop_run_details(ran: NotebookNode, source: NotebookNode) -> NotebookNode:
    """Return the executed notebook without the parts that differ between runs."""
    written = {
        name: ran.metadata.papermill[name] for name in ("parameters", "version") if name in ran.metadata.papermill
    }
    ran.metadata = source.metadata | {"papermill": written}
    for cell in ran.cells:
        cell.metadata.pop("papermill", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                texts = output if output.output_type == "stream" else output.data
                for form in {"text", "text/plain", "text/html"} & set(texts):
                    texts[form] = ADDRESS.sub("", texts[form])
    return ran
