"""A bundle from tables in memory: written as a folder for a moment, so that one reader checks them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import yaml

from afa.bundle.model import Bundle
from afa.bundle.read import load_bundle
from afa.errors import BundleError, Fault

LONG = ["entity", "feature", "potential"]
PAIRS = ["entity", "feature_a", "feature_b", "potential"]


def bundle_of_frames(
    unary: pd.DataFrame,
    pairwise: pd.DataFrame | None,
    name: str,
    version: str,
    costs: Mapping[str, float] | None,
    priors: Mapping[str, float] | None,
) -> Bundle:
    """`Bundle.from_frame`."""
    if not isinstance(unary, pd.DataFrame):
        step = "give pandas.DataFrame(potentials, index=entities, columns=features)"
        raise BundleError(Fault("from_frame", type(unary).__name__, "a DataFrame", step))
    rows, features = _rows(unary)
    couplings = pd.DataFrame(columns=PAIRS) if pairwise is None else pairwise
    entities = list(dict.fromkeys([*rows["entity"], *couplings.get("entity", [])]))
    paired = [str(feature) for side in PAIRS[1:3] for feature in couplings.get(side, [])]
    header = {"name": name, "version": version, "entities": [str(entity) for entity in entities]}
    header["features"] = list(dict.fromkeys([*features, *paired]))
    tables = {"unary.csv": rows, "pairwise.csv": couplings}
    if costs is not None:
        tables["costs.csv"] = pd.DataFrame(list(dict(costs).items()), columns=["feature", "cost"])
    if priors is not None:
        tables["priors.csv"] = pd.DataFrame(list(dict(priors).items()), columns=["entity", "log_odds"])
    with TemporaryDirectory() as folder:
        (Path(folder) / "bundle.yaml").write_text(yaml.safe_dump(header, allow_unicode=True), encoding="utf-8")
        for file, table in tables.items():
            table.to_csv(Path(folder) / file, index=False)
        try:
            return load_bundle(folder)
        except BundleError as error:
            here = f"{folder}/"
            raise BundleError(
                Fault(fault.where.replace(here, "from_frame, "), fault.found, fault.expected, fault.next_step)
                for fault in error.faults
            ) from None


def _rows(unary: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rows of `LONG`, and the features in their order."""
    if "potential" in unary.columns:
        return unary, [str(feature) for feature in dict.fromkeys(unary.get("feature", []))]
    wide = unary.rename_axis(index="entity", columns=None)
    rows = wide.reset_index().melt("entity", var_name="feature", value_name="potential").dropna(subset="potential")
    return rows, [str(feature) for feature in unary.columns]
