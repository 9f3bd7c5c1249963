"""Readable definitions of the paper's equations in NumPy: preference scores, gains, brackets, Copeland ranks."""
