"""Reproduce the paper: experiments, baselines, acceptance tests, and a report that compares results with the paper."""
