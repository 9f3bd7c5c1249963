"""The experiments of the paper, one in each module. `declared` lists them, and `base` explains how to write a stage."""
