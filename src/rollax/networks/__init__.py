"""From observations to numbers: torsos, streams, heads, and what brings inputs to size."""
