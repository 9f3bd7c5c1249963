"""Find the folder of a run (`located`) and show a figure's caption (`show_caption`) in figure notebooks.

A figure's caption is the first argument of `show_caption` in the notebook's cell tagged `caption`. The notebook
replaces the placeholders of the caption by values. The report copies the caption from the executed notebook. The
workflow also passes the caption to Snakemake's report.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

from afa.errors import Fault, ReportError
from afa.evaluate.method_names import with_display_names

if TYPE_CHECKING:
    from afa.cohort.cohort import Cohort

TAG = "caption"
FIELDS = ("cohort", "confidence")
"""Fields in braces that a caption may have: the name of the run's cohort, and the confidence level of its intervals."""


def located(path: str | Path) -> Path:
    """Return the folder of a run, which a notebook gives as a relative path such as `../results/demo`.

    Jupyter runs a notebook in the notebook's folder. Papermill and most editors run a notebook in the project's folder.
    If the folder `../results/demo` does not exist, the folder `results/demo` is tried.
    """
    folder = Path(path)
    above = Path(*folder.parts[1:]) if folder.parts[:1] == ("..",) else folder
    for place in (folder, above):
        if place.is_dir():
            return place
    step = "make the run (make reproduce), or set `run` and `paper` in the cell tagged `parameters`"
    raise ReportError(Fault(str(path), f"no such folder, seen from {Path.cwd()}", "a finished run", step))


def caption_of(notebook: str | Path) -> str:
    """Return the caption in a notebook, with placeholders in braces. If the notebook does not exist, return "".

    Raises
    ------
    ReportError : no cell is tagged `caption`, or it does not end with `show_caption("...", run, patients)`.

    """
    path = Path(notebook)
    if not path.is_file():
        return ""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if TAG in cell["metadata"].get("tags", [])]
        call = ast.parse(code[0]).body[-1].value  # type: ignore[attr-defined]
        words = ast.literal_eval(call.args[0])
        fill_caption(words, "", 0.95)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, SyntaxError) as error:
        expected = 'a cell tagged `caption` with show_caption("...", run, patients)'
        found = f"no caption ({type(error).__name__}: {error})"
        raise ReportError(Fault(str(path), found, expected, "write it below the figure")) from None
    return " ".join(words.split())


def fill_caption(words: str, cohort: str, confidence: float) -> str:
    """Return the caption with its placeholders replaced by values.

    >>> fill_caption("Bands are {confidence} over patients of {cohort}.", "demo", 0.95)
    'Bands are 95 % over patients of demo.'
    """
    return with_display_names(words).format(cohort=cohort, confidence=f"{100 * confidence:g} %")


def show_caption(words: str, run: str | Path, patients: Cohort, confidence: float | str = "") -> None:
    """Show a figure's caption as Markdown, with its placeholders (`FIELDS`) replaced by values.

    Parameters
    ----------
    confidence : confidence level of the intervals. The workflow passes it. If a notebook is run by hand, it is read
        from the run's settings

    """
    from IPython.display import Markdown, display  # noqa: PLC0415 (not needed to read captions)

    if "{confidence}" in words and not confidence:
        settings = json.loads((Path(run) / "config.json").read_text(encoding="utf-8"))
        confidence = settings["bootstrap"]["confidence"]
    filled = fill_caption(" ".join(words.split()), patients.name, float(confidence or 0))
    display(Markdown(filled))  # type: ignore[no-untyped-call]
