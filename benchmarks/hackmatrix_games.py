"""What a trained agent comes to in HackMatrix: return, stage, score and victories over many games, beside random play.

Every member of a run plays its own games, drawing from its policy, with UNDO over stage borders allowed and not.

    python benchmarks/hackmatrix_games.py RUN [--games 1000] [--most 2000] [--best]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rollax
from rollax.envs import registry
from rollax.envs.hackmatrix import HackMatrix
from rollax.experiment.experiment import population
from rollax.runs.result import Result
from rollax.types import Array, Key, Observation


def player(
    game: HackMatrix, act: Callable[[Any, Observation, Key], Array], games: int, most: int
) -> Callable[[Any], dict[str, Any]]:
    """Compiles play with `act(weights, obs, key)`: from weights to arrays `[games]` of the first episodes.

    An episode of `most` steps is left as it stands.
    """
    task = registry.make_inside("HackMatrix-v0", game)

    def run(weights: Any, key: Key) -> dict[str, Array]:
        def step(carry: tuple, key: Key) -> tuple[tuple, None]:
            obs, state, running, found = carry
            act_key, step_key = jax.random.split(key)
            keys = jax.random.split(step_key, games)
            stepped = jax.vmap(lambda k, s, a: task.env.step(k, s, a, None))(keys, state, act(weights, obs, act_key))
            raw, state, reward, over, _, info = stepped
            found = {
                "return": found["return"] + jnp.where(running, reward, 0.0),
                "length": found["length"] + running,
                "stage": jnp.where(running, info["stage"], found["stage"]),
                "score": jnp.where(running, info["score"], found["score"]),
                "won": found["won"] | (running & info["won"]),
            }
            return (task.see(raw), state, running & ~over, found), None

        reset_key, play_key = jax.random.split(key)
        obs, state = jax.vmap(task.reset)(jax.random.split(reset_key, games))
        nothing = {"return": jnp.zeros(games), "won": jnp.zeros(games, bool)}
        nothing |= {name: jnp.zeros(games, jnp.int32) for name in ("length", "stage", "score")}
        start = (obs, state, jnp.ones(games, bool), nothing)
        (_, _, running, found), _ = jax.lax.scan(step, start, jax.random.split(play_key, most))
        return found | {"unfinished": running}

    compiled = jax.jit(run)
    return lambda weights: jax.tree.map(np.asarray, compiled(weights, jax.random.key(1)))


def random_legal(weights: None, obs: Observation, key: Key) -> Array:
    legal = obs.legal
    assert legal is not None
    return jnp.argmax(jnp.where(legal, jax.random.uniform(key, legal.shape), -1.0), axis=-1)


def show(name: str, found: dict[str, Any]) -> None:
    stages = " ".join(f"{100 * np.mean(found['stage'] == stage):.1f}" for stage in range(1, 9))
    print(
        f"{name:>28}: return {found['return'].mean():.2f}, stage {found['stage'].mean():.2f}, "
        f"score {found['score'].mean():.2f}, won {100 * found['won'].mean():.1f} %, "
        f"length {found['length'].mean():.0f}, "
        f"unfinished {100 * found['unfinished'].mean():.1f} %; ends at stage 1 to 8 in % {stages}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?")
    parser.add_argument("--games", type=int, default=1_000)
    parser.add_argument("--most", type=int, default=2_000)
    parser.add_argument("--best", action="store_true")
    options = parser.parse_args()
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {options.games} games of at most {options.most} steps"
    )
    show(
        "random legal actions",
        player(HackMatrix(undo_across_stages=False), random_legal, options.games, options.most)(None),
    )
    if not options.run:
        return
    members = range(len(population(Result(options.run).experiment)))
    policies = [rollax.load(options.run, member, best=options.best) for member in members]

    def act(learner: Any, obs: Observation, key: Key) -> Array:
        fresh = jnp.zeros(options.games, bool)  # an agent that remembers nothing does not ask
        return policies[0].agent.act(learner, (), obs, fresh, key, explore=True).action

    for allowed in (False, True):
        word, every = "on" if allowed else "off", []
        play = player(HackMatrix(undo_across_stages=allowed), act, options.games, options.most)
        for member in members:
            every.append(play(policies[member].learner))
            show(f"member {member}, undo {word}", every[-1])
        show(f"all, undo {word}", jax.tree.map(lambda *parts: np.concatenate(parts), *every))


if __name__ == "__main__":
    main()
