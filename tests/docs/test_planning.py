"""The notebook that a data scientist copies runs from top to bottom, anywhere, and shows what it promises."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from afa.paper.report.notebook import run_notebook

SOURCE = Path(__file__).parents[2] / "docs" / "planning.ipynb"


def test_the_notebook_runs_from_top_to_bottom_with_nothing_but_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_notebook(SOURCE, tmp_path / "ran.ipynb", {})
    cells = [cell for cell in nbformat.read(tmp_path / "ran.ipynb", as_version=4).cells if cell.cell_type == "code"]
    shown = ["".join(str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs) for cell in cells]
    assert "gauges" in shown[1]
    assert "4 observed; dirty_condenser" in shown[4]
    assert "dirty_condenser" in shown[6]
    assert "at least 0.8" in shown[6]
    assert "19 patients" in shown[-3]
    assert "patients with gaps are kept" in SOURCE.read_text(encoding="utf-8")
    assert "best separates" in shown[-1]
    pictures = [output for cell in cells for output in cell.outputs if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == 3
