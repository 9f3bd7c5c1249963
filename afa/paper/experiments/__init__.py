"""The experiments of the paper, one module each; `declared` lists them, and `base` explains how one is written."""
