"""Looking into runs and machines: inspection, profiles, sizes, benchmarks, comparisons."""
