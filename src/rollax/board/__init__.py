"""Runs in the browser while they train: a local page, and the trained agent playing step by step."""
