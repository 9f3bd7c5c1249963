"""A sound bundle, a change that breaks it, and the one fault that is found then."""

from __future__ import annotations

from pathlib import Path

from afa.errors import Fault
from afa.model.bundle import validate_bundle

TINY = Path(__file__).parents[2] / "data" / "bundle_tiny"
UNARY = "entity,feature,potential,confidence,evidence\n"
PAIRWISE = "entity,feature_a,feature_b,potential,confidence,evidence\n"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def only_fault(folder: Path) -> Fault:
    faults, notes = validate_bundle(folder)
    assert len(faults) == 1, list(map(str, faults))
    assert notes == []
    return faults[0]


def check(folder: Path, where: str, found: str, expected: str, next_step: str) -> None:
    """The folder has exactly this fault; `where` is relative to it."""
    fault = only_fault(folder)
    assert fault.where == f"{folder}/{where}"
    assert fault.found == found
    assert fault.expected == expected
    assert fault.next_step == next_step
