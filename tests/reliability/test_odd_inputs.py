"""Bundles and cohorts at the edge of what the formats allow: the whole workflow ends with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import bundle_of
from small_run import COHORT, RUN, SmallRun

from afa.model.bundle import Bundle, save_bundle

FEATURES = ("AQP8", "CXCL8", "MMP9", "MUC2", "TFF3")
ODD_NAMES = ("rectal bleeding of others", 'it\'s "so" n=4, 5', "fièvre entity=x", "x" * 200)
PLAIN_NAMES = ("bleeding", "diarrhea", "fistula")


def some_bundle(entities: tuple[str, ...], features: tuple[str, ...] = FEATURES, *, coupled: bool = True) -> Bundle:
    """Each entity names two features, one where there is one, and couples them."""
    n, m = len(entities), len(features)
    unary, couplings = np.zeros((n, m)), np.zeros((n, m, m))
    for v in range(n):
        unary[v, v % m], unary[v, (v + 1) % m] = 1, -1
        if coupled and m > 1:
            couplings[v, v % m, (v + 1) % m] = -1
    return bundle_of(unary, couplings, features=features, entities=entities)


def labels_of(entities: tuple[str, ...], yes: str = "yes") -> dict[str, Any]:
    return {
        name: {
            "key": f"phenotype_{'_'.join(name.split())}",
            "positive": [yes],
            "negative": ["no"],
            "reason": "simulated",
        }
        for name in entities
    }


CASES = {
    "names": (some_bundle(ODD_NAMES), labels_of(ODD_NAMES[:3])),
    "no label": (some_bundle(PLAIN_NAMES), {}),
    "a label that nobody has": (some_bundle(PLAIN_NAMES), labels_of(("bleeding",), yes="never")),
    "no coupling": (some_bundle(PLAIN_NAMES, coupled=False), labels_of(("bleeding",))),
    "one feature": (some_bundle(PLAIN_NAMES, FEATURES[:1]), labels_of(("bleeding",))),
    "one entity": (some_bundle(PLAIN_NAMES[:1]), labels_of(PLAIN_NAMES[:1])),
}
SAID = {
    "names": ("summary.csv", ODD_NAMES[0]),
    "no label": ("report.html", "No labels: labels, labels_needed"),
    "a label that nobody has": ("notebooks/labels.ipynb", "no label with both classes"),
    "one feature": ("notebooks/allocation.ipynb", "no such case"),
    "one entity": ("report.html", "One entity: no duels and no top k: "),
}
"""Where a reader finds what a case has, or has not."""


def set_case(run: SmallRun, case: str, folder: Path) -> None:
    """Give a run the bundle, saved in `folder`, and the cohort of a case."""
    bundle, labels = CASES[case]
    save_bundle(bundle, folder)
    simulation = COHORT["simulation"] | {"prevalences": dict.fromkeys(bundle.entities, 0.5)}
    run.set({"bundle": str(folder)}, {"labels": labels, "simulation": simulation})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """One run, whose bundle and cohort each case changes: what depends on neither is made once."""
    return SmallRun(tmp_path_factory.mktemp("odd") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_whole_workflow_ends_with_a_report(run: SmallRun, case: str, tmp_path: Path) -> None:
    set_case(run, case, tmp_path / "bundle")
    run.finish()
    assert (run.folder / RUN / "report.html").is_file()
    if case in SAID:
        file, words = SAID[case]
        assert words in (run.folder / RUN / file).read_text(encoding="utf-8")
