"""The other side of `peers.py`: rejax's own agents, in a Python that has rejax and gymnax 0.0.9, and no rollax.

It compiles once and says how long that took.  Then each line that it reads makes it train once, and it answers when
that is done; after a line `score` it answers with the greedy returns of what it has trained.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import jax.numpy as jnp
from rejax import get_algo  # ty: ignore[import-not-found]
from rejax.evaluate import evaluate  # ty: ignore[import-not-found]


def main() -> None:
    name, env, seeds, steps, settings = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
    algorithm = get_algo(name).create(
        env=env, total_timesteps=steps, eval_freq=steps, skip_initial_evaluation=True, **settings
    )
    algorithm = algorithm.replace(eval_callback=lambda algorithm, state, key: jnp.zeros(()))
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    train = jax.vmap(algorithm.train) if seeds > 1 else algorithm.train
    keys = keys if seeds > 1 else keys[0]
    began = time.perf_counter()
    compiled = jax.jit(train).lower(keys).compile()
    print(json.dumps(time.perf_counter() - began), flush=True)

    def score(state):
        act = algorithm.make_act(state)
        return jnp.mean(evaluate(act, state.rng, algorithm.env, algorithm.env_params, 100, 500)[1])

    state = None
    for line in sys.stdin:
        if line.strip() == "score":
            value = jax.jit(jax.vmap(score) if seeds > 1 else score)(state)
            print(json.dumps(jnp.atleast_1d(value).tolist()), flush=True)
            continue
        state, _ = jax.block_until_ready(compiled(keys))
        print("done", flush=True)


if __name__ == "__main__":
    main()
