"""Compute inference and feature choices for many patients with compiled kernels.

Python calls two functions of `afa.engine.follow`. In `choose`, a rule selects each feature; in `follow`, the caller
gives the orders. Both functions fill the constant `RunSettings`, compute the `PathState` before any observation, and
call `walk` of `afa.engine.walk` in threads. Patients with equal histories share one `PathState` until their values or
given orders differ. For each further observation of a group of patients, `_walk_on` takes these steps:

1. Observe the feature `order[t - 1]`: update the sign votes of the duels (`duels.vote`), the state (`state.condition`)
   and the bounds of the duels (`budgets.update_budgets`). Mark the entities with the feature in their support as
   changed.
2. Every `CLUSTER_EVERY` rounds, form clusters of entities, for the rules `clustered` and `priority_clusters`.
3. If the caller requested results of this round, or a rule ranks the features in this round, solve the changed entities
   by mean-field (`_solve_changed`, `state.solve_entity`) and compute their expected scores (`state.cross_of`).
4. Rank the entities by the score `linearity` (`ranks.score_table`, `ranks.ranks_of`), and mark the duels whose sign no
   further value can change (`budgets.resolved_sign`).
5. Compute the weight that the rule gives each duel (`rules.weigh`). Update the gains of changed duels with a positive
   weight (`gains.bring_up_to_date`), and sum the weighted gains for each feature (`gains.add_up`).
6. Write the requested results of this round into `WalkResults` (`run.write_round`).
7. Unless the order is given, choose the feature with the largest positive gain (`rules.best_feature`). If no gain is
   positive, choose the feature with the largest sum of absolute unaries (`rules.fallback_feature`).
8. Split the group if its patients now differ in the chosen feature or in the value of this feature.

The number t of observations includes missing values, but `State.observed` excludes them. Missing values shift the ELBOs
of all entities by the same amount, so that differences between entities are right.
"""
