"""A batch as AFABench hands it over, and as the rows that a planner's state is made of."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.errors import Fault, PlannerError
from afa.features import Features
from afa.mrf import VALUES

OPEN, PASSED = 2, 3
"""What a row holds beside -1, 0 and 1: a feature that can be had, and one that was asked for and gave no value."""

Row = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Columns:
    """What the M features of a batch are, flattened, and in which S selections they can be had.

    names : M names. selections : columns of each selection, every column in one. table : `features.csv` in the order
    of the columns; a feature with cut points is encoded by them, any other is -1, 0 or 1 as it comes.
    """

    names: tuple[str, ...]
    selections: tuple[tuple[int, ...], ...]
    table: Features | None = None

    def selection_of(self, name: str) -> int:
        """The selection that a feature comes with."""
        column = self.names.index(name)
        return next(i for i, columns in enumerate(self.selections) if column in columns)

    def coded(self, values: NDArray[Any]) -> NDArray[Any]:
        """(R, M) numbers of which those with cut points are -1 below, 1 above, and 0 between."""
        if self.table is None:
            return values
        cut = self.table.has_range & ~self.table.is_binary
        code = np.where(values > self.table.high, 1.0, np.where(values < self.table.low, -1.0, 0.0))
        return np.where(cut & ~np.isnan(values), code, values)


def columns_of(bundle: Bundle, names: Sequence[str], panels: Mapping[str, Sequence[str]]) -> Columns:
    """The columns of a batch for a bundle: a panel is one selection, at the place of its first column."""
    panel_of = {feature: panel for panel, features in panels.items() for feature in features}
    items: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        items.setdefault(panel_of.get(name, name), []).append(column)
    table = None if bundle.rates is None or bundle.rates.table is None else bundle.rates.table.chosen(names)
    return Columns(tuple(names), tuple(map(tuple, items.values())), table)


def rows_of(
    masked_features: Any,
    feature_mask: Any,
    selection_mask: Any,
    feature_shape: Sequence[int] | None,
    columns: Columns,
) -> tuple[Row, tuple[int, ...]]:
    """Rows (R, M) int8 of a batch `*batch *feature_shape` with these columns; and `batch`.

    feature_mask : bool, True where observed. selection_mask : None, or (*batch, S), True where already asked for.
    feature_shape : the last axis where it is None. A `PlannerError` names the argument of another shape, and the first
    observed value that is not -1, 0 or 1, and for which the bundle has no cut points.
    """
    names = columns.names
    values, mask = as_numpy(masked_features), as_numpy(feature_mask)
    shape = values.shape[-1:] if feature_shape is None else tuple(feature_shape)
    batch: tuple[int, ...] = values.shape[: max(values.ndim - len(shape), 0)]
    if values.shape != (*batch, *shape) or int(np.prod(shape)) != len(names):
        expected, step = (
            f"{len(names)} features on the last axes",
            "pass feature_shape, or name the columns by features",
        )
        raise PlannerError(Fault("masked_features", f"{values.shape}, feature_shape {shape}", expected, step))
    if mask.shape != values.shape or mask.dtype != np.bool_:
        found, expected = f"{mask.dtype} {mask.shape}", f"bool {values.shape}, as masked_features"
        raise PlannerError(Fault("feature_mask", found, expected, "pass a mask of the same batch"))
    values, mask = columns.coded(values.reshape(-1, len(names))), mask.reshape(-1, len(names))
    strange = mask & ~np.isin(values, VALUES)
    if strange.any():
        row, column = (int(index[0]) for index in np.nonzero(strange))
        place = f"masked_features, row {row}, feature {names[column]}"
        step = "give the feature cut points in the bundle's features.csv, or encode it as ternary first"
        raise PlannerError(Fault(place, f"{values[row, column]}", "-1, 0 or 1", step))
    rows = np.full(values.shape, OPEN, dtype=np.int8)
    rows[mask] = values[mask]
    if selection_mask is not None:
        asked = as_numpy(selection_mask)
        if asked.shape != (*batch, len(columns.selections)):
            expected = f"{(*batch, len(columns.selections))}: each feature by itself, or with its panel"
            step = "put what the unmasker reveals at once into panels, or into one measurement of groups.csv"
            raise PlannerError(Fault("selection_mask", f"{asked.shape}", expected, step))
        asked = asked.reshape(len(rows), -1).astype(bool)
        for i, members in enumerate(columns.selections):
            gone = np.ix_(asked[:, i], np.array(members))
            rows[gone] = np.where(mask[gone], rows[gone], PASSED)
    return rows, batch


def as_numpy(given: Any) -> NDArray[Any]:
    """An array of any kind as NumPy's; a tensor of torch may be on another device or part of a graph."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = given.detach().cpu()
    return np.asarray(given)


def alike(answer: NDArray[Any], given: Any) -> Any:
    """The answer as a tensor on the same device where the batch is one of torch, which is then already imported."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return torch.from_numpy(answer).to(given.device)
    return answer
