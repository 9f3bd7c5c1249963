"""Interfaces to a planner: in a terminal, in JSON lines from another program, or on a web page."""
