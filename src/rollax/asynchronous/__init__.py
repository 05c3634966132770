"""Actors that collect without waiting, a replay of their own, and a learner: Ape-X (Horgan et al. 2018), on Ray."""
