"""The paper's errors as checks with a number, run each time: a function an item, one table (docs/errata.md)."""
