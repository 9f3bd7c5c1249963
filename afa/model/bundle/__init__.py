"""A bundle: the elicited potentials of N entities on the same M features.

A bundle is stored as a folder and loaded as a read-only object. The docstring of `afa.model.bundle.format` describes
the files of the folder. The functions that write a bundle are imported lazily because pandas is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afa.model.bundle.model import Bundle, PackedCouplings
from afa.model.bundle.read import load_bundle, validate_bundle

if TYPE_CHECKING:
    from afa.model.bundle.write import bundle_from_frame, save_bundle, stamp_bundle, write_bundle

WRITERS = ("bundle_from_frame", "save_bundle", "stamp_bundle", "write_bundle")
__all__ = [
    "Bundle",
    "PackedCouplings",
    "bundle_from_frame",
    "load_bundle",
    "save_bundle",
    "stamp_bundle",
    "validate_bundle",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in WRITERS:
        raise AttributeError(f"module 'afa.model.bundle' has no attribute {name!r}")
    from afa.model.bundle import write  # noqa: PLC0415

    return getattr(write, name)
