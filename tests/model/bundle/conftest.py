"""Bundles to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faulty import PAIRWISE, TINY, UNARY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny bundle without digests."""
    copy = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    header = copy / "bundle.yaml"
    header.write_text(header.read_text().partition("digests:")[0])
    return copy


@pytest.fixture
def free(tmp_path: Path) -> Path:
    """A bundle whose header lists neither entities nor features."""
    (tmp_path / "bundle.yaml").write_text('name: free\nversion: "1"\n')
    (tmp_path / "unary.csv").write_text(UNARY + "late,g3,1,,\nearly,g1,1,,\n")
    (tmp_path / "pairwise.csv").write_text(PAIRWISE + "other,g2,g3,1,,\n")
    return tmp_path
