"""The reproduction of the paper: experiments, baselines, acceptance tests, and a report that compares the results."""
