"""The experiments of the paper. `declared` lists the stages, and `base` explains how to write a stage."""
