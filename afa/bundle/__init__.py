"""Bundles: potentials of N entities on one space of M features, as folders and as read-only objects.

`afa.bundle.format` describes the folder.
"""

from afa.bundle.model import Bundle, PackedCouplings
from afa.bundle.read import load_bundle, validate_bundle
from afa.bundle.write import save_bundle, stamp_bundle, write_bundle

__all__ = [
    "Bundle",
    "PackedCouplings",
    "load_bundle",
    "save_bundle",
    "stamp_bundle",
    "validate_bundle",
    "write_bundle",
]
