"""The comparison's two modes in JAX: one agent after the other, called from Python, and the whole as one program."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import own_axes
from rollax.agents.dqn import DQN
from rollax.agents.players import Independent, of_player
from rollax.envs.protocol import play_envs
from rollax.envs.random_play import RandomPlay
from rollax.envs.treasurehunt import TreasureHunt
from rollax.envs.treasurehunt.world import World
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.memory.replay import Request
from rollax.programs.loop import Loop, TrainState
from rollax.programs.plan import make_plan
from rollax.programs.program import LIGHT
from rollax.tools.comparison.settings import TYPICAL_EPSILON
from rollax.types import Array, Key, Observation, Transition

MOST = 1_000  # epochs of one call


def jit(function: Callable, donate_argnums: Sequence[int] = ()) -> Any:
    """`jax.jit` with the compiler's options of a training run."""
    options = LIGHT if jax.default_backend() == "cpu" else None
    return jax.jit(function, donate_argnums=donate_argnums, compiler_options=options)


class JaxMode:
    """What both modes are: an experiment, compiled, with the state that it has reached."""

    def __init__(self, experiment: Experiment) -> None:
        plan = make_plan(experiment)
        self.loop: Loop = plan.program.loop
        self.evaluator = plan.program.evaluator
        assert isinstance(self.loop.agent, Independent)
        self.agent: Independent = self.loop.agent
        self.hparams = jax.tree.map(lambda leaf: leaf[0], plan.hparams)
        self.compile_seconds = 0.0
        self.begin = self.compiled(self.loop.init, jax.random.key(0), self.hparams)
        self.reset(experiment.seed)

    def compiled(self, function: Callable, *arguments: Any, donate: Sequence[int] = ()) -> Callable:
        """The function, compiled for such arguments, with the time on the clock."""
        began = time.perf_counter()
        program = jit(function, donate_argnums=donate).lower(*arguments).compile()
        self.compile_seconds += time.perf_counter() - began
        return program

    def reset(self, seed: int) -> None:
        """A new experiment."""
        self.state: TrainState = self.begin(jax.random.key(seed), self.hparams)

    def hold_epsilon(self, epsilon: float | None) -> None:
        """Sets the share of random actions to a number, or back to its schedule."""
        known = self.hparams
        if epsilon is not None:
            share = jnp.float32(epsilon)
            known = known.replace(exploration=known.exploration.replace(epsilon_start=share, epsilon_end=share))
        players = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.agent.players, *leaf.shape)), known)
        self.state = self.state._replace(learner=self.state.learner._replace(hparams=players))

    def greedy_returns(self, count: int, seed: int) -> list[float]:
        """Returns of epochs without random actions, from which nothing is learnt."""
        evaluator = dataclasses.replace(self.evaluator, episodes=count)
        alone = jax.tree.map(lambda leaf: leaf[None], self.state.learner)
        return np.asarray(jax.jit(evaluator)(alone, jax.random.key(seed)[None]).returns)[0].tolist()

    def timed(self, function: Callable, *arguments: Any, times: int = 10) -> float:
        """Seconds of one call: the median."""
        program, spent = jit(function), []
        jax.block_until_ready(program(*arguments))
        for _ in range(times):
            began = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            spent.append(time.perf_counter() - began)
        return float(np.median(spent))

    def sampling_seconds(self) -> float:
        """Of all agents' draws from their memories for one epoch."""
        agent, axes = self.agent.agent, own_axes(self.state.memory)
        assert isinstance(agent, DQN)

        def sample(memory: Any, key: Key) -> Any:
            return agent.buffer.sample(memory, key, Request(agent.config.batch_size, discount=0.99))

        every = jax.vmap(sample, in_axes=(axes, 0))
        return agent.updates * self.timed(every, self.state.memory, self.agent.keys(jax.random.key(0)))


class JaxParallel(JaxMode):
    """Epochs without end in one compiled program; the host only says how many."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        self.advance = self.compiled(self.many, self.state, jnp.int32(1), donate=(0,))

    def many(self, state: TrainState, count: Array) -> tuple[TrainState, Array]:
        """The state after so many epochs, and their returns."""

        def epoch(number: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            state, returns = carry
            after = self.loop.iteration(state._replace(window=jnp.zeros_like(state.window)), learn=True)
            return after, returns.at[number].set(after.window[1])

        return jax.lax.fori_loop(0, count, epoch, (state, jnp.zeros(MOST)))

    def epochs(self, count: int, epsilon: float | None = None) -> list[float]:
        """Plays and learns; returns of the epochs.  Comes back when all is done."""
        self.hold_epsilon(epsilon)
        returns: list[float] = []
        while len(returns) < count:
            share = min(MOST, count - len(returns))
            self.state, found = self.advance(self.state, jnp.int32(share))
            returns += np.asarray(found)[:share].tolist()
        jax.block_until_ready(self.state)
        return returns

    def parts(self) -> dict[str, float]:
        """Seconds of an epoch by what they go into, each measured as a program of its own."""
        state, key, task = self.state, jax.random.key(0), self.loop.task
        random = RandomPlay(task)

        def walk(envs: Any, keys: Key) -> Any:
            return jax.lax.scan(lambda envs, key: play_envs(task, envs, random, key)[:2], envs, keys)

        keys = jax.random.split(key, (self.loop.rollout_length, 2))
        self.hold_epsilon(TYPICAL_EPSILON)
        collect = self.timed(self.loop.collect, self.state.learner, state.envs, key)
        world = self.timed(walk, state.envs, keys)
        rollout = jax.jit(self.loop.collect)(state.learner, state.envs, key)[1]
        learn = self.timed(self.agent.learn, state.learner, state.memory, rollout, key)
        sampling = self.sampling_seconds()
        return {"acting": collect - world, "training": learn - sampling, "sampling": sampling, "world": world}


class Pages(NamedTuple):
    """What one agent's epoch leaves: its frames, the blank ones before the first included, actions and rewards."""

    frames: Array
    action: Array
    reward: Array


class EpochKeys(NamedTuple):
    """For an epoch: of each agent's decision in each turn, of the world in each turn, and of each agent's learning."""

    act: Key
    step: Key
    learn: Key


def actor_of(learner: Any) -> Any:
    """What acting needs of a learner: every array that a function is called with takes its time."""
    others = {field.name: None for field in dataclasses.fields(learner.hparams) if field.name != "exploration"}
    return learner._replace(hparams=learner.hparams.replace(**others), target_params=None, opt_state=None)


class JaxSequential(JaxMode):
    """Small compiled functions, called from Python for one agent after the other, in every turn.

    It draws the same random numbers as the whole program, so it comes to the same result.
    """

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        env = self.loop.task.env
        assert isinstance(env, TreasureHunt)
        if env.shuffle_agent_order:
            raise ConfigError("jax_sequential asks the agents in their order; leave out shuffle_agent_order")
        self.env: TreasureHunt = env
        self.act = jit(self.agent_turn, donate_argnums=(3,))
        self.finish = jit(self.end_of_turn)
        self.open = jit(self.open_epoch)
        self.learn = jit(self.agent_learn, donate_argnums=(0, 1))
        began = time.perf_counter()
        self.apart()
        self.one_epoch()
        self.compile_seconds += time.perf_counter() - began
        self.reset(experiment.seed)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.learners: list[Any] = []

    def apart(self) -> None:
        """Each agent's own learner and memory, out of the stacked ones."""
        players = range(self.agent.players)
        self.learners = [of_player(self.state.learner, player) for player in players]
        self.memories = [
            jax.tree.map(lambda leaf, own=player: jnp.copy(leaf) if leaf.ndim == 0 else leaf[own], self.state.memory)
            for player in players
        ]
        self.game = jax.tree.map(lambda leaf: leaf[0], self.state.envs.state)
        self.iteration = int(self.state.iteration)

    def together(self) -> None:
        """The stacked state again."""
        stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *self.learners)
        memory = jax.tree.map(lambda *rows: rows[0] if rows[0].ndim == 0 else jnp.stack(rows), *self.memories)
        envs = self.state.envs._replace(state=jax.tree.map(lambda leaf: leaf[None], self.game))
        self.state = self.state._replace(learner=stacked, memory=memory, envs=envs, iteration=jnp.int32(self.iteration))

    def open_epoch(self, key: Key, iteration: Array, before: Array) -> tuple[EpochKeys, list[Pages]]:
        """What an epoch draws with, and blank pages for each agent."""
        collect_key, learn_key = jax.random.split(jax.random.fold_in(key, iteration))
        act_keys, step_keys = jnp.moveaxis(jax.random.split(collect_key, (self.loop.rollout_length, 2)), 1, 0)
        alone = jax.vmap(lambda key: jax.random.split(key, 1)[0])
        if self.loop.task.in_turn:
            act_keys = alone(act_keys)
        act_keys = jax.vmap(self.agent.keys, out_axes=1)(act_keys)
        turns = self.loop.rollout_length
        frames = jnp.pad(before, ((0, 0), (0, turns), (0, 0)))
        pages = [Pages(own, jnp.zeros(turns, jnp.int32), jnp.zeros(turns)) for own in frames]
        return EpochKeys(act_keys, alone(step_keys), self.agent.keys(learn_key)), pages

    def agent_turn(
        self, learner: Any, seen: World, world: World, pages: Pages, turn: Array, player: Array, keys: Key
    ) -> tuple[World, Pages]:
        """One agent looks at one world, decides, and moves in another, which may be the same."""
        rules, stack = self.env.rules, self.env.frames
        frames = jax.lax.dynamic_update_slice_in_dim(
            pages.frames, rules.observe_one(seen, player)[None], turn + stack - 1, axis=0
        )
        obs = Observation(jax.lax.dynamic_slice_in_dim(frames, turn, stack)[None])
        action, _ = self.agent.agent.act(learner, obs, keys[player, turn], explore=True)
        world, reward = rules.move(world, player, action[0])
        return world, Pages(frames, pages.action.at[turn].set(action[0]), pages.reward.at[turn].set(reward))

    def end_of_turn(self, keys: Key, state: Any, world: World, pages: list[Pages], turn: Array) -> Any:
        """The game before the next turn."""
        seen = jnp.stack([own.frames[turn + self.env.frames - 1] for own in pages])
        return self.env.finish(keys[turn], state._replace(world=world), seen, jnp.zeros(()))[1]

    def agent_learn(self, learner: Any, memory: Any, pages: Pages, player: Array, keys: Key) -> tuple[Any, Any, Array]:
        """One agent remembers its epoch and learns; its return comes back too."""
        turns, stack = self.loop.rollout_length, self.env.frames
        windows = jnp.arange(turns)[:, None] + jnp.arange(stack)
        obs = Observation(pages.frames[windows][:, None])
        ended = (jnp.arange(turns) == turns - 1)[:, None]
        columns = (pages.action[:, None], pages.reward[:, None], jnp.zeros_like(ended), ended)
        rollout = Transition(obs, *columns, obs, ())
        memory = self.agent.agent.remember(memory, rollout)
        learner, memory, _ = self.agent.agent.learn(learner, memory, rollout, keys[player])
        return learner, memory, jnp.sum(pages.reward)

    def one_epoch(self) -> float:
        pages, learn_keys = self.play()
        total = self.learn_all(pages, learn_keys)
        self.iteration += 1
        return total

    def play(self) -> tuple[list[Pages], Key]:
        """All turns of an epoch, and the keys for what is learnt from it."""
        players = [np.int32(player) for player in range(self.agent.players)]
        keys, pages = self.open(self.state.key, np.int32(self.iteration), self.game.frames)
        actors = [actor_of(learner) for learner in self.learners]
        for turn in map(np.int32, range(self.loop.rollout_length)):
            start = world = self.game.world
            for player in players:
                seen = world if self.env.in_turn else start
                world, pages[player] = self.act(actors[player], seen, world, pages[player], turn, player, keys.act)
            self.game = self.finish(keys.step, self.game, world, pages, turn)
        return pages, keys.learn

    def learn_all(self, pages: list[Pages], keys: Key) -> float:
        """One agent after the other remembers and learns; the return of the epoch."""
        earned = []
        for player in map(np.int32, range(self.agent.players)):
            own = (self.learners[player], self.memories[player], pages[player], player, keys)
            self.learners[player], self.memories[player], reward = self.learn(*own)
            earned.append(reward)
        return float(np.sum(earned))

    def epochs(self, count: int, epsilon: float | None = None) -> list[float]:
        """Plays and learns; returns of the epochs.  Comes back when all is done."""
        self.hold_epsilon(epsilon)
        self.apart()
        returns = [self.one_epoch() for _ in range(count)]
        self.together()
        jax.block_until_ready(self.state)
        return returns

    def parts(self) -> dict[str, float]:
        """Seconds of an epoch by what they go into; the world is what playing takes with random actions alone."""
        playing: dict[float, list[float]] = {1.0: [], TYPICAL_EPSILON: []}
        learning = []
        for share, spent in playing.items():
            self.hold_epsilon(share)
            self.apart()
            for _ in range(10):
                began = time.perf_counter()
                pages, keys = jax.block_until_ready(self.play())
                spent.append(time.perf_counter() - began)
                began = time.perf_counter()
                self.learn_all(pages, keys)
                jax.block_until_ready(self.learners)
                learning.append(time.perf_counter() - began)
                self.iteration += 1
            self.together()
        world, both = (float(np.median(spent)) for spent in playing.values())
        sampling = self.sampling_seconds()
        training = float(np.median(learning)) - sampling
        return {"acting": both - world, "training": training, "sampling": sampling, "world": world}
