"""The model: a pairwise Markov random field for each entity, its features and closure, and the bundle of all models."""
