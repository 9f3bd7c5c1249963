"""The optimal policy on small sampled problems, and how near the rules come to it (docs/frontier.md has the table).

    python benchmarks/optimal.py --out results/bench [--problems 30]

A problem has 5 entities with sampled Markov random fields over 7 ternary features, and a background of independent
features. The value of a policy is the expected overlap of its top k after t features with the top k at full
observation, divided by k. Every patient of the background counts with its probability, so that values are exact. The
optimum is computed by dynamic programming over all 4^7 states of observation. It chooses features and answers as well
as possible for this t. The rule `myopic` always chooses as if the next feature were the last. Writes `optimal.csv` and
prints the table.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.io.files import write_csv
from afa.model.bundle import Bundle, PackedCouplings
from afa.model.mrf import VALUES
from afa.planner import TopKPlanner
from afa.scores.belief import Background, ScoreTable

N, M, ROUNDS = 5, 7, (1, 2, 3, 4)
OPEN = len(VALUES)
"""Index of an unobserved feature in a state of observation; the other indices are those of `VALUES`."""
RULES: dict[str, dict[str, Any]] = {
    "frontier": {"score": "background"},
    "priority_all": {"gain": "cmi"},
    "greedy": {"gain": "cmi", "allocation": "greedy"},
    "largest_unary": {"allocation": "largest_unary"},
}
Floats = NDArray[np.float64]


def problem(seed: int, n: int = N, m: int = M) -> tuple[Bundle, Background]:
    """A bundle with sampled potentials, most couplings 0, and the probabilities of each feature's values."""
    random = np.random.default_rng(seed)
    unary = random.normal(size=(n, m)) * (random.random((n, m)) < 0.7)
    dense = random.normal(size=(n, m, m)) * np.triu(random.random((n, m, m)) < 0.2, 1)
    entity, row, column = np.nonzero(dense)
    pointer = np.searchsorted(entity, np.arange(n + 1)).astype(np.int64)
    packed = PackedCouplings(pointer, row.astype(np.int32), column.astype(np.int32), dense[entity, row, column])
    names = [tuple(f"{letter}{i}" for i in range(size)) for letter, size in (("v", n), ("f", m))]
    bundle = Bundle("sampled", "1", *names, unary, packed, np.zeros(n))
    return bundle, Background(random.dirichlet(np.ones(3), m), "patients", "sampled frequencies")


class Problem:
    """The expected values of all states of observation.

    Attributes
    ----------
    inside : (4, ..., 4, N) float64
        Probability that each entity is in the top k at full observation, by state. One axis for each feature.
    value : (4, ..., 4) float64
        Largest expected overlap of an answer, divided by k, by state.

    """

    def __init__(self, bundle: Bundle, background: Background, k: int) -> None:
        self.bundle, self.background, self.k, self.p = bundle, background, k, background.probabilities
        m = len(bundle.features)
        rows = np.array(list(product(VALUES, repeat=m)), dtype=np.int8)
        scores = ScoreTable.of_bundle(bundle).scores(rows)
        top = scores >= np.sort(scores, axis=1)[:, -k, None]
        inside = top.astype(np.float64).reshape(*[len(VALUES)] * m, -1)
        for j in range(m):
            mean = np.tensordot(self.p[j], inside, axes=(0, j))
            inside = np.concatenate([inside, np.expand_dims(mean, j)], axis=j)
        self.inside, self.value = inside, np.sort(inside, axis=-1)[..., -k:].mean(axis=-1)

    def step(self, value: Floats, *, best: bool) -> Floats:
        """The value of each state before one more feature, which is the best for `value` or a random one."""
        found = np.full(value.shape, -np.inf) if best else np.zeros(value.shape)
        count = np.zeros(value.shape)
        for j, p in enumerate(self.p):
            here = (slice(None),) * j + (OPEN,)
            after = np.tensordot(p, value.take(range(len(VALUES)), axis=j), axes=(0, j))
            found[here] = np.maximum(found[here], after) if best else found[here] + after
            count[here] += 1
        return np.where(count > 0, found if best else found / np.maximum(count, 1), value)

    def of_all(self, rounds: int, *, best: bool) -> float:
        """The value after some rounds of the optimal policy, or of random choices."""
        value = self.value
        for _ in range(rounds):
            value = self.step(value, best=best)
        return float(value[(OPEN,) * len(self.p)])

    def of_rule(self, rounds: int, options: dict[str, Any] | None) -> tuple[Floats, Floats]:
        """The values of a planner after 0 to `rounds` features: with its own answers, and with the best answers.

        Without options the rule is `myopic`, whose answers are the best.
        """
        own, best = np.zeros(rounds + 1), np.zeros(rounds + 1)
        states: list[tuple[float, dict[int, int]]] = [(1.0, {})]
        for t in range(rounds + 1):
            following = []
            for chance, seen in states:
                at = tuple(seen.get(j, OPEN) for j in range(len(self.p)))
                best[t] += chance * self.value[at]
                planner = None if options is None else self._planner(seen, options)
                own[t] += chance * (self.value[at] if planner is None else self._right(planner, at))
                if t < rounds:
                    feature = self._myopic(at) if planner is None else self._next(planner)
                    following += [(chance * p, seen | {feature: x}) for x, p in enumerate(self.p[feature])]
            states = following
        return own, best

    def _planner(self, seen: dict[int, int], options: dict[str, Any]) -> TopKPlanner:
        background = {"background": self.background} if options.get("score") == "background" else {}
        planner = TopKPlanner(self.bundle, k=self.k, **background, **options)
        for j, x in seen.items():
            planner.observe(self.bundle.features[j], VALUES[x])
        return planner

    def _right(self, planner: TopKPlanner, at: tuple[int, ...]) -> float:
        """The expected overlap of a planner's answer, divided by k."""
        answer = [self.bundle.entities.index(name) for name in planner.top_k()]
        return float(self.inside[at][answer].mean())

    def _next(self, planner: TopKPlanner) -> int:
        return self.bundle.features.index(str(planner.next_feature()))

    def _myopic(self, at: tuple[int, ...]) -> int:
        after = [
            self.p[j] @ [self.value[(*at[:j], x, *at[j + 1 :])] for x in range(len(VALUES))] if x == OPEN else -np.inf
            for j, x in enumerate(at)
        ]
        return int(np.argmax(after))


def measure(problems: int, rounds: int = max(ROUNDS)) -> pd.DataFrame:
    """The values of every policy by problem, k and t."""
    rows = list[dict[str, object]]()
    for k in (1, 2):
        for seed in range(problems):
            of = Problem(*problem(seed), k)
            found = {name: of.of_rule(rounds, options) for name, options in ({"myopic": None} | RULES).items()}
            for name, best in (("optimal", True), ("random", False)):
                found[name] = (np.array([of.of_all(t, best=best) for t in range(rounds + 1)]),) * 2
            rows += [
                {"problem": seed, "k": k, "policy": name, "t": t, "own": own[t], "best": best[t]}
                for name, (own, best) in found.items()
                for t in range(rounds + 1)
            ]
        sys.stderr.write(f"k = {k}\n")
    return pd.DataFrame(rows)


def as_text(table: pd.DataFrame) -> str:
    """Means over the problems by policy and t, and the largest distance from the optimum."""
    parts = []
    for answers in ("own", "best"):
        wide = table.pivot_table(index=["k", "policy"], columns="t", values=answers)
        optimum = table[table["policy"] == "optimal"].set_index(["problem", "k", "t"])["best"]
        lost = table.join(optimum.rename("optimum"), on=["problem", "k", "t"])
        wide["largest loss"] = lost.assign(lost=lost["optimum"] - lost[answers]).groupby(["k", "policy"])["lost"].max()
        parts.append(f"{answers} answers\n{wide.round(3).to_string()}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=30, help="number of sampled problems")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    table = measure(given.problems)
    given.out.mkdir(parents=True, exist_ok=True)
    write_csv(table, given.out / "optimal.csv")
    sys.stdout.write(as_text(table))


if __name__ == "__main__":
    main()
