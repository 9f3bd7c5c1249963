"""Notebooks run with their parameters, become pages, and leave nothing behind when a cell fails."""

import re
from pathlib import Path

import nbformat
import pytest

from afa.errors import ReportError
from afa.report.notebook import run_notebook


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
        run_notebook(source, tmp_path / "out.ipynb", {}, page=tmp_path / "out.html")
    assert [path.name for path in tmp_path.iterdir()] == ["in.ipynb"]


def test_a_page_shows_what_the_cells_gave_without_their_code_and_fetches_nothing(tmp_path):
    source = notebook(tmp_path / "in.ipynb", "print(6 * 7)")
    run_notebook(source, tmp_path / "out.ipynb", {}, page=tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<title>out</title>" in page
    assert "42" in page
    assert "print" not in re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\([\"']?https?:", page)


def test_a_page_is_the_cells_in_a_frame_of_its_own_and_its_pictures_are_described(tmp_path):
    picture = "from IPython.display import Image\nImage(b'no real picture', format='png')"
    source = notebook(tmp_path / "in.ipynb", picture)
    book = nbformat.read(source, as_version=4)
    book.cells.insert(0, nbformat.v4.new_markdown_cell("# 1 < 2 & $more"))
    nbformat.write(book, source)
    run_notebook(source, tmp_path / "out.ipynb", {}, page=tmp_path / "a < b.html")
    page = (tmp_path / "a < b.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<title>a &lt; b</title>" in page
    assert "1 &lt; 2 &amp; $more</h1>" in page
    assert re.search(r'<img alt="Figure: 1 &lt; 2 &amp; \$more" src="data:image/png', page)
    assert len(page) < 20_000


def test_the_kernel_listens_on_no_network_port(tmp_path):
    check = "import json, ipykernel\nprint(json.load(open(ipykernel.get_connection_file()))['transport'])"
    run_notebook(notebook(tmp_path / "in.ipynb", check), tmp_path / "out.ipynb", {})
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert ran.cells[-1].outputs[0]["text"] == "ipc\n"


def test_the_sockets_of_two_kernels_are_never_the_same_ones(tmp_path):
    """Two notebooks may run at once in one folder; each kernel's sockets lie in a folder of its own."""
    check = "import json, ipykernel\nprint(json.load(open(ipykernel.get_connection_file()))['ip'])"
    paths = []
    for name in ("first", "second"):
        run_notebook(notebook(tmp_path / "in.ipynb", check), tmp_path / f"{name}.ipynb", {})
        ran = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
        paths.append(ran.cells[-1].outputs[0]["text"].strip())
    assert len({Path(path).parent for path in paths}) == 2
    assert all(Path(path).is_absolute() for path in paths)
