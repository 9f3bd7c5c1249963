"""Types of arrays in annotations. Docstrings say the shapes and what the numbers mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Values of ternary features, or signs: -1, 0 or +1."""
