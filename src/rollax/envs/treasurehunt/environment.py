"""The treasure hunt as an environment of several players."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.protocol import EnvConfig
from rollax.envs.treasurehunt import drawing
from rollax.envs.treasurehunt.world import BONE, FOOD, GEM, UNROLLED, Rules, World
from rollax.settings import COUNT, COUNT_OR_NONE, SHARE, Limit, setting
from rollax.types import Array, Key

NUMBER = Limit(-1e6, 1e6)
Decide = Callable[[Any, Array], tuple[Array, Any]]  # a player and what it sees, to its action and what to note of it


class State(NamedTuple):
    """A game between two turns, after treasures have appeared for the coming one."""

    world: World
    turn: Array  # turns that were played
    frames: Array  # float32[players, frames - 1, D]: what each player saw before, the oldest first
    order: Array  # int32[players]: who moves first, second, ... in the coming turn
    past: Past | None  # what was seen in earlier games, where that shows before a game's first turns


class Past(NamedTuple):
    """A ring of all that was seen, with a gap before each game's frames: what it is overwritten with comes late."""

    frames: Array  # float32[players, rows, D]
    row: Array  # of the running game's first frame


@dataclass(frozen=True)
class TreasureHunt(EnvConfig):
    """Players walk on a walled board and take the treasures that appear on it, for so many turns.

    An observation is `[players, frames, D]`: for each player the last frames, the oldest first, and zeros before its
    first.  Players move in the order of their numbers and meet what the moves before theirs have left.  In sequence
    they also see it before they decide; `simultaneous` shows all of them the board as it is before the first move.
    The last turn is a time limit: a truncation.
    """

    variant: Literal["gem", "gem_food_bone"] = setting("gem", "Whether gems appear, or gems, food and bones.")
    height: int = setting(10, "Number of rows of the board, with its walls.", limit=Limit(3, 1_000))
    width: int = setting(10, "Number of columns of the board, with its walls.", limit=Limit(3, 1_000))
    agents: int = setting(5, "Number of players.", limit=COUNT)
    vision_radius: int = setting(
        2, "Number of cells that a player sees in each direction.", limit=COUNT_OR_NONE, rare=True
    )
    max_turns: int = setting(50, "Number of turns of a game.", limit=COUNT)
    spawn_prob: float = setting(
        0.02, "Probability that a treasure appears on an empty cell in a turn.", limit=SHARE, rare=True
    )
    gem_value: float = setting(10.0, "Reward of a gem.", limit=NUMBER, rare=True)
    food_value: float = setting(5.0, "Reward of food.", limit=NUMBER, rare=True)
    bone_value: float = setting(-10.0, "Reward of a bone.", limit=NUMBER, rare=True)
    frames: int = setting(5, "Number of frames that an observation shows, with the current one.", limit=COUNT)
    obs_timing: Literal["sequential", "simultaneous"] = setting(
        "sequential", "Whether players decide in turn, after others' moves, or all at once."
    )
    shuffle_agent_order: bool = setting(False, "Draw the order of moves anew for each turn.", rare=True)
    stale_frames: int = setting(
        0,
        "Number of rows of a ring whose old frames show before a game's first; 0 shows none.",
        limit=COUNT_OR_NONE,
        rare=True,
    )

    num_actions = 4
    action_names = ("up", "down", "left", "right")
    keys = "wsad"
    default_params = None

    @property
    def players(self) -> int:
        return self.agents

    @property
    def in_turn(self) -> bool:
        return self.obs_timing == "sequential"

    @property
    def truncation_interval(self) -> int:
        return self.max_turns

    @cached_property
    def rules(self) -> Rules:
        gems_only = self.variant == "gem"
        return Rules(
            height=self.height,
            width=self.width,
            players=self.agents,
            radius=self.vision_radius,
            spawn_prob=self.spawn_prob,
            treasures=(GEM,) if gems_only else (GEM, FOOD, BONE),
            values=(0.0, -1.0, self.gem_value, self.bone_value, self.food_value, 0.0),
            channel=(0, 1, 3, 0, 0, 4) if gems_only else (0, 1, 2, 3, 4, 5),
            num_channels=5 if gems_only else 6,
            sand=2 if gems_only else 0,
            walls_on_ground=gems_only,
        )

    def problems(self) -> list[str]:
        free, least = (self.height - 2) * (self.width - 2), self.max_turns + self.frames - 1
        found = []
        if self.agents > free:
            found.append(
                f"agents={self.agents} do not fit on the {free} free cells; try agents={free} or a larger board"
            )
        if 0 < self.stale_frames < least:
            found.append(f"stale_frames={self.stale_frames} do not hold a game; the least is stale_frames={least}")
        return found

    # -- the library's protocol

    def reset(self, key: Key, params: Any = None) -> tuple[Array, State]:
        size, past = self.rules.observation_size, None
        if self.stale_frames:
            past = Past(jnp.zeros((self.agents, self.stale_frames, size), jnp.float32), jnp.int32(self.frames - 1))
        frames = jnp.zeros((self.agents, self.frames - 1, size), jnp.float32)
        world = self.new_world(jax.random.uniform(key, (self.lots_of_a_game,)))
        state = State(world, jnp.int32(0), frames, jnp.arange(self.agents), past)
        return self.show(state), state

    @property
    def lots_of_a_game(self) -> int:
        """How many uniform numbers a new game is made of."""
        return self.rules.num_free + self.height * self.width

    def new_world(self, lots: Array) -> World:
        places, treasures = jnp.split(lots, [self.rules.num_free])
        return self.rules.spawn(self.rules.start(places), treasures.reshape(self.height, self.width))

    def step(
        self, key: Key, state: State, action: Array, params: Any = None
    ) -> tuple[Array, State, Array, Array, Array, dict]:
        """One turn: all players move, and treasures appear for the next; a new game follows an ended one at once."""
        if self.in_turn:
            return self.turn(key, state, lambda player, _: (action[player], ()))[1]
        seen = self.rules.observe(state.world)
        order = state.order if self.shuffle_agent_order else None
        world, reward = self.rules.move_all(state.world, action, order)
        return self.finish(key, state._replace(world=world), seen, reward)

    def turn(self, key: Key, state: State, decide: Decide, params: Any = None) -> tuple[tuple, tuple]:
        """One turn in which each player is asked when it has to move: observations, actions and what `decide` adds.

        These lead with the players.  The second tuple is what `step` returns.
        """

        def move(world: World, player: Array | int) -> tuple[World, tuple]:
            seen = self.rules.observe_one(world, player)
            obs = jnp.concatenate([state.frames[player], seen[None]])
            action, extras = decide(player, obs)
            world, reward = self.rules.move(world, player, action)
            return world, (obs, action, extras, seen, reward)

        world, moves = state.world, []
        if self.agents <= UNROLLED and not self.shuffle_agent_order:
            # Each player's number is known when it is compiled, so its weights are where they are, and not a copy.
            for player in range(self.agents):
                world, made = move(world, player)
                moves.append(made)
            made = jax.tree.map(lambda *rows: jnp.stack(rows), *moves)
        else:
            world, made = jax.lax.scan(move, world, state.order)
            made = jax.tree.map(lambda rows: jnp.zeros_like(rows).at[state.order].set(rows), made)
        *decided, seen, reward = made
        return tuple(decided), self.finish(key, state._replace(world=world), seen, reward)

    def finish(
        self, key: Key, state: State, seen: Array, reward: Array
    ) -> tuple[Array, State, Array, Array, Array, dict]:
        """What `step` returns, after all have moved who saw that."""
        # All that is random in a turn in one draw: on a GPU each takes as long as the rest of the world.
        parts = (self.lots_of_a_game, self.height * self.width, self.agents)
        anew, treasures, turns = jnp.split(jax.random.uniform(key, (sum(parts),)), np.cumsum(parts)[:-1])
        frames = jnp.concatenate([state.frames, seen[:, None]], axis=1)[:, 1:]
        order, past, older = state.order, state.past, jnp.zeros_like(frames)
        if self.shuffle_agent_order:
            order = jnp.argsort(turns)
        over = state.turn + 1 == self.max_turns
        if past is not None:
            place = (past.row + state.turn) % self.stale_frames
            ring = jax.lax.dynamic_update_slice_in_dim(past.frames, seen[:, None], place, axis=1)
            first = (past.row + self.max_turns + self.frames - 1) % self.stale_frames
            older = ring[:, (first - (self.frames - 1) + jnp.arange(self.frames - 1)) % self.stale_frames]
            past = Past(ring, jnp.where(over, first, past.row))
        world = self.rules.spawn(state.world, treasures.reshape(self.height, self.width))
        state = State(world, state.turn + 1, frames, order, past)
        last, fresh = self.show(state), (self.new_world(anew), jnp.int32(0), older)
        begun = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, tuple(state[:3]))
        state = State(*begun, order, past)
        return self.show(state), state, reward, jnp.bool_(False), over, {"final_observation": last}

    def show(self, state: State) -> Array:
        """What the players are shown before the first of them moves: their frames so far, and what they see."""
        seen = self.rules.observe(state.world)
        return jnp.concatenate([state.frames, seen[:, None]], axis=1)

    def picture(self, state: State) -> np.ndarray:
        """The game as `uint8[height, width, 3]`."""
        return drawing.picture(state.world, int(state.turn))
