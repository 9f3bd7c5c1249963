"""Simulate acquisition, compute accuracies with intervals, update bundles with labels, and compare methods."""
