"""What a run writes, when, and where."""
