"""Models: a pairwise Markov random field for each entity, and the bundle that contains the models of all entities."""
