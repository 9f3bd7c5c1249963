"""The sanity stage: checks that must hold in every run, and what is reported beside them (supp:sanity)."""
