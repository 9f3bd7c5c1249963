"""Notebooks run with their parameters, become pages, and leave nothing behind when a cell fails."""

import re

import nbformat
import pytest

from afa.errors import ReportError
from afa.report.notebook import notebook_caption, notebook_figure, notebook_page, run_notebook


def notebook(path, *cells):
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    first = nbformat.v4.new_code_cell('name = "nobody"', metadata={"tags": ["parameters"]})
    book.cells = [first, *map(nbformat.v4.new_code_cell, cells)]
    nbformat.write(book, path)
    return path


def test_a_notebook_runs_with_the_parameters_it_is_given(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print(name)")
    run_notebook(source, tmp_path / "out.ipynb", {"name": "somebody"})
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert ran.cells[-1].outputs[0]["text"] == "somebody\n"


def test_a_cell_that_fails_is_named_and_nothing_is_written(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "1 / 0")
    with pytest.raises(ReportError, match=r"in\.ipynb, cell .*ZeroDivisionError"):
        run_notebook(source, tmp_path / "out.ipynb", {})
    assert [path.name for path in tmp_path.iterdir()] == ["in.ipynb"]


def test_a_page_shows_what_the_cells_gave_without_their_code_and_fetches_nothing(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print(6 * 7)")
    run_notebook(source, tmp_path / "out.ipynb", {})
    page = notebook_page(tmp_path / "out.ipynb")
    assert "<title>out</title>" in page
    assert "42" in page
    assert "print" not in re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\([\"']?https?:", page)


def test_the_figure_of_a_notebook_stands_outside_its_page(tmp_path):
    lines = """from afa.report.figures import new_figure, save_figure
fig, (axes,) = new_figure(3, 2)
axes.plot([0, 1 / 3], [0, 0.123456])
axes.set_title("0.123456")
save_figure(fig, figure)"""
    source = notebook(tmp_path / "in.ipynb", lines)
    book = nbformat.read(source, as_version=4)
    book.cells.insert(0, nbformat.v4.new_markdown_cell("# 1 < 2 & $more"))
    nbformat.write(book, source)
    ran = tmp_path / "a < b.ipynb"
    run_notebook(source, ran, {"figure": str(tmp_path / "kept.pdf")})
    with pytest.raises(ReportError, match=r"the ending 'word'; expected .*pdf.*svg"):
        run_notebook(source, tmp_path / "no.ipynb", {"figure": str(tmp_path / "kept.word")})
    page, figure = notebook_page(ran), notebook_figure(ran)
    assert page.startswith("<!doctype html>")
    assert "<title>a &lt; b</title>" in page
    assert "1 &lt; 2 &amp; $more</h1>" in page
    assert "<svg" not in page
    assert len(page) < 20_000
    assert figure.startswith("<svg")
    assert ">0.123456<" in figure, "words are left alone"
    assert not re.search(r' d="[^"]*\.\d{3}', figure), "places have two decimals"
    assert (tmp_path / "kept.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ReportError, match="no figure"):
        notebook_figure(source)


def test_the_caption_of_a_notebook_stands_outside_its_page(tmp_path):
    path = notebook(tmp_path / "in.ipynb", "print(6 * 7)")
    with pytest.raises(ReportError, match="no caption"):
        notebook_caption(path)
    book = nbformat.read(path, as_version=4)
    book.cells.append(nbformat.v4.new_markdown_cell("Of {{ cohort }}.", metadata={"tags": ["caption"]}))
    nbformat.write(book, path)
    run_notebook(path, tmp_path / "out.ipynb", {})
    assert notebook_caption(tmp_path / "out.ipynb") == "Of {{ cohort }}."
    assert "cohort" not in notebook_page(tmp_path / "out.ipynb").partition("</head>")[2]


def outputs(source):
    """Each output of the last cell, in order, as text."""
    run_notebook(source, source.with_name("out.ipynb"), {})
    made = nbformat.read(source.with_name("out.ipynb"), as_version=4).cells[-1].outputs
    return [output["text"] if "text" in output else output.data["text/plain"] for output in made]


def test_what_a_cell_displays_keeps_its_order_behind_what_it_prints(tmp_path):
    lines = "from IPython.display import display\nprint('a')\ndisplay(1)\nprint('b')\n2"
    assert outputs(notebook(tmp_path / "in.ipynb", lines)) == ["a\nb\n", "1", "2"]


def test_a_notebook_knows_nothing_of_one_before_it_and_makes_the_same_bytes_again(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print('seen' in globals())\nseen = 1\ndisplay(object())")
    assert outputs(source) == ["False\n", "<object>"]
    first = (tmp_path / "out.ipynb").read_bytes()
    assert outputs(source) == ["False\n", "<object>"]
    assert (tmp_path / "out.ipynb").read_bytes() == first


def test_a_job_that_is_stopped_in_a_cell_stops(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "raise SystemExit(143)")
    with pytest.raises(SystemExit, match="143"):
        run_notebook(source, tmp_path / "out.ipynb", {})
    assert [path.name for path in tmp_path.iterdir()] == ["in.ipynb"]


def test_nothing_is_kept_in_the_home_folder_and_no_socket_is_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "home/.ipython"))
    monkeypatch.setattr("socket.socket.bind", None)
    run_notebook(notebook(tmp_path / "in.ipynb", "1"), tmp_path / "out.ipynb", {})
    assert not (tmp_path / "home").exists()
