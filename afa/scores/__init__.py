"""Plain NumPy definitions of the paper's equations: preference scores, gains, brackets and Copeland ranks."""
