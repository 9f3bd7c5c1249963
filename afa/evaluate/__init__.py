"""Evaluate planners: simulated acquisition, intervals of accuracy, updates by labelled patients, data set league."""
