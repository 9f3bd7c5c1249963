"""papermill runs notebooks with parameters, to the same bytes each time; nothing is kept where a cell fails."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from unittest import mock

import nbformat
import papermill
import pytest

from afa.errors import ReportError
from afa.paper.report.notebook import run_notebook
from afa.paper.report.notebook_page import notebook_caption, notebook_page

DRAW = """from afa.evaluate.figures import new_figure, save_figure
fig, (axes,) = new_figure(3, 2)
axes.plot([0, 1 / 3], [0, 0.123456])
axes.set_title("0.123456")
save_figure(fig, figure)"""


def notebook(path, *cells, text=None):
    """A notebook with two parameters and these cells of code; `text` stands first."""
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "of-another-machine", "display_name": "Python 3", "language": "python"}
    parameters = 'name = "none"\nfigure = ""'
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    book.cells = [first, *map(nbformat.v4.new_code_cell, cells)]
    if text is not None:
        book.cells.insert(0, nbformat.v4.new_markdown_cell(text))
    nbformat.write(book, path)
    return path


def outputs(path):
    """Each output of the last cell of a notebook that ran, in order, as text."""
    made = nbformat.read(path, as_version=4).cells[-1].outputs
    return [output["text"] if "text" in output else output.data["text/plain"] for output in made]


def test_papermill_runs_the_cells_after_the_parameters_that_it_injects(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print(name)")
    with mock.patch.object(papermill, "execute_notebook", wraps=papermill.execute_notebook) as spy:
        run_notebook(source, tmp_path / "out.ipynb", {"name": "somebody"})
    assert spy.call_count == 1
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert [cell.metadata.get("tags") for cell in ran.cells] == [["parameters"], ["injected-parameters"], []]
    assert ran.cells[1].source == '# Parameters\nname = "somebody"\n'
    assert ran.metadata.papermill == {"parameters": {"name": "somebody"}, "version": papermill.__version__}
    assert outputs(tmp_path / "out.ipynb") == ["somebody\n"]


def test_two_runs_have_the_same_bytes_without_addresses_times_warnings_and_paths(tmp_path, capsys):
    lines = """import sys, warnings
from IPython.display import HTML, display
warnings.warn("beware")
print("a", object())
display(object(), HTML("&lt;object at 0x7f00&gt;"))
print("b")
sys.path[0], name"""
    source = notebook(tmp_path / "in.ipynb", lines)
    for stem in ("first", "second"):
        run_notebook(source, tmp_path / f"{stem}.ipynb", {"name": "x"})
    first, second = ((tmp_path / f"{stem}.ipynb").read_bytes() for stem in ("first", "second"))
    assert first == second
    assert str(tmp_path).encode() not in first
    assert not re.search(rb"20\d\d-\d\d-\d\d|duration", first)
    shown = outputs(tmp_path / "first.ipynb")
    assert not re.search("0x[0-9a-f]|beware|ipykernel", "".join(shown))
    assert shown[0] == "a <object object>\nb\n", "what is printed is one text, before what is displayed"
    assert shown[1] == "<object>"
    assert not shown[-1].startswith("('',"), "the working directory is no place to import from"
    assert "beware" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x = 1\n1 / 0", r"in\.ipynb, code cell 3, line 2: found ZeroDivisionError: division by zero; expected a cell"),
        ("raise SystemExit(0)", r"in\.ipynb: found a cell that leaves Python"),
        ("raise SystemExit(3)", r"in\.ipynb, code cell 3.*: found SystemExit: 3"),
        ("import os; os._exit(9)", r"in\.ipynb: found DeadKernelError: "),
    ],
)
def test_a_cell_that_fails_is_named_and_neither_notebook_nor_figure_is_kept(tmp_path, cell, said):
    source = notebook(tmp_path / "in.ipynb", 'open(figure + ".svg", "w").close()', cell, "print(1)")
    with pytest.raises(ReportError, match=said) as failed:
        run_notebook(source, tmp_path / "out.ipynb", {"figure": str(tmp_path / "drawn")})
    assert "Next step: open the notebook and run it with these parameters: {'figure':" in str(failed.value)
    assert "\x1b" not in str(failed.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.ipynb"]


@pytest.mark.parametrize("signal", [SIGTERM, SIGKILL])
def test_a_job_that_is_cancelled_or_killed_leaves_no_kernel_and_no_notebook(tmp_path, signal):
    cell = 'import os, time\nprint(1)\nopen(figure + ".svg", "w").write(str(os.getpid()))\ntime.sleep(600)'
    source, drawn = notebook(tmp_path / "in.ipynb", cell), tmp_path / "drawn.svg"
    words = ["notebook", str(source), "--out", str(tmp_path / "out.ipynb"), "-p", f"figure={tmp_path / 'drawn'}"]
    job = subprocess.Popen([Path(sys.executable).with_name("afa"), *words])
    try:
        kernel = int(wait_for(lambda: drawn.is_file() and drawn.read_text()))
    finally:
        job.send_signal(signal)
    assert job.wait(60) == (128 + SIGTERM if signal == SIGTERM else -SIGKILL)
    wait_for(lambda: not Path(f"/proc/{kernel}").exists())
    assert not (tmp_path / "out.ipynb").exists()
    assert not (drawn.exists() and signal == SIGTERM)


def wait_for(made, seconds=120):
    """What `made` returns as soon as that is true."""
    limit = time.monotonic() + seconds
    while not (found := made()):
        assert time.monotonic() < limit
        time.sleep(0.1)
    return found


def test_an_unknown_parameter_and_a_file_that_is_no_notebook_are_one_error_each(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "1")
    with pytest.raises(ReportError, match=r"in\.ipynb: found no parameter nmae; expected name, figure"):
        run_notebook(source, tmp_path / "out.ipynb", {"nmae": "x"})
    for text in ("{", "[]", "3", '{"cells": 3}'):
        (tmp_path / "no.ipynb").write_text(text)
        with pytest.raises(ReportError, match=r"no\.ipynb: found no notebook"):
            run_notebook(tmp_path / "no.ipynb", tmp_path / "out.ipynb", {})
    assert not (tmp_path / "out.ipynb").exists()


def test_a_kernel_reads_and_leaves_nothing_in_the_home_folder_and_listens_on_no_port(tmp_path, monkeypatch):
    startup = tmp_path / "home/.ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "first.py").write_text("name = 'of the user'; changed = True")
    kernels = tmp_path / "home/.local/share/jupyter/kernels/python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text('{"argv": ["false"], "display_name": "broken", "language": "python"}')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "home/.ipython"))
    before = sorted((tmp_path / "home").rglob("*")), dict(os.environ)
    lines = 'import ipykernel\n"changed" in globals(), ipykernel.get_connection_info(unpack=True)["transport"]'
    run_notebook(notebook(tmp_path / "in.ipynb", lines), tmp_path / "out.ipynb", {})
    assert outputs(tmp_path / "out.ipynb") == ["(False, 'ipc')"]
    assert (sorted((tmp_path / "home").rglob("*")), dict(os.environ)) == before


def test_a_page_shows_what_the_cells_gave_without_their_code_and_figure_and_fetches_nothing(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print(6 * 7)", DRAW, text="# 1 < 2 & $more")
    ran = tmp_path / "a < b.ipynb"
    run_notebook(source, ran, {"figure": str(tmp_path / "kept")})
    page = notebook_page(ran)
    assert page.startswith("<!doctype html>")
    assert "<title>a &lt; b</title>" in page
    assert "1 &lt; 2 &amp; $more</h1>" in page
    assert "42" in page
    assert "print" not in re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\([\"']?https?:", page)
    assert "<svg" not in page
    assert len(page) < 20_000
    figure = (tmp_path / "kept.svg").read_text(encoding="utf-8")
    assert figure.startswith("<svg")
    assert ">0.123456<" in figure, "words are left alone"
    assert not re.search(r' d="[^"]*\.\d{3}', figure), "places have two decimals"
    assert (tmp_path / "kept.pdf").read_bytes().startswith(b"%PDF")
    shown = nbformat.read(ran, as_version=4).cells[-1].outputs[0].data["image/svg+xml"]
    assert shown == figure, "the notebook shows the figure that is kept"


def test_the_caption_is_what_the_tagged_cell_showed_and_stands_outside_the_page(tmp_path):
    source = notebook(
        tmp_path / "in.ipynb", "print(6 * 7)", 'from IPython.display import Markdown\nMarkdown("Of *x*.")'
    )
    book = nbformat.read(source, as_version=4)
    book.cells[-1].metadata["tags"] = ["caption"]
    nbformat.write(book, source)
    with pytest.raises(ReportError, match="no caption"):
        notebook_caption(source)
    run_notebook(source, tmp_path / "out.ipynb", {})
    assert notebook_caption(tmp_path / "out.ipynb") == "Of *x*."
    assert "Of <em>" not in notebook_page(tmp_path / "out.ipynb").partition("</head>")[2]
