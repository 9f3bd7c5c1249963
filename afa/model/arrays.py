"""Names of array types for annotations.

The shape of an array and the meaning of its numbers are in the docstring of each function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Ternary values or signs: each number is -1, 0 or +1."""
