"""Run a notebook of the project in the test's own process, because a Jupyter kernel takes two seconds to start."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

NO_HISTORY = Config({"HistoryManager": {"enabled": False}})
SVG = "image/svg+xml"
FOLDER = Path(__file__).parents[2] / "notebooks"


class Ran(NamedTuple):
    """What a notebook printed and displayed as text, the SVG figures that it displayed, and its variables."""

    text: str
    figures: list[str]
    variables: dict[str, Any]


def run_cells(name, **parameters):
    """Run the code cells of a notebook, with these values of its parameters instead of the defaults."""
    shell = InteractiveShell.instance(config=NO_HISTORY, user_module=ModuleType("cells_of_a_notebook"))
    shell.reset(new_session=False)
    texts, figures = [], []
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        with capture_output() as captured, pd.option_context("display.max_columns", 20):  # as in a kernel
            ran = shell.run_cell("".join(cell["source"]))
        ran.raise_error()
        if "parameters" in cell["metadata"].get("tags", []):
            shell.user_ns.update(parameters)
        shown = [output.data for output in captured.outputs]
        shown += [] if ran.result is None else [shell.display_formatter.format(ran.result)[0]]
        texts += [captured.stdout, *(data.get("text/markdown", data["text/plain"]) for data in shown)]
        figures += [data[SVG] for data in shown if SVG in data]
    return Ran("\n".join(texts), figures, dict(shell.user_ns))
