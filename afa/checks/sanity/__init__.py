"""The sanity stage: checks that must hold in every run, and what is reported beside them (supp:sanity)."""

from afa.checks.sanity.decisions import COPELAND, FULL_OBSERVATION, SOUNDNESS
from afa.checks.sanity.gauge import GAUGE
from afa.checks.sanity.solves import MEAN_FIELD

GATES = (FULL_OBSERVATION, GAUGE, MEAN_FIELD, SOUNDNESS, COPELAND)
