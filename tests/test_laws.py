"""What holds of every run, whatever the agent: one test for each law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probes import Breaks, Masked, task
from training_tools import (
    LOG,
    ROLLOUT,
    advance,
    compile_lightly,
    continuer,
    home,
    make_program,
    runner,
    seed_keys,
    small,
    stack_hparams,
    start,
)

from rollax.agents.base import OptimizerHParams, apply_gradients, last_finite, make_optimizer
from rollax.agents.exploring import NoiseConfig
from rollax.agents.names import AGENTS
from rollax.envs import registry
from rollax.envs.protocol import reset_envs
from rollax.experiment.parts import PARTS
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.rows import unpack
from rollax.memory.sequences import SequenceReplay
from rollax.memory.uniform import UniformReplay
from rollax.networks.heads import ScalarHead, Streams
from rollax.networks.normalization import NormalizedObservations, NormalizedRewards, RawObservations, RawRewards
from rollax.networks.recurrence import GRU, NoRecurrence
from rollax.networks.torsos import MLP, MinAtarTorso
from rollax.programs.plan import block_length
from rollax.programs.program import LOG_ROWS, Schedule, nbytes
from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.runs import checkpoint

# Every part of every agent, in as few agents as possible.
FURTHER = ("c51", "qr", "pqn", "irainbow", "r2d2", "sac")
CONFIGS = {
    "irainbow": small("irainbow", replay=PrioritizedReplay(8_192, n_step=3)),
    "c51": small("c51", backup=MunchausenBackup()),
    "qr": small("qr", torso=MinAtarTorso(channels=4, hidden=(16,)), streams=Streams(noise="independent")),
    "pqn": small("pqn"),
    "r2d2": small(
        "r2d2",
        replay=SequenceReplay(8_192, n_step=2, sequence=4, burn_in=2, stride=4),
        recurrence=GRU(units=8),
        batch_size=8,
    ),
    "ppo": small("ppo", observations=NormalizedObservations(), rewards=NormalizedRewards()),
    "sac": small("sac", replay=PrioritizedReplay(8_192, n_step=3), noise=NoiseConfig(0.9)),
}
PLAIN = {
    ScalarHead,
    GreedyBackup,
    UniformReplay,
    RawObservations,
    RawRewards,
    NoRecurrence,
}  # the simple side of each choice
WARM_UP = 8


@pytest.fixture(scope="module")
def cartpole():
    return registry.make("CartPole-v1")


def equal(left, right):
    left, right = checkpoint.flatten(left), checkpoint.flatten(right)
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_the_agents_hold_every_part():
    """Whatever part an agent has, one of those that are tested here has it too."""

    def parts(choices):
        kinds = {type(getattr(choices, slot)) for slot in PARTS if getattr(choices, slot, None) is not None}
        flags = {flag for flag in ("double",) if getattr(choices, flag, False)}
        streams = getattr(choices, "streams", Streams())
        layers = {flag for flag in ("dueling", "stream_hidden") if getattr(streams, flag)}
        return kinds | flags | layers | {type(choices), streams.noise}

    named = set.union(*(parts(recipe.choices) for recipe in AGENTS.values()))
    assert named - set.union(*map(parts, CONFIGS.values())) <= PLAIN | {"none"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough) if name in FURTHER else name for name in CONFIGS],
)
def test_stops_saving_and_loading_change_no_bit(name, tmp_path):
    """In pieces of any length, through a checkpoint, it is the run that was never stopped."""
    pictures = isinstance(CONFIGS[name].torso, MinAtarTorso)
    task = registry.make_inside("Breakout-MinAtar" if pictures else home(name))
    program = make_program(task, CONFIGS[name], rollout_length=2)
    keys, hparams = seed_keys(0, 1), stack_hparams(2, name)
    first = start(program, keys, hparams, WARM_UP)
    run = continuer(program, first)
    whole = run(first, 60)
    pieces = first
    for stop in (9, 10, 31):
        pieces = run(pieces, stop)
    checkpoint.save(tmp_path / "31", pieces, {"step": 31})
    checkpoint.verify(tmp_path / "31")
    restored = checkpoint.restore(tmp_path / "31", program.shapes(keys, hparams)[0])
    assert equal(pieces, restored)
    assert not equal(pieces.learner, whole.learner)
    assert equal(whole, run(restored, 60))


@pytest.mark.thorough
def test_an_inner_loop_is_the_same_run(cartpole):
    """What a GPU runs: blocks of fixed length inside; the same iterations, equal to rounding."""
    keys, hparams, log = seed_keys(0, 1), stack_hparams(2), jnp.int32(10)
    results = []
    for block in (1, 5):
        program = make_program(cartpole, small("double"), block=block)
        state = start(program, keys, hparams, 10)
        results.append(jax.jit(lambda state, p=program: p.repeat(state, jnp.int32(60), log, learn=True))(state))
    (one, one_rows), (five, five_rows) = results
    assert int(one.iteration) == int(five.iteration) == 60
    np.testing.assert_allclose(one_rows, five_rows, rtol=1e-4, atol=1e-4)
    for left, right in zip(*map(jax.tree.leaves, (one.learner.params, five.learner.params)), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_blocks_divide_every_boundary(monkeypatch):
    assert block_length(6_464, 64, 65, 647) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert block_length(6_400, 640, 128, 64, 0) == 64
    assert block_length(6_400, 96, 64, 640, 0) == 32
    assert block_length(7, 1, 1, 7, 0) == 1


@pytest.mark.parametrize(
    "name", ["prioritized", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("pqn", "ppo"))]
)
def test_a_member_matches_its_own_run_and_seeds_differ(name, cartpole):
    """To rounding: a batched product adds in another order than a single one.  Seeds that shared a key would agree."""
    program = make_program(cartpole, small(name))
    seeds, hparams = seed_keys(*range(10)), stack_hparams(10, name)
    together = runner(program, seeds, hparams, WARM_UP)(seeds, hparams, WARM_UP + 50)
    own = runner(program, seed_keys(0), stack_hparams(1, name), WARM_UP)
    for member in (0, 7):
        alone = own(seed_keys(member), stack_hparams(1, name), WARM_UP + 50)
        for many, one in zip(*map(jax.tree.leaves, (together.learner.params, alone.learner.params)), strict=True):
            np.testing.assert_allclose(many[member], one[0], atol=1e-5)
    kernels = jax.tree.leaves(together.learner.params)[-1]
    assert len(np.unique(kernels.reshape(10, -1), axis=0)) == 10
    assert len(np.unique(together.envs.obs.features.reshape(10, -1), axis=0)) == 10


def test_settings_of_a_population_differ_and_a_seed_keeps_its_key(cartpole):
    program = make_program(cartpole, small("dqn"))
    hparams = stack_hparams(4).replace(learning_rate=jnp.array([1e-3, 1e-3, 1e-2, 1e-2]))
    state = start(program, seed_keys(0, 1, 0, 1), hparams, WARM_UP)
    first = jax.tree.leaves(state.learner.params)[-1]
    np.testing.assert_array_equal(first[:2], first[2:])
    later = jax.tree.leaves(advance(program, state, WARM_UP + 20).learner.params)[-1]
    assert len(np.unique(later.reshape(4, -1), axis=0)) == 4


@pytest.mark.parametrize(
    "name", ["pqn", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("irainbow", "ppo", "sac"))]
)
def test_no_key_is_used_twice(name):
    """One member: the checker does not see through `vmap`, which moves the axes of key arrays."""
    several = {} if name in ("pqn", "ppo") else {"gradient_steps": 2}
    task = registry.make_inside(home(name))
    loop = make_program(task, replace(CONFIGS[name], **several), rollout_length=2).loop
    hparams = jax.tree.map(lambda leaf: leaf[0], stack_hparams(1, name))
    with jax.debug_key_reuse(True):
        state = jax.jit(loop.init)(jax.random.key(0), hparams)
        for _ in range(3):
            state = jax.jit(lambda state: loop.iteration(state, learn=False))(state)
        state = jax.jit(lambda state: loop.iteration(state, learn=True))(state)
        reset_envs(task, jax.random.key(1), 4)
    assert int(state.iteration) == 4


@pytest.mark.parametrize("name", [pytest.param("munchausen", marks=pytest.mark.thorough), "pqn", "ppo"])
def test_no_illegal_action_is_ever_taken(name):
    """Only an illegal action pays 10: it would show in the sums of every window and of every evaluation."""
    program = make_program(task(Masked()), small(name), rollout_length=2)
    keys, hparams = seed_keys(0, 1), stack_hparams(2, name)
    state = runner(program, keys, hparams, WARM_UP)(keys, hparams, 200)
    assert np.all(np.asarray(state.window[:, 0]) > 400)  # episodes
    assert np.all(np.asarray(state.window[:, 1]) <= 3 * np.asarray(state.window[:, 0]))  # their returns
    result = compile_lightly(program.evaluator, state.learner, state.key)(state.learner, state.key)
    assert np.max(result.returns) <= 3
    if not hasattr(state.memory, "_fields"):
        return
    ring = getattr(state.memory, "ring", state.memory)
    legal = np.asarray(ring.observations.legal)[:, :, :200]
    actions = np.asarray(unpack(ring.steps).action)[:, :, :200]
    assert np.take_along_axis(legal, actions[..., None], axis=-1).all()
    assert set(np.unique(actions)) == {0, 1}


def test_a_chunk_moves_nothing_between_host_and_device(cartpole):
    program = make_program(cartpole, small("double"), schedule=Schedule(warm_up=WARM_UP))
    keys, hparams = seed_keys(0), stack_hparams(1)
    running = program.compile(keys, hparams)
    state, _ = running.begin(keys, hparams)
    stop, later = jnp.int32(WARM_UP), jnp.int32(WARM_UP + 10)
    with jax.transfer_guard("disallow"):
        state, _ = running.chunks[False](state, stop, LOG)
        state, rows = running.chunks[True](state, later, LOG)
        jax.block_until_ready(rows)
    assert int(state.iteration) == WARM_UP + 10
    executables: Any = running.chunks.values()
    for compiled in executables:
        for word in ("callback", "infeed", "outfeed", "send(", "recv("):
            assert word not in compiled.as_text()


def test_a_run_that_learns_from_its_first_step_compiles_no_warm_up(cartpole):
    program = make_program(cartpole, small("pqn"), rollout_length=8)
    assert list(program.compile(seed_keys(0), stack_hparams(1, "pqn")).chunks) == [True]


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_a_chunk_updates_its_state_in_place(kind, members, cartpole):
    """The program aliases its state, and needs far less beside it than a copy of the replay."""
    config = replace(small("double"), replay=kind(capacity=800_000))
    program = make_program(cartpole, config)
    state, _ = program.shapes(seed_keys(*range(members)), stack_hparams(members))
    number = jax.ShapeDtypeStruct((), jnp.int32)
    chunk = jax.jit(lambda *args: program.repeat(*args, learn=True), donate_argnums=0)
    memory: Any = chunk.lower(state, number, number).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= 0.99 * nbytes(state)
    assert memory.temp_size_in_bytes < 0.1 * nbytes(state.memory)


@pytest.mark.thorough  # a run with its checkpoints: test_a_run_compiles_each_program_exactly_once
def test_each_program_is_compiled_once(cartpole, tmp_path):
    """A run of many chunks compiles its four programs and nothing that grows with the number of chunks."""
    import logging

    import rollax

    def compilations(chunk_seconds):
        names = []
        handler = logging.Handler()
        handler.emit = lambda record: names.append(record.getMessage())
        logger = logging.getLogger("jax._src.interpreters.pxla")
        logger.addHandler(handler)
        jax.clear_caches()
        try:
            with jax.log_compiles(True):
                experiment = rollax.make_experiment(
                    "double", preset="none", num_envs=4, hidden=(8,), capacity=400, batch_size=8, warm_up_steps=40,
                    steps=1_200, eval_episodes=2, chunk_seconds=chunk_seconds,
                )  # fmt: skip
                rollax.train(experiment, tmp_path / str(chunk_seconds), quiet=True)
        finally:
            logger.removeHandler(handler)
        return [name for name in names if name.startswith("Compiling")]

    few, many = compilations(2.0), compilations(0.0)
    assert len(few) == len(many) > 0
    big = [name for name in many if any(f"jit({own})" in name for own in ("init", "warm_up", "advance"))]
    assert len(big) == 3  # init, warm_up, advance; evaluate compiles on another thread, which this log does not see


def test_evaluation_leaves_the_training_alone(cartpole):
    program = make_program(cartpole, small("double"))
    keys, hparams = seed_keys(0, 1), stack_hparams(2)
    plain = advance(program, start(program, keys, hparams, WARM_UP), 40)
    state = advance(program, start(program, keys, hparams, WARM_UP), 20)
    _, best = jax.jit(program.init)(keys, hparams)
    playing = program.blank(jax.eval_shape(program.evaluator.begin, state.key))
    steps = (jnp.int32(0), jnp.int32(program.evaluator.max_episode_steps))
    playing, best = jax.jit(program.evaluate)(state.learner, state.key, state.iteration, best, playing, *steps)
    result = playing.result
    assert result.returns.shape == (2, 16)
    assert equal(plain, advance(program, state, 40))
    np.testing.assert_array_equal(best.score, np.mean(result.returns, axis=1))


def test_rows_hold_the_sums_of_their_window(cartpole):
    """Windows of 10 iterations, whatever the chunks: the same rows, and their episodes are all that ended."""
    program = make_program(cartpole, small("double"))
    log = jnp.int32(10)
    run = jax.jit(lambda state, stop: program.repeat(state, stop, log, learn=True))
    first = start(program, seed_keys(0), stack_hparams(1), 0)
    first = jax.jit(lambda state: program.repeat(state, jnp.int32(10), log, learn=False)[0])(first)
    _, rows = run(first, jnp.int32(70))
    assert rows.shape[1] == LOG_ROWS
    state, collected = first, []
    for stop in (13, 20, 45, 50, 70):
        before = int(state.iteration) // 10
        state, part = run(state, jnp.int32(stop))
        collected += [np.asarray(part)[0, index] for index in range(stop // 10 - before)]
    np.testing.assert_array_equal(collected, np.asarray(rows)[0, :6])
    assert np.all(np.asarray(rows)[0, :6, 3] == 10)


@pytest.mark.parametrize("what", ["reward", pytest.param("observation", marks=pytest.mark.thorough)])
def test_what_is_not_finite_stops_its_member_only(what):
    """Members whose environments break keep their last finite weights; the others go on as if alone."""
    program = make_program(task(Breaks(what=what, after=20)), small("dqn"), num_envs=1)
    state = advance(program, start(program, seed_keys(*range(6)), stack_hparams(6), WARM_UP), 60)
    causes = np.asarray(state.health.cause)
    assert 0 < np.count_nonzero(causes) < 6
    watched = program.loop.watched(state.learner)
    for member in np.flatnonzero(causes):
        assert what in watched[causes[member] - 1]
        assert int(state.health.iteration[member]) in (19, 20)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.params))
    if what == "observation":
        return  # that the others go on is the same law
    well = int(np.flatnonzero(causes == 0)[0])
    alone = advance(program, start(program, seed_keys(well), stack_hparams(1), WARM_UP), 60)
    for many, one in zip(*map(jax.tree.leaves, (state.learner.params, alone.learner.params)), strict=True):
        np.testing.assert_allclose(many[well], one[0], atol=1e-5)


@jax.custom_vjp
def steep(x):
    return x


steep.defvjp(lambda x: (x, None), lambda _, slope: (slope * jnp.nan,))


class SteepMLP(MLP):
    """What it shows is finite, and its gradient is not."""

    @nn.compact
    def __call__(self, features):
        return steep(super().__call__(features))


@pytest.mark.parametrize("name", ["dqn", "ppo", *(pytest.param(name, marks=pytest.mark.thorough) for name in FURTHER)])
def test_a_gradient_that_is_not_finite_is_never_taken(name):
    """The loss is finite until the weights have moved, which it is in an iteration of several gradient steps only."""
    config = small(name, torso=SteepMLP((8,)))
    task = registry.make_inside(home(name))
    program = make_program(task, config, rollout_length=ROLLOUT.get(name, 8 if name == "r2d2" else 1))
    first = start(program, seed_keys(0), stack_hparams(1, name), WARM_UP)
    before = jax.tree.map(np.asarray, first.learner.params)
    state = advance(program, first, WARM_UP + 3)
    watched = program.loop.watched(state.learner)
    assert watched[int(state.health.cause[0]) - 1] == "gradients"
    for now, then in zip(*map(jax.tree.leaves, (state.learner.params, before)), strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("rule", ["adam", "radam", "rmsprop"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_stay_where_they_were_after_a_gradient_that_is_no_number(rule, bad):
    hparams, params = OptimizerHParams(learning_rate=0.1), {"a": jnp.arange(4.0), "b": jnp.float32(2)}
    good = jax.tree.map(jnp.ones_like, params)
    opt_state = make_optimizer(rule, hparams).init(params)
    moved = apply_gradients(rule, hparams, 0, good, opt_state, params)
    spoilt = apply_gradients(rule, hparams, 0, good | {"a": good["a"].at[2].set(bad)}, moved.opt_state, moved.params)
    later = apply_gradients(rule, hparams, 0, good, spoilt.opt_state, spoilt.params)
    assert not np.isfinite(spoilt.grad_norm)
    for name in params:
        assert not np.array_equal(moved.params[name], params[name])
        np.testing.assert_array_equal(spoilt.params[name], moved.params[name])
        np.testing.assert_array_equal(later.params[name], moved.params[name])


def test_weights_that_are_kept_are_finite_even_where_nobody_looks():
    """A step that is no number, of a gradient that is one: the weights that it would have spoilt stay as they were."""
    assert last_finite(jnp.array([9.0, jnp.nan, jnp.inf, 7.0]), jnp.arange(4.0)).tolist() == [9.0, 1.0, 2.0, 7.0]


@pytest.mark.thorough
def test_weights_that_run_away_are_noticed(cartpole):
    program = make_program(cartpole, small("dqn", loss="squared"))
    hparams = stack_hparams(2).replace(learning_rate=jnp.array([1e-3, 1e38]), max_grad_norm=jnp.array([10.0, 1e38]))
    state = advance(program, start(program, seed_keys(0, 0), hparams, WARM_UP), 40)
    assert np.asarray(state.health.cause)[0] == 0
    assert np.asarray(state.health.cause)[1] > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.params))
