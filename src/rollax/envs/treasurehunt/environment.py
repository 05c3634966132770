"""The treasure hunt as an environment of several players."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.treasurehunt import drawing
from rollax.envs.treasurehunt.world import BONE, FOOD, GEM, Rules, World
from rollax.limits import COUNT, COUNT_OR_NONE, SHARE, Limit
from rollax.types import Array, Key

NUMBER = Limit(-1e6, 1e6)


class State(NamedTuple):
    """A game between two turns, after treasures have appeared for the coming one."""

    world: World
    turn: Array  # turns that were played
    frames: Array  # float32[players, frames - 1, D]: what each player saw before, the oldest first


@dataclass(frozen=True)
class TreasureHunt:
    """Players walk on a walled board and take the treasures that appear on it, for so many turns.

    An observation is `[players, frames, D]`: for each player the last frames, the oldest first, and zeros before its
    first.  Players move in the order of their numbers, each seeing the result of the moves before its own in what it
    meets, but not in what it was shown.  The last turn is a time limit: a truncation.
    """

    variant: Literal["gem", "gem_food_bone"] = "gem"  # What appears: gems, or gems, food and bones.
    height: int = 10  # Rows of the board, its walls included.
    width: int = 10  # Columns, as well.
    agents: int = 5  # Players.
    vision_radius: int = 2  # How many cells a player sees in each direction.
    max_turns: int = 50  # Turns of a game.
    spawn_prob: float = 0.02  # The chance of an empty cell to hold a treasure in the next turn.
    gem_value: float = 10.0  # What a gem is worth ...
    food_value: float = 5.0  # ... food ...
    bone_value: float = -10.0  # ... and a bone.
    frames: int = 5  # Frames that an observation shows, the current one included.
    shuffle_agent_order: bool = False  # The order of moves is drawn anew for each turn.
    limits: ClassVar[dict[str, Limit]] = {
        "height": Limit(3, 1_000),
        "width": Limit(3, 1_000),
        "agents": COUNT,
        "vision_radius": COUNT_OR_NONE,
        "max_turns": COUNT,
        "spawn_prob": SHARE,
        "gem_value": NUMBER,
        "food_value": NUMBER,
        "bone_value": NUMBER,
        "frames": COUNT,
    }

    num_actions = 4
    action_names = ("up", "down", "left", "right")
    keys = "wsad"
    default_params = None

    @property
    def players(self) -> int:
        return self.agents

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
        """What is wrong with these choices together, each with its fix."""
        free = (self.height - 2) * (self.width - 2)
        if self.agents <= free:
            return []
        return [f"agents={self.agents} do not fit on the {free} free cells; try agents={free} or a larger board"]

    # -- the library's protocol

    def reset(self, key: Key, params: Any = None) -> tuple[Array, State]:
        place_key, spawn_key = jax.random.split(key)
        world = self.rules.spawn(self.rules.start(place_key), spawn_key)
        frames = jnp.zeros((self.agents, self.frames - 1, self.rules.observation_size), jnp.float32)
        state = State(world, jnp.int32(0), frames)
        return self.show(state), state

    def step(
        self, key: Key, state: State, action: Array, params: Any = None
    ) -> tuple[Array, State, Array, Array, Array, dict]:
        """One turn: all players move, and treasures appear for the next; a new game follows an ended one at once."""
        order_key, spawn_key, reset_key = jax.random.split(key, 3)
        order = jnp.arange(self.agents)
        if self.shuffle_agent_order:
            order = jax.random.permutation(order_key, order)
        moved, reward = self.rules.move_all(state.world, action, order)
        seen = self.rules.observe(state.world)
        frames = jnp.concatenate([state.frames, seen[:, None]], axis=1)[:, 1:]
        state = State(self.rules.spawn(moved, spawn_key), state.turn + 1, frames)
        over = state.turn == self.max_turns
        last, (obs, fresh) = self.show(state), self.reset(reset_key)
        following = jax.tree.map(lambda new, old: jnp.where(over, new, old), (obs, fresh), (last, state))
        return *following, reward, jnp.bool_(False), over, {"final_observation": last}

    def show(self, state: State) -> Array:
        """What the players are shown: their frames so far, and what they see now."""
        seen = self.rules.observe(state.world)
        return jnp.concatenate([state.frames, seen[:, None]], axis=1)

    def picture(self, state: State) -> np.ndarray:
        """The game as `uint8[height, width, 3]`."""
        return drawing.picture(state.world, int(state.turn))
