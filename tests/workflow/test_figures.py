"""Figures as outputs of a run: made by papermill, shown in Snakemake's report, and none where a cell fails."""

import json
import re
import shutil

import nbformat
import pytest
from small_run import ROOT, RUN, SmallRun

from afa.paper.report.cells import caption_of, fill_caption

pytestmark = pytest.mark.slow
FIGURES = tuple(f"{RUN}/figures/{name}.{form}" for name in ("cohort", "bundle") for form in ("pdf", "svg"))
SPY = """import sys
if "notebook" in sys.orig_argv:
    import papermill
    execute = papermill.execute_notebook
    def spy(notebook, *arguments, **options):
        with open("papermill.txt", "a") as calls:
            print(notebook.cells[0].source.splitlines()[0], file=calls)
        return execute(notebook, *arguments, **options)
    papermill.execute_notebook = spy
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small run of two figures, with a list of the notebooks that papermill was given."""
    run = SmallRun(tmp_path_factory.mktemp("figures") / "checkout")
    (run.folder / "notebooks").unlink()
    shutil.copytree(ROOT / "notebooks", run.folder / "notebooks")
    (run.folder / "spy").mkdir()
    (run.folder / "spy" / "sitecustomize.py").write_text(SPY, encoding="utf-8")
    attempt = run.start(*FIGURES, before='export PYTHONPATH="$PWD/spy:$PYTHONPATH";')
    assert attempt.wait() == 0, attempt.said()
    return run


def test_papermill_ran_each_notebook_once_and_its_parameters_stand_in_what_is_kept(small):
    calls = (small.folder / "papermill.txt").read_text(encoding="utf-8").splitlines()
    assert len(calls) == len(set(calls)) == 2
    for name in ("cohort", "bundle"):
        ran = nbformat.read(small.folder / RUN / "notebooks" / f"{name}.ipynb", as_version=4)
        injected = [cell.source for cell in ran.cells if "injected-parameters" in cell.metadata.tags]
        figure = f'figure = "{RUN}/figures/{name}"'
        assert injected == [f'# Parameters\nrun = "{RUN}"\npaper = "resources/paper"\n{figure}\n']
        assert str(small.folder) not in json.dumps(ran)


def test_a_figure_that_is_made_again_has_the_same_bytes(small):
    names = [*FIGURES, *(f"{RUN}/notebooks/{name}.ipynb" for name in ("cohort", "bundle"))]
    before = {name: (small.folder / name).read_bytes() for name in names}
    small.finish(*FIGURES, "--forcerun", "cohort_notebook", "bundle_notebook")
    assert {name: (small.folder / name).read_bytes() for name in names} == before


def test_snakemakes_report_shows_the_figures_by_chapter_with_their_captions(small):
    small.finish(*FIGURES, "--report", "report.html")
    page = (small.folder / "report.html").read_text(encoding="utf-8")
    assert "cohort.svg" in page
    assert "patients, encoding and labels" in page
    caption = fill_caption(caption_of(ROOT / "notebooks" / "cohort.ipynb"), "small", 0.95)
    assert caption.partition(".")[0] in page


def test_a_failing_cell_is_named_in_the_log_and_no_figure_is_kept(small):
    path = small.folder / "notebooks" / "cohort.ipynb"
    source = path.read_text(encoding="utf-8")
    book = nbformat.reads(source, as_version=4)
    book.cells[-1].source = "1 / 0"
    nbformat.write(book, path)
    attempt = small.start(*FIGURES)
    assert attempt.wait() != 0
    path.write_text(source, encoding="utf-8")
    log = (small.folder / RUN / "logs" / "cohort_notebook.log").read_text(encoding="utf-8")
    assert re.search(r"notebooks/cohort\.ipynb, code cell \d+, line 1: found ZeroDivisionError: division by zero", log)
    assert "Traceback" not in log
    assert not (small.folder / RUN / "notebooks" / "cohort.ipynb").exists()
    assert not list((small.folder / RUN / "figures").glob("cohort.*"))
