"""The data dictionary: type, unit and meaning of every column of every table that a run writes.

A column means the same in all tables unless `OF_TABLE` says otherwise. Tables of a stage are named `stage/table`,
those made for readers by their file name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from afa.errors import Fault, ReportError

COLUMNS = ["table", "column", "type", "unit", "meaning"]


class Meaning(NamedTuple):
    """Unit and meaning of a column; a unit of "" is for names, "count" for whole numbers of things."""

    unit: str
    meaning: str


COMMON: Mapping[str, Meaning] = {
    # what a row is about
    "cohort": Meaning("", "name of the cohort"),
    "bundle": Meaning("", "name of the bundle"),
    "patient": Meaning("", "name of the patient in the cohort"),
    "entity": Meaning("", "name of the entity (phenotype) in the bundle"),
    "entity_a": Meaning("", "first entity of a duel, in bundle order"),
    "entity_b": Meaning("", "second entity of a duel"),
    "opponent": Meaning("", "second entity of a duel; empty for what has one entity"),
    "seed": Meaning("", "seed of the random order; missing where the order is not drawn"),
    "t": Meaning("observations", "features observed so far, 0 to M"),
    "step": Meaning("observations", "features of the entity's support observed so far"),
    "method": Meaning("", "score that is read out"),
    "start": Meaning("", "where each mean-field solve begins: uniform or warm"),
    "allocation": Meaning("", "rule that orders the features"),
    "gain": Meaning("", "gain that the rule maximises, if any"),
    "guide": Meaning("", "score that the gain or the rule looks at, if any"),
    "reference": Meaning("", "what is compared with, or by which gauge or inference"),
    "target": Meaning("", "what counts as right: likelihood (the model at full observation), clinical or drawn"),
    "inference": Meaning("", "mean_field or exact"),
    "kind": Meaning("", "reading of the log-odds: calibrated (less their value at no observation) or raw"),
    "decision": Meaning("", "how the class is decided: raw or calibrated"),
    "population": Meaning("", "whose decisions: drawn or clinical; duels or binary"),
    "model": Meaning("", "which models are solved: the entities', a duel's, or the closure's of class 1 or class 0"),
    "bracket": Meaning("", "name of the bracket"),
    "stratum": Meaning("", "part of the cases; empty for the headline"),
    "reason": Meaning("", "why something was left out"),
    # scores and targets
    "wald": Meaning("nats", "Wald score: the energy of what was observed"),
    "two_elbo": Meaning("nats", "difference of the ELBOs of class 1 and class 0, raw"),
    "stack_a": Meaning("-1 to 1", "Gaussian estimate of the expected sign"),
    "l1_tight": Meaning("sign", "side that the tight l1 bracket has settled on, 0 while it is open"),
    "l1_paper": Meaning("sign", "the same for the l1 bracket as printed"),
    "hanson_wright": Meaning("sign", "the same for the Hanson-Wright bracket"),
    "winner": Meaning("sign", "sign of D at full observation: 1 the first entity, -1 the second, 0 a tie"),
    "likelihood": Meaning("sign", "sign of S or D at full observation, 0 for a tie"),
    "clinical": Meaning("", "label of the patient: 0, 1 or missing"),
    "score": Meaning("nats", "S(x) at full observation"),
    "unary_part": Meaning("nats", "alpha . x, the unary part of S(x)"),
    "unary_sum": Meaning("nats", "alpha . x, the unary part of S(x)"),
    "raw": Meaning("nats", "posterior log-odds of class 1, as they are"),
    "calibrated": Meaning("nats", "posterior log-odds of class 1, less their value at no observation"),
    "shift": Meaning("nats", "log-odds of class 1 at no observation"),
    "log_z1": Meaning("nats", "exact log-partition of the model of class 1"),
    "log_z0": Meaning("nats", "exact log-partition of the model of class 0"),
    "expected_score": Meaning("nats", "exact expectation of S under the mixture of both classes"),
    "expected_sign": Meaning("-1 to 1", "exact expectation of the sign of S under the mixture of both classes"),
    "probability": Meaning("0 to 1", "probability of class 1"),
    "label": Meaning("", "class of the patient: 0 or 1"),
    "positive": Meaning("0 to 1", "share of the cases that are of class 1"),
    # counts
    "right": Meaning("count", "decisions that are right, a tie counting one half"),
    "duels": Meaning("count", "duels with a winner"),
    "right_first": Meaning("count", "right decisions among duels that the first entity wins"),
    "duels_first": Meaning("count", "duels that the first entity wins"),
    "right_prior_wrong": Meaning("count", "right decisions among duels that are wrong before any observation"),
    "duels_prior_wrong": Meaning("count", "duels that are wrong before any observation"),
    "right_positive": Meaning("count", "right decisions among cases of class 1"),
    "n_positive": Meaning("count", "cases of class 1"),
    "different": Meaning("count", "final calls that two orders of the same observations make differently"),
    "compared": Meaning("count", "final calls compared"),
    "agree": Meaning("count", "duels on which both gauges decide alike, a tie against a sign counting one half"),
    "solves": Meaning("count", "mean-field solves"),
    "iterations": Meaning("sweeps", "damped sweeps, summed over the solves"),
    "capped": Meaning("count", "solves that met the cap on damped sweeps"),
    "ascended": Meaning("sweeps", "coordinate-ascent sweeps that finished such solves, summed"),
    "finished": Meaning("count", "solves that coordinate ascent finished"),
    "persistent": Meaning("", "whether at least half of the solves met the cap, under every seed"),
    "features": Meaning("count", "features in all, M"),
    "support": Meaning("count", "features in the entity's support"),
    "cases": Meaning("count", "cases"),
    "n": Meaning("count", "cases behind the value"),
    "draws": Meaning("count", "drawn patients"),
    "count": Meaning("count", "drawn patients whose rank lies in the bin"),
    "patients": Meaning("count", "patients of the cohort"),
    "missing": Meaning("count", "patients without a label"),
    "flip": Meaning("0 to 1", "chance that a potential's sign is turned round"),
    "replicate": Meaning("", "number of the damaged model"),
    "draw": Meaning("", "number of the drawn patient"),
    "rank": Meaning("0 to 99", "rank of the true class among 99 classes drawn from the posterior"),
    "bin": Meaning("", "number of the bin, from 0"),
    "conclusive": Meaning("", "whether at least 30 patients of the cohort have exactly one of the two labels"),
    "two_elbo_true": Meaning("nats", "F_a - F_b of the two models held directly"),
    "two_elbo_maxent": Meaning("nats", "F_1 - F_0 of the closure of the difference"),
    "stack_a_true": Meaning("-1 to 1", "stack_a of the two models held directly"),
    "stack_a_maxent": Meaning("-1 to 1", "stack_a of the closure of the difference"),
    "quantity": Meaning("", "what could not be computed exactly"),
    "chi_square": Meaning("", "chi-square of the ranks in 20 bins against uniform, 19 degrees of freedom"),
    "p_value": Meaning("0 to 1", "p-value of that"),
    "gap": Meaning("0 to 1", "largest distance between the distribution functions of the ranks and of the uniform"),
    "ece": Meaning("0 to 1", "expected calibration error in ten bins"),
    "brier": Meaning("0 to 1", "Brier score"),
    # chaotic patients
    "seed_set": Meaning("", "orders that say who is chaotic (selecting) or that the gap is measured on (measuring)"),
    "definition": Meaning("", "what makes a patient chaotic, see docs/decisions.md, A10"),
    "flips": Meaning("count", "changes of side of the duels' signs, summed over duels and orders"),
    "runs": Meaning("count", "duels times orders"),
    "magnitude": Meaning("nats", "mean over duels of the absolute D"),
    "nonzero": Meaning("count", "the patient's values that are not 0"),
    # health of the elicitation
    "prompt": Meaning("", "prompt that was asked: unary or pairwise"),
    "wording": Meaning("", "SHA-256 of the prompt's template, or unknown where the record does not say"),
    "wording_a": Meaning("", "first of two wordings of a prompt"),
    "wording_b": Meaning("", "second of two wordings"),
    "run": Meaning("", "name of the run, which asks every question by itself"),
    "run_a": Meaning("", "first of two runs"),
    "run_b": Meaning("", "second of two runs"),
    "feature_a": Meaning("", "first gene of a pair"),
    "feature_b": Meaning("", "second gene of a pair"),
    "asked": Meaning("count", "runs that were asked for the entity's genes, or pairs that were asked about"),
    "answered": Meaning("count", "those of them with one answer in this wording"),
    "sign": Meaning("sign", "direction of a gene, or sign of a pair: 1 or -1"),
    "lit_prob": Meaning("0 to 1", "probability that answers give their sign, a mean over the answers with that sign"),
    "named_by": Meaning("count", "runs that name the gene for the entity"),
    "phenotypes": Meaning("count", "entities that the record names the gene for"),
    "shared": Meaning("count", "genes in both sets"),
    "union": Meaning("count", "genes in either set"),
    "same": Meaning("count", "shared ones with one direction"),
    "expected_same": Meaning("count", "pairs with one sign that the shares of the signs alone would give"),
    "min_agree": Meaning("count", "runs that must name a gene, all with one direction"),
    "orders": Meaning("count", "orders of the runs that the counts are summed over"),
    "kept": Meaning("count", "genes that the consensus of the first runs keeps"),
    "other_runs": Meaning("count", "runs of the other consensus"),
    "shared_runs": Meaning("count", "runs that both consensuses have"),
    "unary_product": Meaning("sign", "product of the unary signs of a pair's genes; 0 where one has none"),
    "correlation": Meaning("-1 to 1", "Pearson's, of the two genes over the cohort; missing where one never varies"),
    "unaries": Meaning("count", "unary potentials of the entity"),
    "couplings": Meaning("count", "couplings of the entity"),
    "delta": Meaning("-1 to 1", "Cliff's delta of the gene between patients of label 1 and of label 0"),
    # Layer 0
    "n_clusters": Meaning("count", "number of clusters"),
    "criterion": Meaning("", "f1 or f2, the paper's two Lipschitz constants, or sound"),
    "rule": Meaning("", "how many dominating entities are asked for: N - k or k"),
    "entities": Meaning("count", "entities in all"),
    "needed": Meaning("count", "dominating entities that are asked for"),
    "most_dominators": Meaning("count", "the most dominating entities that any entity has"),
    "clusters_out": Meaning("count", "clusters removed"),
    "entities_out": Meaning("count", "entities removed"),
    "contradicted": Meaning("count", "certificates that some patient's full observation contradicts"),
    "certificates": Meaning("count", "entities said to be out of the top-k"),
    "false_certificates": Meaning("count", "those of them that are in it at full observation"),
    "false_duels": Meaning("count", "dominations that the other entity wins at full observation"),
    "cluster": Meaning("", "first member of the cluster, by name"),
    "members": Meaning("count", "entities in the cluster"),
    "radius": Meaning("nats", "largest l1 distance of a member to the centroid"),
    "spread": Meaning("nats", "largest l-infinity distance of a member to the centroid"),
    "converged": Meaning("", "whether the solve of the centroid met the tolerance before the cap"),
    "eligible_f2": Meaning("", "whether the cluster contracts, as the constant of f2 needs"),
    "lipschitz_f2": Meaning("", "Lipschitz constant of f2; missing where not eligible"),
    "separation": Meaning("", "smallest distance between centroids over the largest radius"),
    "within": Meaning("nats", "largest l-infinity distance of a member to its centroid"),
    "between": Meaning("nats", "smallest l-infinity distance between centroids"),
    "letter": Meaning("", "letter of the configuration's story in the paper"),
    "story": Meaning("", "generative story of the configuration"),
    "printed_separation": Meaning("", "separation that the paper prints"),
    "right_greedy": Meaning("count", "right decisions where greedy chooses for all entities, a tie counting one half"),
    # the allocation grid
    "p_at_k": Meaning("0 to 1", "overlap of the k best with those at full observation, over k"),
    "clinical_p_at_k": Meaning(
        "0 to 1", "share of positive labels among the first k' of the labelled entities; missing without a positive one"
    ),
    "clinical_r_precision": Meaning("0 to 1", "the same over as many places as the patient has positive labels"),
    "feature": Meaning("", "feature observed as the t-th; missing at t = 0"),
    "fallback": Meaning("", "whether the rule found no gain and the largest unary chose, see docs/decisions.md, A7"),
    "resolved": Meaning("count", "duels that no completion can change, by the tight l1 bracket"),
    "resolved_wrong": Meaning("count", "those of them that full observation contradicts; 0 in every run that goes on"),
    "certified": Meaning("", "whether no completion can change the top k"),
    "prior_wrong": Meaning("", "whether linearity calls the other entity before any observation"),
    "top": Meaning("", "2 among the k best at full observation, 1 tied for their last places, 0 neither"),
    "k": Meaning("count", "size of the top k"),
    "k_clinical": Meaning("count", "size k' of the top set among the labelled entities"),
    "tied": Meaning("count", "duels tied at full observation"),
    # rules of stopping
    "stopping": Meaning("", "rule of stopping: certain, probability, gain or budget"),
    "level": Meaning(
        "", "its level: a probability (1 where certain), a gain in nats, or a share of all features as the budget"
    ),
    "stopped": Meaning("", "whether the run ended before full observation"),
    # sanity
    "name": Meaning("", "short name of the check"),
    "input": Meaning("", "what the check ran on: the run itself, or synthetic models"),
    "failures": Meaning("count", "cases that break the check; 0 in every table that is written"),
    "perturbed_failures": Meaning(
        "count", "cases that the check finds in a copy broken on purpose; missing for the run"
    ),
    "first_case": Meaning("", "the first case that breaks the check; empty where none does"),
    "found": Meaning("", "what was found there"),
    "expected": Meaning("", "what was expected there"),
    "further_cases": Meaning("", "a few further such cases"),
    "decided": Meaning("count", "cases with a sign at full observation"),
    "called": Meaning("count", "such cases whose bracket lies on one side of 0"),
    "wrong": Meaning("count", "such calls that full observation contradicts"),
    "tied_called": Meaning("count", "cases that are called, and tied at full observation"),
    "contraction": Meaning("", "beta L^2: largest absolute row sum of the couplings; below 1 mean-field contracts"),
    "ternary": Meaning("", "the same with the slope 2/3 of a ternary site"),
    "subject": Meaning("", "models on which the gauge was changed"),
    "states": Meaning("count", "states read"),
    "changed": Meaning("count", "states in which the decision changes with the gauge"),
    "mean_change": Meaning("nats", "mean absolute change; without a unit for stack_a and hanson_wright"),
    "max_change": Meaning("nats", "largest absolute change; without a unit for stack_a and hanson_wright"),
    # errata and the paper's tables
    "item": Meaning("", "number of the erratum, as in docs/errata.md"),
    "claim": Meaning("", "what the paper says, in our words"),
    "claim_value": Meaning("as `unit`", "the paper's number, where it gives one"),
    "check": Meaning("", "what was computed"),
    "value": Meaning("as `metric` or `unit`", "the number"),
    "low": Meaning("as the value", "lower end of the interval over patients"),
    "high": Meaning("as the value", "upper end"),
    "unit": Meaning("", "unit of the numbers in the row"),
    "holds": Meaning("", "whether the paper's claim holds here; missing where the number only illustrates"),
    "pending": Meaning("", "what has to be there first, or why there is no such case; empty otherwise"),
    "headline": Meaning("", "whether this is the item's main row"),
    "table": Meaning("", "question that the row answers, see docs/summary.md"),
    "metric": Meaning("", "what the value is, see docs/summary.md"),
    "schedule": Meaning("", "when scores were computed again: every round, or the rounds of the paper"),
    "coupling": Meaning("", "which couplings the models had"),
    "row": Meaning("", "row of the paper's table"),
    "column": Meaning("", "column of the paper's table"),
    "ours": Meaning("as `unit`", "this run's number"),
    "paper": Meaning("as `unit`", "the paper's number"),
    "difference": Meaning("as `unit`", "ours less the paper's"),
}

LANGUAGE_MODELS: Mapping[str, Meaning] = {
    "method": Meaning("", "mrf_llm, rag_llm, or the planner's score that is read out"),
    "task": Meaning("", "binary (one phenotype) or top_k (all of them)"),
    "entity": Meaning("", "phenotype of a binary task; empty for the top k"),
    "t": Meaning("observations", "features observed when the model was asked"),
    "evidence": Meaning("", "order of observation: planner, random, or the model whose picks were measured"),
    "outcome": Meaning("", "answered, refused, unparsable, incomplete, failed; stands: not asked after done"),
    "asked": Meaning("count", "times that the turn was asked; in faults and calls, which of them, from 1"),
    "attempt": Meaning("count", "try at one question, from 1"),
    "decided": Meaning("", "whether there is a decision; where not, it counts as wrong"),
    "decision": Meaning("sign", "1 the condition, -1 control, 0 a tie of the planner's score; missing: none"),
    "probability": Meaning("0 to 1", "lit_prob, the model's probability of the condition; missing: none"),
    "labels": Meaning("", "legal labels of the decision, the likeliest first, as a JSON list"),
    "done": Meaning("", "whether the model ended the measuring; its last decision then stands"),
    "pick": Meaning("", "what the answer names to be measured next; empty: nothing"),
    "pick_fault": Meaning("", "what the pick breaks, see docs/baselines.md; empty: nothing"),
    "label_fault": Meaning("", "what the labels break; empty: nothing"),
    "measured": Meaning("", "feature that was measured next; empty at checkpoints and at the end"),
    "by_rule": Meaning("", "whether that is the first feature by name, for want of a legal pick"),
    "part": Meaning("", "part of the answer: pick or labels"),
    "kind": Meaning("", "what that part broke"),
    "prompt_tokens": Meaning("count", "tokens of the prompt by the endpoint's count; missing: not counted"),
    "answer_tokens": Meaning("count", "tokens of the answer"),
    "model": Meaning("", "the model that was asked"),
    "served_model": Meaning("", "the model that the endpoint says has answered"),
    "prompt": Meaning("", "name of the prompt"),
    "prompt_digest": Meaning("", "SHA-256 of its wording and schema"),
    "parameters": Meaning("", "how the model was asked, as JSON"),
    "time": Meaning("", "when, UTC"),
    "p_at_k": Meaning("0 to 1", "of the k labels, those that are the best at full observation, over k; 0: no decision"),
    "clinical_p_at_k": Meaning("0 to 1", "positives among the labelled entities that rank highest, over their number"),
    "turns": Meaning("", "when models are asked: checkpoints, stateless or trajectory"),
    "order": Meaning("", "what is observed: planner, random, or the model's own picks"),
    "patients": Meaning("count", "patients who are asked about"),
    "seed": Meaning("", "which patients, and which random order"),
    "k": Meaning("count", "size of the top set"),
    "answers": Meaning("count", "times that a turn is asked at most"),
    "disease": Meaning("", "as the prompts name it"),
    "features": Meaning("count", "features of the bundle, M"),
    "top_k_rule": Meaning("", "allocation rule of the planner's own order in the top-k setting"),
}
LABELS: Mapping[str, Meaning] = {
    # scores against labels
    "reference": Meaning("", "what values were encoded against: controls or cohort"),
    "variant": Meaning("", "what differs from the settings fixed beforehand; empty for these"),
    "t": Meaning("per cent", "of the features of the entity's support that have been observed"),
    "observed": Meaning("observations", "features of the entity's support observed so far"),
    "threshold": Meaning("robust SD", "distance from the cohort's median beyond which a value is -1 or 1"),
    "strength": Meaning("", "beta L^2 that shared couplings are scaled down to"),
    "contraction": Meaning("", "beta L^2 of the elicited couplings"),
    "factor": Meaning("", "what shared couplings are multiplied by"),
    "label": Meaning("", "label of the patient: 0 or 1"),
    "raw": Meaning("nats", "log-odds of class 1, F_1 - F_0"),
    "score": Meaning("nats", "S at full observation"),
    "permutation": Meaning("", "number of the shuffling of genes, from 0"),
    "auroc": Meaning("0 to 1", "area under the ROC curve of the shuffled bundle"),
    "balanced_accuracy": Meaning("0 to 1", "of the sign of its raw score"),
    "balanced_accuracy_calibrated": Meaning("0 to 1", "of the sign of its score less that at no observation"),
}

RANKING: Mapping[str, Meaning] = {
    # entities ranked by scale and method
    "scale": Meaning("", "what scores are in units of: raw, or the null uniform, cohort or shuffled"),
    "method": Meaning("", "what is expected of hidden features: linearity, population, frequency or wald"),
    "target": Meaning("", "likelihood: the raw score at full observation; own: that of the same scale"),
    "accuracy": Meaning("count", "duels called right, a tie one half"),
    "accuracy_prior_wrong": Meaning("count", "those of them that linearity on this scale calls wrong at t = 0"),
    "r_precision": Meaning("0 to 1", "positive labels among as many of the first as the patient has positive labels"),
    "auroc": Meaning("0 to 1", "chance that a positive entity of the patient ranks before a negative one"),
    "correlation": Meaning("-1 to 1", "Spearman's, of standing and support: 1 where the largest support is first"),
    "prior_wrong": Meaning("count", "those of them that linearity on this scale calls wrong at t = 0"),
    "majority": Meaning("count", "those of them that the best constant answer has right"),
    "larger": Meaning("count", "those of them that the entity of the larger support wins, equal supports one half"),
    "of_null": Meaning("0 to 1", "posterior probability of the null: independent uniform features"),
    "of_likeliest": Meaning("0 to 1", "largest posterior probability of any entity"),
    "mean": Meaning("nats", "what is taken off the score of the entity"),
    "sd": Meaning("nats", "what it is divided by; 0: the entity is 0 on this scale"),
    "label": Meaning("", "label of the patient: 0, 1 or missing"),
    "permutation": Meaning("", "number of the shuffling of genes, from 0"),
}

LABELS_NEEDED: Mapping[str, Meaning] = {
    "reference": LABELS["reference"],
    "coupling": Meaning("", "couplings of the zero-shot score"),
    "t": LABELS["t"],
    "method": Meaning("", "classifier: logistic, boosting or naive_bayes"),
    "permuted": Meaning("", "whether it was trained on shuffled labels"),
    "size": Meaning("count", "labelled patients that it was trained on"),
    "repeat": Meaning("", "number of the draw of the labelled patients, from 0"),
    "log_odds": Meaning("nats", "log-odds of class 1, both classes weighing the same in the training"),
    "seed": Meaning("", "seed of the random order; missing where the order is not drawn"),
    "label": LABELS["label"],
    "calibrated": Meaning("nats", "zero-shot log-odds of class 1, less their value at no observation"),
    "labelled": Meaning("count", "patients whose label the classifier was told"),
    "labelled_positive": Meaning("count", "those of them who have it"),
    "tested": Meaning("count", "all other patients, whom it is asked about"),
    "tested_positive": Meaning("count", "those of them who have the label"),
}

ACCURATE: Mapping[str, Meaning] = {
    # mean-field against accurate inference
    "mean_field": Meaning("nats", "score by mean-field: of class or entity a over b"),
    "accurate": Meaning("nats", "the same by exact inference, or by all sampled chains"),
    "first": Meaning("nats", "the same by the first half of the chains; the exact one where nothing is sampled"),
    "second": Meaning("nats", "the same by the second half"),
    "error": Meaning(
        "nats", "standard error of the sampled number; 0 where it is exact, infinite where chains disagree"
    ),
    "mean_field_posterior": Meaning("nats", "log-odds by mean-field less their value at no observation"),
    "accurate_posterior": Meaning("nats", "the same by exact inference, or by all sampled chains"),
    "first_posterior": Meaning("nats", "the same by the first half of the chains"),
    "second_posterior": Meaning("nats", "the same by the second half"),
    "error_posterior": Meaning("nats", "standard error of the accurate ones; 0 where they are exact"),
    "coupling": Meaning("", "the closure: differential or shared"),
    "shared": Meaning("count", "members of the top k by mean-field that are in it by accurate inference"),
    "shared_runs": Meaning("count", "members by one accurate run that are in it by the other"),
    "right_mean_field": Meaning("count", "members by mean-field that are in the top k at full observation"),
    "right_accurate": Meaning("count", "members by accurate inference that are"),
    "quantity": Meaning("", "what is solved: log_partition or moments"),
    "inference": Meaning("", "how: exact or annealed"),
    "effective": Meaning("count", "effective chains; missing where it is exact"),
    "exact": Meaning("nats", "log Z of what is observed, exactly"),
    "sampled": Meaning("nats", "the same by annealed importance sampling"),
    "duels": Meaning("count", "duels of which both entities are solved exactly"),
    "open": Meaning("count", "those that sampling leaves open: within two standard errors of 0"),
    "changed": Meaning("count", "the others that sampling decides otherwise, a tie against a decision one half"),
    "apart": Meaning("nats", "sum over duels of the absolute difference of sampled and exact"),
    "within": Meaning("count", "duels whose difference is at most two standard errors"),
}

OF_TABLE: Mapping[tuple[str, str], Meaning] = {
    **{
        (f"llm_baselines/{table}", column): meaning
        for table in ("turns", "faults", "calls", "readouts", "targets", "protocol")
        for column, meaning in LANGUAGE_MODELS.items()
    },
    **{
        (f"allocation/{table}", column): meaning
        for table in ("rounds", "choices")
        for column, meaning in (
            ("gain", Meaning("", "gain that the rule maximises; empty where it looks at none")),
            ("schedule", Meaning("", "when gains are computed again: every round, or the rounds of the paper")),
            ("seed", Meaning("", "seed of the random order; 0 where the order is not drawn")),
        )
    },
    ("allocation_truth/targets", "label"): Meaning("", "label of the patient: 0, 1 or missing"),
    ("layer1/calls", "called"): Meaning("count", "duels with a winner whose bracket lies on one side of 0"),
    ("layer1/calls", "tied"): Meaning("count", "duels tied at full observation whose bracket lies on one side of 0"),
    ("layer1/steps", "step"): Meaning("observations", "features of the duel's own two supports observed so far"),
    ("layer1/steps", "called"): Meaning("count", "duels with a winner whose bracket lies on one side of 0"),
    ("layer1/left_open", "magnitude"): Meaning("nats", "absolute D at full observation, to two digits; 0 a tie"),
    ("layer1/left_open", "duels"): Meaning("count", "duels of this magnitude, ties included, over all orders"),
    ("layer1/left_open", "never"): Meaning("count", "those of them not called before full observation"),
    ("layer1/left_open", "never_support"): Meaning(
        "count", "those not called before the last feature of their own two supports"
    ),
    **{
        (f"stopping/{table}", column): meaning
        for table in ("top_k", "tasks")
        for column, meaning in (
            ("gain", Meaning("", "gain that the allocation rule maximises; empty where it looks at none")),
            ("t", Meaning("observations", "features observed when the run ended; M where nothing ended it before")),
        )
    },
    ("stopping/top_k", "members"): Meaning("count", "members of the answer, k"),
    ("stopping/top_k", "wrong"): Meaning(
        "count", "those of them that are not among the k best at full observation, ties for the last places being right"
    ),
    ("stopping/tasks", "decision"): Meaning(
        "sign", "decision when the run ended: 1 for the entity, -1 against, 0 a tie"
    ),
    ("stopping/tasks", "likelihood"): Meaning("sign", "decision at full observation, 0 for a tie"),
    **{
        (f"labels/{table}", column): meaning
        for table in ("scores", "tasks", "null", "whole", "labels", "left_out")
        for column, meaning in LABELS.items()
    },
    **{
        (f"labels_needed/{table}", column): meaning
        for table in ("predictions", "zero_shot", "splits", "left_out")
        for column, meaning in LABELS_NEEDED.items()
    },
    ("labels/tasks", "positive"): Meaning("count", "patients who have the label"),
    ("labels/tasks", "negative"): Meaning("count", "patients who do not"),
    **{
        (table, column): meaning
        for table in ("labels", "labels_needed", "null", "specificity")
        for column, meaning in LABELS.items()
        if column in ("t", "reference")
    },
    **{
        (f"ranking/{table}", column): meaning
        for table in ("decisions", "rankings", "posterior", "truth", "entities", "labels", "null")
        for column, meaning in RANKING.items()
    },
    ("ranking/null", "target"): Meaning(
        "", "likelihood or own; clinical: labels; size: supports; posterior: of the models"
    ),
    ("ranking", "target"): Meaning(
        "", "likelihood: the raw score at full observation; own: that of the scale in `stratum`; empty: the supports"
    ),
    ("ranking/rankings", "p_at_k"): Meaning(
        "0 to 1", "share of positive labels among the first k' of the labelled entities; missing without a positive one"
    ),
    **{
        (f"accurate/{table}", column): meaning
        for table in ("duels", "sets", "tasks", "solves", "check", "checked_duels")
        for column, meaning in ACCURATE.items()
    },
    ("errata/errata", "label"): Meaning("", "LaTeX label of the place in the paper"),
    ("layer0/layer0", "paper"): Meaning("", "whether this is the paper's number of clusters, ceil(sqrt N)"),
    **{
        (f"{stage}/{table}", column): meaning
        for stage in ("layer0", "layer0_synthetic")
        for table, column, meaning in (
            ("patients", "duels", Meaning("count", "dominations of entities that have a winner at full observation")),
            ("clusters", "score", Meaning("nats", "score of the centroid at no observation")),
            ("clusters", "gap", Meaning("nats", "smallest l1 distance between centroids")),
            (
                "lift",
                "right",
                Meaning("count", "right decisions where greedy chooses for the entities left, a tie counting one half"),
            ),
        )
    },
    ("gauge/targets", "clinical"): Meaning(
        "sign", "1 or -1 for the entity whose label alone is positive, 0 for neither"
    ),
    ("simulated_calibration/draws", "step"): Meaning("", "observed features of the support, or whole"),
    ("simulated_calibration/histogram", "step"): Meaning("", "observed features of the support, or whole"),
    ("simulated_calibration/uniformity", "step"): Meaning("", "observed features of the support, or whole"),
    ("simulated_calibration/draws", "t"): Meaning("observations", "observed features of the support"),
    ("simulated_calibration/draws", "iterations"): Meaning("sweeps", "damped sweeps of the two solves"),
    ("elicitation_error/references", "raw"): Meaning("0 to 1", "exact accuracy of the sign of S on drawn patients"),
    ("elicitation_error/references", "calibrated"): Meaning("0 to 1", "exact Bayes accuracy on drawn patients"),
    ("elicitation_error/labels", "positive"): Meaning("count", "patients with a positive label"),
    ("elicitation_health/answers", "lit_prob"): Meaning("0 to 1", "probability that the answer gives its direction"),
    ("elicitation_health/answers", "same"): Meaning("count", "other runs that name the gene with this direction"),
    ("elicitation_health/wordings", "shared"): Meaning("count", "genes or pairs in the answers to both wordings"),
    ("elicitation_health/wordings", "union"): Meaning("count", "genes in either answer; of pairs as `shared`"),
    ("elicitation_health/wordings", "same"): Meaning("count", "shared ones with one direction or sign"),
    ("elicitation_health/genes", "difference"): Meaning(
        "ternary units", "mean value of patients of label 1 less that of patients of label 0"
    ),
    ("elicitation_health/genes", "p_value"): Meaning("0 to 1", "two-sided, of delta, by shuffled labels"),
    ("elicitation_health/draws", "target"): Meaning("", "what signs are held against: see docs/summary.md"),
    ("elicitation_health/draws", "kind"): Meaning("", "observed, resampled or shuffled"),
    ("elicitation_health/draws", "entity"): Meaning("", "entity that is counted by itself; empty for all"),
    ("elicitation_health/draws", "draw"): Meaning("", "number of the resample or shuffle, from 0"),
    ("elicitation_health/draws", "right"): Meaning("count", "signs that are right, ties left out"),
    ("elicitation_health/draws", "n"): Meaning("count", "signs that the data decide: all but ties"),
    **{
        (f"elicitation_health/{table}", "runs"): Meaning("count", "runs of the consensus")
        for table in ("kept", "stability")
    },
    **{
        (f"elicitation_health/{table}", column): Meaning("count", f"patients of label {label}")
        for table in ("genes", "entities")
        for column, label in (("positive", 1), ("negative", 0))
    },
}


def dictionary_of(schemas: Mapping[str, pa.Schema]) -> pd.DataFrame:
    """One line per column of each table: `table`, `column`, `type`, `unit`, `meaning`.

    Raises
    ------
    ReportError : a column that has no meaning here.

    """
    lines = []
    for table, schema in schemas.items():
        for field in schema:
            meaning = OF_TABLE.get((table, field.name)) or COMMON.get(field.name) or _of_round(field.name)
            if meaning is None:
                where, step = f"data dictionary, {table}", "describe it in afa/report/dictionary.py"
                raise ReportError(Fault(where, f"the column {field.name}", "a column with a meaning", step))
            lines.append((table, field.name, str(field.type), meaning.unit, meaning.meaning))
    return pd.DataFrame(lines, columns=COLUMNS)


def _of_round(column: str) -> Meaning | None:
    """A column of a table in the paper's form."""
    if not column.removeprefix("t=").isdecimal():
        return None
    meaning = "accuracy under random order after t observations (gain of f_target / gain of cmi, in percentage points)"
    return Meaning("share (percentage points)", meaning)
