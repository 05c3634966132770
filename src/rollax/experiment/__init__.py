"""What a run is: parts, presets, and the tree of settings that they form."""
