"""The declarations of all stages of the workflow: inputs, tables, and rows of the summary.

The code of a stage is in the module or folder of the same name next to this file. `afa.paper.experiments.base` explains
how to write a stage. This module imports no numerical package, so that Snakemake reads it quickly.
"""

from __future__ import annotations

from afa.paper.experiments.base import LAYER0, Stage

STAGES: dict[str, Stage] = {
    "gauge": Stage(
        settings=("gauge", "inference"),
        sharded=True,
        duels=True,
        tables={
            "agreement": "patient seed t method agree duels cohort bundle",
            "rounds": (
                "patient seed t method reference target right duels right_first duels_first right_prior_wrong"
                " duels_prior_wrong cohort bundle"
            ),
            "scalars": (
                "patient seed t entity_a entity_b two_elbo_true two_elbo_maxent stack_a_true stack_a_maxent cohort"
                " bundle"
            ),
            "targets": "patient entity_a entity_b likelihood clinical conclusive cohort bundle",
            "solves": "patient t model solves iterations capped ascended cohort bundle",
        },
        summary_tables={
            "gauge_agreement": "do the closure and the true gauge give the same decisions?",
            "gauge_correlation": "how do the scores by the closure and by the true gauge correlate?",
            "gauge_accuracy": "how accurate are decisions by the closure and by the true gauge?",
        },
        single=("scalars",),
    ),
    "sign": Stage(
        settings=("random_order", "inference"),
        sharded=True,
        duels=True,
        tables={
            "rounds": (
                "patient seed t method right duels right_first duels_first right_prior_wrong duels_prior_wrong"
                " solves iterations capped ascended cohort bundle start"
            ),
            "duels": "patient entity_a entity_b winner",
            "orders": "patient method different compared",
        },
        summary_tables={
            "sign_accuracy_random": "how early does a score decide each duel as at full observation, with features in"
            " random order?"
        },
    ),
    "chaos": Stage(
        settings=("chaos", "inference"),
        sharded=True,
        duels=True,
        tables={
            "duels": "patient entity_a entity_b winner cohort bundle",
            "flips": "patient seed_set definition flips runs magnitude nonzero cohort bundle",
            "rounds": "patient t seed_set method right duels cohort bundle",
        },
        summary_tables={
            "chaos_gap": "is the lead of `linearity` over `wald` larger for patients whose signs flip often?"
        },
    ),
    "layer1": Stage(
        settings=("layer1", "inference"),
        sharded=True,
        duels=True,
        tables={
            "calls": "patient allocation seed bracket t called wrong tied cohort bundle",
            "left_open": "patient allocation bracket magnitude duels never never_support cohort bundle",
            "pairs": "patient duels tied cohort bundle",
            "steps": "patient allocation seed bracket step called cohort bundle",
        },
        summary_tables={"bracket_rate": "how many duels does each bracket resolve, and how many wrongly?"},
    ),
    "layer0": Stage(
        settings=("layer0.clusters", "top_k", "inference"),
        duels=True,
        tables={
            **LAYER0,
            "layer0": (
                "cohort bundle n_clusters paper criterion rule entities needed most_dominators clusters_out"
                " entities_out contradicted"
            ),
        },
        summary_tables={
            "layer0_bundle": "what does Layer 0 remove on the bundle, how many certificates are false, and how much "
            "does `greedy` gain?"
        },
    ),
    "layer0_synthetic": Stage(
        inputs=("portfolio",),
        settings=("layer0.simulated", "inference"),
        tables={
            "clusters": LAYER0["clusters"],
            "configurations": "bundle letter story entities features patients printed_separation",
            "layer0": LAYER0["layer0"],
            "lift": LAYER0["lift"],
            "patients": LAYER0["patients"],
        },
        summary_tables={
            "layer0_synthetic": "what does Layer 0 remove among synthetic entities, and how much does `greedy` gain?"
        },
    ),
    "allocation": Stage(
        settings=("allocation", "top_k", "inference"),
        sharded=True,
        duels=True,
        summary_inputs=("chaos",),
        tables={
            "choices": (
                "cohort bundle allocation gain schedule seed patient t feature fallback resolved resolved_wrong"
                " certified"
            ),
            "rounds": (
                "cohort bundle allocation gain schedule seed patient t method right right_first right_prior_wrong"
                " p_at_k clinical_p_at_k clinical_r_precision"
            ),
            "frontier": (
                "cohort bundle background patient t feature fallback right right_first right_prior_wrong p_at_k"
                " clinical_p_at_k clinical_r_precision"
            ),
            "duels": "patient entity_a entity_b winner prior_wrong cohort bundle",
            "targets": "patient entity top label k k_clinical cohort bundle",
        },
        in_all_parts=("duels", "targets"),
        summary_tables={
            "allocation_sign": "how accurate are signs under each allocation rule?",
            "allocation_p_at_k": "how precise is the top k under each allocation rule?",
            "certified_round": "after how many rounds can the top k no longer change?",
            "acquisition_saved": "how many measurements does a rule save at equal accuracy?",
            "allocation_frontier": "how accurate are signs and the top k under the rule `frontier`?",
            "bracket_rate": "",
        },
    ),
    "voters": Stage(
        inputs=("bundle", "cohort", "study", "unary", "pairwise"),
        settings=("random_order", "chaos", "top_k", "inference", "closure", "bootstrap"),
        duels=True,
        elicited=True,
        summary_settings=None,
        tables={
            "numbers": (
                "voter table metric quantity method guide gain allocation schedule stratum variant entity target"
                " reference coupling start level t value low high n"
            ),
            "bundles": "voter pairs shared features couplings cohort bundle",
        },
    ),
    "stopping": Stage(
        inputs=("bundle", "cohort", "allocation"),
        settings=("stopping", "top_k", "inference", "closure"),
        scopes=True,
        sharded=True,
        duels=True,
        tables={
            "tasks": (
                "cohort bundle patient coupling entity allocation gain stopping level t stopped decision likelihood"
                " clinical"
            ),
            "top_k": "cohort bundle patient allocation gain stopping level t stopped members wrong",
        },
        summary_tables={
            "stopping": "how early does each stopping rule stop, and how often does the answer differ from that of "
            "full observation?"
        },
    ),
    "binary": Stage(
        settings=("random_order.seeds", "inference", "closure"),
        scopes=True,
        tables={
            "steps": (
                "patient allocation gain guide seed step t wald two_elbo stack_a l1_tight l1_paper hanson_wright entity"
                " cohort bundle"
            ),
            "targets": "patient entity likelihood clinical score cohort bundle",
            "tasks": "entity features support shift cohort bundle",
        },
        summary_tables={
            "binary": "how accurate are the decisions for each phenotype as a binary task?",
            "bracket_rate": "",
        },
    ),
    "calibration": Stage(
        inputs=("bundle", "cohort", "binary"),
        settings=("calibration.rounds", "inference", "closure"),
        scopes=True,
        tables={
            "odds": "patient entity seed t raw calibrated inference coupling cohort bundle",
            "targets": "patient entity likelihood clinical coupling cohort bundle",
            "left_out": "coupling entity reason",
            "reliability": "bin cases probability positive coupling inference kind target t",
        },
        summary_tables={"calibration": "do probabilities agree with the frequency of right answers?"},
        single=("odds",),
    ),
    "labels": Stage(
        inputs=("bundle", "cohort", "by_cohort"),
        settings=("labels", "inference"),
        scopes=True,
        labels=True,
        tables={
            "labels": "patient entity label cohort bundle",
            "left_out": "entity cohort bundle",
            "controls": "reference coupling entity allocation seed control t observed raw calibrated cohort bundle",
            "null": (
                "reference coupling entity allocation t permutation auroc balanced_accuracy"
                " balanced_accuracy_calibrated"
                " cohort bundle"
            ),
            "scores": (
                "reference coupling variant entity allocation seed patient t observed raw calibrated label cohort"
                " bundle"
            ),
            "tasks": (
                "reference coupling variant entity threshold strength support contraction factor positive negative"
                " shift"
                " cohort bundle"
            ),
            "whole": "reference coupling patient entity score cohort bundle",
        },
        summary_tables={
            "labels": "how well do scores separate patients with a label from patients without it, by reference of the "
            "encoding and by closure?",
            "controls": "how often is the answer *no* for a healthy control, as it should be?",
            "specificity": "does an entity's own score predict its label better than the scores of the other entities?",
            "null": "how good are the scores of `labels` with the genes of the bundle shuffled?",
        },
    ),
    "labels_needed": Stage(
        inputs=("bundle", "cohort", "by_cohort", "labels"),
        settings=("labels_needed",),
        scopes=True,
        labels=True,
        figure=("Past the paper", "classifiers by labelled patients"),
        tables={
            "left_out": "entity size reason cohort bundle",
            "predictions": "reference method permuted entity size repeat allocation t patient log_odds cohort bundle",
            "splits": "entity size repeat seed labelled labelled_positive tested tested_positive cohort bundle",
            "zero_shot": "reference coupling entity allocation seed patient t calibrated label cohort bundle",
        },
        summary_tables={
            "labels_needed": "how many labelled patients does a classifier need to do as well as the zero-shot score?"
        },
    ),
    "accurate": Stage(
        settings=("accurate", "top_k", "closure.strength", "inference"),
        duels=True,
        tables={
            "duels": "patient t method entity_a entity_b mean_field accurate cohort bundle",
            "sets": "patient t k shared right_mean_field right_accurate method cohort bundle",
            "left_out": "quantity t states left_out cohort bundle",
            "tasks": (
                "patient t entity coupling mean_field mean_field_posterior accurate accurate_posterior cohort bundle"
            ),
        },
        summary_tables={
            "meanfield_vs_exact": (
                "which decisions does the mean-field approximation change, and which of them are better without it?"
            )
        },
        single=("duels", "tasks"),
    ),
    "sanity": Stage(
        settings=("sanity", "inference"),
        duels=True,
        tables={
            "bracket_patients": "population patient bracket decided called wrong tied_called cohort bundle",
            "brackets": "population t bracket decided called wrong tied_called cohort bundle",
            "contraction": "model entity opponent contraction ternary cohort bundle",
            "convergence": "model t entity solves iterations capped finished cohort bundle",
            "gates": "name input cases failures perturbed_failures cohort bundle",
            "gauge_change": "subject score t states changed mean_change max_change input cohort bundle",
            "nonconvergence": "model patient entity solves capped persistent cohort bundle",
        },
        summary_tables={"sanity": "do quantities with known values have these values?"},
    ),
}
"""Stage -> its declaration."""

LEAGUE_TABLES = ("curves", "leads", "null", "trained", "ladder", "reliability", "facts")
"""Tables of the league, for each field."""
LEAGUE_FILES = ("league.html", "league.svg", "ladder.svg", *(f"{name}.csv" for name in ("league", *LEAGUE_TABLES)))
"""Files of the league's page."""
DICTIONARY = "data_dictionary"
"""Published file that lists the columns of all tables."""


def left_out(entities: int, *, labelled: bool, elicited: bool) -> dict[str, str]:
    """Return {stage: reason} for the stages that a run skips.

    A run skips a stage if a requirement of the stage is not met, or if the stage reads tables of a skipped stage.
    """
    found: dict[str, str] = {}
    for name, stage in STAGES.items():
        if stage.duels and entities < 2:
            found[name] = "one entity: no duels and no top k"
        elif stage.labels and not labelled:
            found[name] = "no labels"
        elif stage.elicited and not elicited:
            found[name] = "the bundle is not made of the answers of several voters"
    while more := {
        name: found[read]
        for name, stage in STAGES.items()
        if name not in found
        for read in (*stage.inputs, *stage.summary_inputs)
        if read in found
    }:
        found |= more
    return found
