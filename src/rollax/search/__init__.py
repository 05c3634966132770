"""Looking for good settings: spaces, populations under surgery, sweeps, and Bayesian search."""
