"""The model: one pairwise Markov random field an entity, its features, its closure, and the bundle that holds them."""
