"""A batch as AFABench hands it over, and as the rows that a planner's state is made of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afa.errors import Fault, PlannerError
from afa.mrf import VALUES

OPEN, PASSED = 2, 3
"""What a row holds beside -1, 0 and 1: a feature that can be had, and one that was asked for and gave no value."""

Row = NDArray[np.int8]


def rows_of(
    masked_features: Any,
    feature_mask: Any,
    selection_mask: Any,
    feature_shape: Sequence[int] | None,
    names: Sequence[str],
) -> tuple[Row, tuple[int, ...]]:
    """Rows (R, M) int8 of a batch `*batch *feature_shape` whose flattened features have these M names; and `batch`.

    feature_mask : bool, True where observed. selection_mask : None, or (*batch, M), True where already asked for.
    feature_shape : the last axis where it is None. A `PlannerError` names the argument of another shape, and the first
    observed value that is not -1, 0 or 1.
    """
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
    values, mask = values.reshape(-1, len(names)), mask.reshape(-1, len(names))
    strange = mask & ~np.isin(values, VALUES)
    if strange.any():
        row, column = (int(index[0]) for index in np.nonzero(strange))
        place = f"masked_features, row {row}, feature {names[column]}"
        raise PlannerError(
            Fault(place, f"{values[row, column]}", "-1, 0 or 1", "encode the measurements as ternary first")
        )
    rows = np.full(values.shape, OPEN, dtype=np.int8)
    rows[mask] = values[mask]
    if selection_mask is not None:
        asked = as_numpy(selection_mask)
        if asked.shape != (*batch, len(names)):
            expected = f"{(*batch, len(names))}: each feature is acquired by itself"
            step = "evaluate with the unmasker that reveals one feature a selection"
            raise PlannerError(Fault("selection_mask", f"{asked.shape}", expected, step))
        rows[asked.reshape(rows.shape).astype(bool) & ~mask] = PASSED
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
