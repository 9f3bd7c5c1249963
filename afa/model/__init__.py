"""Models: a pairwise Markov random field for each entity, and the bundle, which contains the models of all entities."""
