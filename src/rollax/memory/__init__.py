"""Where past transitions are kept, and which of them come back."""
