"""The equations of the paper, readable, in NumPy: preference scores, information gains, brackets, Copeland ranks."""
