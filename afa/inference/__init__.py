"""Mean-field and exact inference of a pairwise Markov random field."""
