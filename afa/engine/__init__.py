"""Compiled inference and choices for many patients.

Python calls `choose` (a rule picks each feature) and `follow` (the orders are given) of `afa.engine.follow`. Both fill
the constant `RunSettings`, compute the `PathState` before any observation, and call `walk` of `afa.engine.walk` in
threads. Patients with equal histories share one `PathState` until their values or given orders differ. `_walk_on`
takes a group of patients from t to t + 1 observations:

1. Observe `order[t - 1]`: the votes of the duels (`duels.vote`), the state (`state.condition`) and the bounds of the
   duels (`budgets.update_budgets`) take the value in. Entities with the feature in their support are marked as changed.
2. Every `CLUSTER_EVERY` rounds, form clusters of entities, for the rules `clustered` and `priority_clusters`.
3. If the round is requested or a rule ranks the features in this round, solve the changed entities by mean-field
   (`_solve_changed`, `state.solve_entity`) and compute their expected scores (`state.cross_of`).
4. Rank the entities by `linearity` (`ranks.score_table`, `ranks.ranks_of`), and mark the duels that no further value
   can change (`budgets.resolved_sign`).
5. Compute the weight of each duel by the rule (`rules.weigh`), the gains of duels with a weight that have changed
   (`gains.bring_up_to_date`), and their sum for each feature (`gains.add_up`).
6. Write the requested results of this round into `WalkResults` (`run.write_round`).
7. Choose the feature with the largest positive gain (`rules.best_feature`), or else the feature with the largest sum
   of absolute unaries (`rules.fallback_feature`), unless the order is given.
8. Split the group if its patients now differ in the chosen feature or its value.

If values are missing, t counts a missing value as observed, but `State.observed` does not. The ELBO of a round is then
shifted by the same amount for all entities, so that differences between entities are right.
"""
