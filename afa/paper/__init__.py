"""The reproduction of the paper: its experiments, baselines, acceptance checks, comparison and report."""
