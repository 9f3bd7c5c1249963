"""Bundles: potentials of N entities on one space of M features, as folders and as read-only objects.

`afa.bundle.format` describes the folder. What writes bundles is imported when it is first used: it brings pandas, which
is slow to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afa.bundle.model import Bundle, PackedCouplings
from afa.bundle.read import load_bundle, validate_bundle

if TYPE_CHECKING:
    from afa.bundle.write import save_bundle, stamp_bundle, write_bundle

__all__ = ["Bundle", "PackedCouplings", "load_bundle", "save_bundle", "stamp_bundle", "validate_bundle", "write_bundle"]


def __getattr__(name: str) -> Any:
    if name not in ("save_bundle", "stamp_bundle", "write_bundle"):
        raise AttributeError(f"module 'afa.bundle' has no attribute {name!r}")
    from afa.bundle import write  # noqa: PLC0415

    return getattr(write, name)
