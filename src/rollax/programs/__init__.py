"""How an experiment is computed: compiled as one program, with environments outside JAX, or with actors."""
