"""The experiments of the paper, one in each module. `declared` lists them; `base` explains how to write one."""
