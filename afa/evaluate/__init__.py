"""Evaluation of planners: simulated acquisition, accuracy with intervals, labelled patients, the league of fields."""
