"""The comparison's mode in which Python calls small programs, for one agent after the other."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.players import of_player
from rollax.envs.treasurehunt import TreasureHunt
from rollax.envs.treasurehunt.world import World
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.tools.comparison.jax_parallel import JaxMode, jit
from rollax.tools.comparison.settings import TYPICAL_EPSILON
from rollax.types import Array, Key, Observation, Transition


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
        fresh = (turn == 0)[None]
        action = self.agent.agent.act(learner, (), obs, fresh, keys[player, turn], explore=True).action[0]
        world, reward = rules.move(world, player, action)
        return world, Pages(frames, pages.action.at[turn].set(action), pages.reward.at[turn].set(reward))

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
