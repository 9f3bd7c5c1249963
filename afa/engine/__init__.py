"""Compute the inference results and the chosen features of many patients with compiled kernels.

Callers use one of two functions of `afa.engine.follow`: `choose` or `follow`. In `choose`, an allocation rule selects
each feature. In `follow`, the caller gives the order of the features. Both functions first build the run's settings
(`RunSettings`) and the patient state before any observation (`PathState`). Then, both functions call the kernel
`afa.engine.walk.walk` in parallel threads. Patients with the same observations so far form a group, and each group has
one `PathState`. For each observation, `_walk_group` takes these steps for a group of patients:

1. Observe the feature `order[t - 1]`. In each duel (entity pair), count a vote for the entity that the observation
   favours (`duels.vote`). Update the state (`state.condition`) and the bounds on each duel's log-odds
   (`budgets.update_budgets`). Mark each entity whose model contains the feature as changed.
2. If the rule is `clustered` or `priority_clusters`, form clusters of entities again after every `CLUSTER_EVERY`
   observations.
3. Run mean-field on the models of the changed entities (`_solve_changed`, `state.solve_entity`), and compute the
   expected scores of these entities (`state.cross_of`). Skip this step if the caller did not request results after this
   observation and the rule does not rank the features now.
4. Rank the entities by the score `linearity` (`ranks.score_table`, `ranks.ranks_of`). Mark each duel (entity pair)
   whose winner no further observation can change (`budgets.resolved_sign`).
5. Compute the weight that the rule gives each duel (`rules.weigh`). If a duel has a positive weight and one of its
   entities has changed, compute its gains again (`gains.bring_up_to_date`). For each feature, sum the weighted gains
   over the duels (`gains.add_up`). The rules `largest_unary` and `information` use no duels, and skip this step.
6. Write the results that the caller requested into `WalkResults` (`run.write_round`).
7. Unless the order is given, choose the feature with the largest positive gain (`rules.best_feature`). If no gain is
   positive, choose the feature with the largest absolute effective unary potentials, summed over the entities
   (`rules.fallback_feature`).
8. Split the group if its patients differ in the next feature or in the value of the next feature.

If the value of a chosen feature is missing, the step still increases the number t of observations, but does not mark
the feature in `State.observed`. A missing value shifts the ELBOs of all entities by the same amount, and therefore does
not change the difference between two ELBOs.
"""
