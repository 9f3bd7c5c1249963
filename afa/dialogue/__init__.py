"""Talking with a planner: in a terminal, or line by line in JSON from another program."""
