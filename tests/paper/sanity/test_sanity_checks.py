"""Every gate passes on healthy inputs, fails on each broken copy, and names the case that broke it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.errors import SanityError
from afa.inference.meanfield import Solver
from afa.paper.experiments.sanity import GATES
from afa.paper.sanity import (
    MOST_DESCRIBED,
    CheckResult,
    Failure,
    Gate,
    Subject,
    paths,
    run_gates,
    scores,
    synthetic_subjects,
)

SYNTHETIC = synthetic_subjects(threads=1)
BY_NAME = {gate.name: gate for gate in GATES}
BROKEN = [(gate.name, i) for gate in GATES for i in range(len(gate.perturbed))]


def over(check, subjects=SYNTHETIC):
    return sum((check(subject) for subject in subjects), CheckResult())


def chain_subject() -> Subject:
    """Two entities on two features by hand: S_u = x0 + x0 x1, S_v = 0; one patient, x = (1, 1)."""
    couplings = np.zeros((2, 2, 2))
    couplings[0, 0, 1] = 1.0
    bundle = bundle_of([[1.0, 0.0], [0.0, 0.0]], couplings, entities=("u", "v"))
    return Subject(bundle, ("p",), np.array([[1, 1]], dtype=np.int8), (0,), Solver(), 1)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_gate_passes_on_healthy_models(name: str) -> None:
    outcome = over(BY_NAME[name].check)
    assert outcome.failures == 0, outcome.failing
    assert outcome.cases > 100


@pytest.mark.parametrize(("name", "which"), BROKEN)
def test_a_gate_fails_on_each_copy_broken_on_purpose(name: str, which: int) -> None:
    outcome = over(BY_NAME[name].perturbed[which])
    assert outcome.failures > 0
    assert 0 < len(outcome.failing) <= MOST_DESCRIBED
    assert all(failure.case and failure.found != failure.expected for failure in outcome.failing)


def test_synthetic_subjects_are_the_same_each_time_and_hold_ties_and_an_empty_patient() -> None:
    again = synthetic_subjects(threads=2)
    assert [one.bundle.digest for one in SYNTHETIC] == [one.bundle.digest for one in again]
    assert all(np.array_equal(one.values, other.values) for one, other in zip(SYNTHETIC, again, strict=True))
    assert all(not subject.values[-1].any() for subject in SYNTHETIC)
    energy = SYNTHETIC[0].energies
    assert np.array_equal(energy[:, 0], energy[:, -1])


def test_energies_from_the_potentials_alone_are_those_of_the_model() -> None:
    for subject in SYNTHETIC:
        expected = [
            [subject.bundle.mrf(entity).energy(x) for entity in subject.bundle.entities] for x in subject.values
        ]
        np.testing.assert_allclose(subject.energies, expected, atol=1e-12)


def test_a_changed_potential_is_reported_with_entity_patient_round_and_both_numbers() -> None:
    check = partial(scores.check_energies, altered=scores.one_potential_changed)
    first = check(chain_subject()).failing[0]
    assert first == Failure("random, entity u, patient p, t = 2", "running constant 2", "3 from the potentials")


def test_a_gauge_on_one_class_alone_is_noticed_by_wald_and_by_l1() -> None:
    outcome = partial(scores.check_gauge, share=(1.0, 0.0))(SYNTHETIC[1])
    assert {word for failure in outcome.failing for word in ("wald", "l1") if word in failure.found} == {"wald"}
    assert "as a binary task" in outcome.failing[0].case


def test_the_gauge_that_is_added_reaches_features_outside_the_support() -> None:
    subject = chain_subject()
    wide = replace(subject, bundle=bundle_of([[1.0] + [0.0] * 5] * 2, np.zeros((2, 6, 6))), values=np.ones((1, 6)))
    gauged = scores.with_gauge(wide.closures[0], (1.0, 1.0))
    difference = gauged.mrf(gauged.entities[0]) - gauged.mrf(gauged.entities[1])
    assert len(gauged.support(gauged.entities[0])) > 1
    assert difference.support.tolist() == [0]


def test_scores_that_rest_on_inference_change_with_the_gauge_until_all_is_observed() -> None:
    for subject in SYNTHETIC:
        table = scores.gauge_change(subject).set_index(["score", "t"])
        m = len(subject.bundle.features)
        assert table.loc["two_elbo"].loc[: m - 1, "max_change"].max() > 1e-3
        assert (table.xs(m, level="t")["changed"] == 0).all()
        assert (table.xs(m, level="t")["max_change"] < 1e-9).all()
        assert (table["states"] == 12 * 4).all()


def test_a_solver_that_is_cut_short_is_reported_with_its_sweeps() -> None:
    outcome = paths.check_solves(SYNTHETIC[2], solver=Solver(max_iterations=1, tolerance=1e-12))
    assert outcome.failing[0].found.startswith("no end within 1 sweeps and 10 of coordinate ascent")
    assert "(model entity), patient opposed 0, seed 0, t = 0" in outcome.failing[0].case


def test_an_entropy_counted_twice_puts_the_elbo_above_the_log_partition() -> None:
    outcome = paths.check_solves(SYNTHETIC[0], entropies=2.0)
    assert outcome.failing[0].found.startswith("ELBO ")
    assert outcome.failing[0].expected.startswith("at most log Z = ")


def test_a_budget_of_nothing_calls_too_early_and_the_first_such_call_is_reported() -> None:
    # x0 = 1 puts u ahead; x1 = -1 turns its energy to 0 and the duel to a tie
    subject = replace(chain_subject(), values=np.array([[1, -1]], dtype=np.int8), seeds=(2,))
    assert subject.orders[0, 0].tolist() == [0, 1]
    outcome = paths.check_calls(subject, budget_share=0.0)
    case = "random, pair u against v, patient p, seed 2, t = 1"
    found, expected = "a call for the first by l1_tight", "no call, a tie: 0 at full observation"
    assert outcome.failing[0] == Failure(case, found, expected)
    assert paths.check_calls(subject).failures == 0


def test_a_ranking_by_position_is_reported_with_the_rank_that_changed() -> None:
    first = scores.check_ranks(SYNTHETIC[0], rank=scores.by_position).failing[0]
    assert ", rank " in first.case
    assert first.found.removesuffix(" with entities shuffled") != first.expected


def test_a_gate_whose_broken_copy_passes_is_itself_a_failure() -> None:
    check = BY_NAME["copeland"].check
    gates = [Gate("idle", check, (check,), "nothing")]
    with pytest.raises(SanityError, match=r"sanity check idle \(synthetic\): found no failure among the .* broken on"):
        run_gates(gates, SYNTHETIC[0], SYNTHETIC[1:])


def test_of_several_broken_copies_the_one_noticed_least_counts() -> None:
    def failing(n: int, subject: Subject) -> CheckResult:
        return CheckResult(5, n, (Failure("case", "found", "expected"),) * min(n, MOST_DESCRIBED))

    gates = [Gate("two", partial(failing, 0), (partial(failing, 4), partial(failing, 2)), "nothing")]
    table = run_gates(gates, SYNTHETIC[0], SYNTHETIC[:2])
    assert table["perturbed_failures"].tolist() == [pd.NA, 4]
    gates = [Gate("two", partial(failing, 0), (partial(failing, 4), partial(failing, 0)), "nothing")]
    with pytest.raises(SanityError, match="cannot fail"):
        run_gates(gates, SYNTHETIC[0], SYNTHETIC[:2])


def test_a_failing_gate_is_raised_with_its_name_its_first_case_and_what_to_do() -> None:
    gate = Gate(
        "budget", partial(paths.check_calls, budget_share=0.0), BY_NAME["bracket_soundness"].perturbed, "correct it"
    )
    with pytest.raises(SanityError) as caught:
        run_gates([gate], SYNTHETIC[0], SYNTHETIC[1:2])
    first, second = caught.value.faults
    assert first.where == "sanity check budget (run)"
    assert first.found.startswith("synthetic signs, pair v0 against v")
    assert "cases)" in first.found
    assert first.next_step == "correct it"
    assert second.where == "sanity check budget (synthetic)"


def test_outcomes_add_up_and_keep_the_first_few_cases() -> None:
    wrong = np.array([[True, False], [True, True]])
    one = CheckResult.of(wrong, lambda i, j: Failure(f"{i},{j}", "f", "e"))
    both = one + CheckResult(10, 2, (Failure("late", "f", "e"),) * 2)
    assert (both.cases, both.failures) == (14, 5)
    assert [failure.case for failure in both.failing] == ["0,0", "1,0", "1,1"]
