"""Mean-field inference and exact inference on pairwise Markov random fields."""
