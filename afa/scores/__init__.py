"""Plain NumPy definitions of preference scores, gains, brackets and Copeland ranks, as in the paper's equations."""
