"""The treasure hunt's learner in PyTorch, in JAX one agent after the other, and in JAX all at once, side by side."""
