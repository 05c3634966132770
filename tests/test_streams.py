"""Every stream of random numbers of every way to run: no two of them give the same key."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import Constant, task
from training_tools import make_program, small, stack_hparams

from rollax.agents.players import Independent
from rollax.experiment.experiment import make_experiment
from rollax.programs import streams
from rollax.programs.actors import epsilon_of, mean_epsilon
from rollax.programs.fleet import TOGETHER
from rollax.programs.plan import make_plan
from rollax.programs.streams import EVALUATIONS, ITERATIONS, STARTS, STREAMS, roots
from rollax.types import Key

SOME = np.array([*range(40), 2**20, 2**30 - 1])  # iterations, or gradient steps
PROGRAM = make_program(task(Constant()), small("dqn"), rollout_length=2)
PLAYERS = Independent(PROGRAM.agent, 3, "vmap", "vmap")
Named = dict[str, Key]


def each(function: Any, keys: Key) -> Key:
    """The function of every key, however many axes they have."""
    return function(keys) if keys.ndim == 0 else jax.vmap(lambda key: each(function, key))(keys)


def iterations(key: Key) -> Named:
    """What the loop draws from, as it asks for it."""
    state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, PROGRAM.init(key[None], stack_hparams(1))[0])
    collect, learn = jax.vmap(lambda number: PROGRAM.loop.keys(state._replace(key=key, iteration=number)))(SOME)
    return {"iterations to collect": each(PROGRAM.loop.step_keys, collect), "iterations to learn": learn}


def evaluations(key: Key) -> Named:
    own = jax.vmap(lambda number: streams.evaluation_keys(key[None], number)[0])(np.array([*SOME, 2**31 - 1]))
    return {"evaluations": each(jax.random.split, own)}


def in_jax(key: Key) -> Named:
    own = roots(key)
    return {"weights": own.agent, "episodes": own.envs} | iterations(own.loop) | evaluations(own.loop)


def in_a_search(key: Key) -> Named:
    """An arena trains members with seeds of their own, side by side."""
    found = [in_jax(jax.random.key(seed)) for seed in range(50, 53)]
    return {f"{name} of member {member}": keys for member, own in enumerate(found) for name, keys in own.items()}


def outside_jax(key: Key) -> Named:
    starts = {"starts": jax.vmap(lambda number: STARTS.key(roots(key).loop, number))(SOME)}
    return in_jax(key) | starts


def with_players(key: Key) -> Named:
    """Each player has keys of its own, of weights, actions and learning."""
    found = in_jax(key)
    keys = {name: each(PLAYERS.keys, found[name]) for name in ("weights", "iterations to learn")}
    acting, stepping = (found["iterations to collect"][..., use] for use in (0, 1))
    return found | keys | {"iterations to collect": stepping, "acting": each(PLAYERS.keys, acting)}


def with_actors(key: Key) -> Named:
    own, found = roots(key), {}
    for start in (0, 16, 2**29):
        for begun in range(4):
            name = f"actor {begun} from {start}: "
            its = in_jax(streams.actor_key(own.loop, start, begun))
            found |= {name + what: keys for what, keys in its.items() if what != "evaluations"}
    learning = jax.vmap(lambda number: jax.random.split(ITERATIONS.key(own.loop, number), TOGETHER))(SOME)
    return {"weights": own.agent, "gradient steps": learning} | evaluations(own.loop) | found


def eval_beside_a_run(key: Key) -> Named:
    """`rollax eval` with the very seed of the run."""
    own = jnp.zeros_like(jax.random.key_data(key))  # the key of seed 0 is made of zeros
    np.testing.assert_array_equal(jax.random.key_data(key), own)
    return in_jax(key) | {"plays": each(jax.random.split, streams.play_keys(0, jnp.arange(9)))}


WAYS = [in_jax, in_a_search, outside_jax, with_players, with_actors, eval_beside_a_run]


@pytest.mark.parametrize("way", WAYS)
def test_no_two_streams_give_the_same_key(way):
    met = defaultdict(set)
    for name, keys in way(jax.random.key(0)).items():
        for place, words in enumerate(np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()):
            met[tuple(words)].add((name, place))
    assert len(met) > 100
    assert [names for names in met.values() if len(names) > 1] == []


def test_the_ranges_of_streams_do_not_overlap():
    ends = [(stream.first, stream.first + stream.count) for stream in sorted(STREAMS, key=lambda one: one.first)]
    assert all(end <= first for (_, end), (first, _) in pairwise(ends))
    assert ends[-1][1] <= 2**32
    assert EVALUATIONS.first + 2**31 - 1 < 2**32, "an iteration is an int32"


def test_more_iterations_than_keys_are_refused():
    wrong = make_experiment("dqn", preset="none", num_envs=1, rollout_length=1, steps=2**30 + 1)
    with pytest.raises(Exception, match=f"steps={2**30 + 1} must be at most {2**30}"):
        make_plan(wrong)


def test_the_mean_of_the_actors_epsilons_is_logged():
    assert mean_epsilon(3) == pytest.approx(np.mean([epsilon_of(actor, 3) for actor in range(3)]))


def actors_program(**values: Any) -> Any:
    experiment = make_experiment(
        "apex", preset="none", num_envs=4, rollout_length=4, hidden=(8,), capacity=1_600, batch_size=8,
        warm_up_steps=160, steps=1_600, actors=2, **values,
    )  # fmt: skip
    return make_plan(experiment)


def test_the_learning_rate_with_actors_falls_with_environment_steps():
    """However many gradient steps there were: the size of Adam's first step is the rate of that time."""
    plan = actors_program(learning_rate=0.01, learning_rate_end=0.1, learning_rate_steps=1_000)
    running = plan.program.compile(plan.keys, plan.hparams)
    assert running.experiment.loop.warm_up_steps == 160
    learner = jax.tree.map(lambda leaf: leaf[0], running.begin(plan.keys, plan.hparams)[0].learner)
    grads = jax.tree.map(jnp.ones_like, learner.params)
    for steps, count, rate in ((0, 0, 0.01), (0, 10**6, 0.01), (500, 0, 0.0055), (5_000, 0, 0.001)):
        there = learner._replace(gradient_steps=jnp.int32(count))
        params = running.agent.descend(there, grads, jnp.float32(steps)).params
        moved = optax.global_norm(jax.tree.map(lambda new, old: (new - old).ravel()[:1], params, there.params))
        assert float(moved) == pytest.approx(rate * np.sqrt(len(jax.tree.leaves(grads))), rel=1e-2)
    running.before = 660
    assert running.learning_steps == 500
    running.before = 16
    assert running.learning_steps == 0
