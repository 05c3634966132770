"""How often, on what devices, written where."""
