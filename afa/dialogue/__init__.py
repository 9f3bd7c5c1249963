"""Use a planner in a terminal, on a web page, or from another program through JSON lines."""
