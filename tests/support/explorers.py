"""A small allocation grid to explore, with names as anyone may write them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from bundles import bundle_of

from afa.cohort.cohort import Cohort
from afa.evaluate.explorer import explore
from afa.evaluate.simulate.walks import SimulationSetting
from afa.paper.experiments.allocation import run
from afa.paper.experiments.settings import Allocation, Inference

ATTACK = "<script>alert(1)</script>"
ENTITIES = (
    ATTACK,
    "quote \" and ' and `",
    "</script><b>bold</b>",
    "größe_&amp;_Δ_日本",
    "plain",
    "a_" * 30 + "long",
    "$&",
)
FEATURES = (
    ATTACK,
    "'\"><img src=x onerror=alert(1)>",
    "$title",
    "line`break",
    "IL\u20116",
    "%{y}",
    "</p>",
    "f_" * 30,
)
K = 4
PATIENTS = (ATTACK, 'O\'Brien "Bob"', "p&x;", "Zoë", "p_4")


def tables_of(bundle, cohort, *, k, rules, gains=("cmi",), schedules=("every",), seeds=(0,)):
    grid = Allocation(rules=tuple(rules), gains=tuple(gains), schedules=tuple(schedules), seeds=tuple(seeds))
    everyone = range(len(cohort.patients))
    return run(bundle, cohort, everyone, allocation=grid, top_k=k, inference=Inference(), threads=1)


def explored_of(bundle, cohort, choices, *, k, most=12):
    return explore(bundle, cohort, choices, SimulationSetting(k=k), most=most)


def run_of(explored, patient, cell):
    """What one patient's steps say of one run, by name."""
    return explored.steps[patient]["runs"][cell]


def rankings(run, score):
    """Order of the entities, best first, and the positions that tie with the one before, at each t."""
    for places in run["places"][score]:
        order = sorted(range(len(places)), key=lambda entity: (places[entity], entity))
        yield order, {i for i in range(1, len(order)) if places[order[i]] == places[order[i - 1]]}


def odd_names():
    """A bundle, a cohort with labels, and what is explored of them, k = `K`; every name is one that could do harm."""
    rng = np.random.default_rng(5)
    n, m = len(ENTITIES), len(FEATURES)
    bundle = bundle_of(
        rng.integers(-4, 5, (n, m)) / 4, rng.integers(-2, 3, (n, m, m)) / 4, features=FEATURES, entities=ENTITIES
    )
    values = rng.integers(-1, 2, (len(PATIENTS), m)).astype(np.int8)
    labels = pd.DataFrame(rng.integers(0, 2, (len(PATIENTS), n - 1)), index=list(PATIENTS), columns=list(ENTITIES[:-1]))
    provenance = {"title": f"A cohort named {ATTACK}", "origin": "simulated", "series": ATTACK}
    cohort = Cohort(ATTACK, bundle.features, PATIENTS, values, labels.astype("Int8"), provenance)
    choices = tables_of(bundle, cohort, k=K, rules=["random", "largest_unary", "priority_all"], seeds=(0, 1))["choices"]
    return SimpleNamespace(bundle=bundle, cohort=cohort, explored=explored_of(bundle, cohort, choices, k=K))
