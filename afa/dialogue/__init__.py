"""Talking with a planner: in a terminal, line by line in JSON from another program, or on a page."""
