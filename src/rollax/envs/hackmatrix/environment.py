"""HackMatrix as an environment: pure functions of a state and a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.hackmatrix import drawing, observation, scenario, screen, stages, telling, turns, values
from rollax.envs.hackmatrix.actions import NUM_ACTIONS, act, ends_turn
from rollax.envs.hackmatrix.board import CELLS
from rollax.envs.hackmatrix.observation import View
from rollax.envs.hackmatrix.play import Sight
from rollax.envs.hackmatrix.rewards import reward
from rollax.envs.hackmatrix.state import LAST_STAGE, MAX_ENEMIES, State, empty_history, pick, push, snapshot
from rollax.envs.protocol import EnvConfig
from rollax.settings import COUNT, setting
from rollax.types import Array, Key, Observation


class Outcome(NamedTuple):
    """A step up to the point where a completed stage is followed by the next one's board."""

    state: State
    reward: Array
    over: Array
    won: Array
    completed: Array  # the stage, and another one follows
    acted: State  # after the player's part, before the enemies'
    attacked: Array  # which of the enemies took an hp of the player: bool[MAX_ENEMIES]


@dataclass(frozen=True)
class HackMatrix(EnvConfig):
    """A turn-based tactical game on a 6 x 6 board, with 28 actions of which a mask says which are legal.

    All randomness comes from the keys.  Every end of an episode is a termination: death, victory, an illegal action.
    """

    undo_across_stages: bool = setting(
        True, "Let UNDO go back over a stage border, after which the stage counts twice."
    )
    undo_depth: int = setting(8, "Number of turns that UNDO can go back.", limit=COUNT, rare=True)

    num_actions = NUM_ACTIONS
    action_names = drawing.ACTION_NAMES
    keys = drawing.KEYS
    default_params = None
    truncation_interval = 1 << 30  # no time limit
    costly = True  # to step, beside a network

    # -- the library's protocol

    def reset(self, key: Key, params: Any = None) -> tuple[Observation, State]:
        state = self.reset_state(key)
        return self.see(state), state

    def step(
        self, key: Key, state: State, action: Array, params: Any = None
    ) -> tuple[Observation, State, Array, Array, Array, dict]:
        """One step; a new game follows an ended one at once."""
        play_key, game_key, board_key = jax.random.split(key, 3)
        done = self._play(play_key, state, action)
        # A new game and a new stage share one drawing of a board.
        new_game = stages.new_game(jax.random.bits(game_key, (2,)), done.state.history)
        following = stages.set_up(pick(done.over, new_game, done.state), board_key, done.completed | done.over)
        obs, last = self.see(following), self.see(done.state)
        info = {
            "final_observation": jax.tree.map(lambda a, b: jnp.where(done.over, a, b), last, obs),
            "stage": done.state.stage,
            "score": done.state.player.score,
            "won": done.won,
            "dropped_enemies": done.state.dropped,
            "dropped_snapshots": done.state.history.dropped,
        }
        return obs, following, done.reward, done.over, jnp.bool_(False), info

    def see(self, state: State) -> Observation:
        """What an agent is shown.  Where no action is legal it is offered all: any one ends the game."""
        view, legal = self.observe(state), self.legal(state)
        return Observation(view._replace(programs=view.programs.astype(jnp.float32)), legal | ~jnp.any(legal))

    # -- games one by one

    def reset_state(self, key: Key) -> State:
        """A new game."""
        game_key, board_key = jax.random.split(key)
        game = stages.new_game(jax.random.bits(game_key, (2,)), empty_history(self.undo_depth))
        return stages.set_up(game, board_key, jnp.bool_(True))

    def step_without_reset(self, key: Key, state: State, action: Array) -> tuple[State, Array, Array]:
        """The state after an action, its reward, and whether the game is over; an ended game stays as it is."""
        play_key, board_key = jax.random.split(key)
        done = self._play(play_key, state, action)
        return stages.set_up(done.state, board_key, done.completed), done.reward, done.over

    # -- for people

    def step_and_stay(
        self, key: Key, state: State, action: Array, params: Any = None
    ) -> tuple[Observation, State, Array, Array, Array, dict]:
        """What `step` returns, but that an ended game stays as it ended; `info["outcome"]` says how it went."""
        play_key, _, board_key = jax.random.split(key, 3)
        done = self._play(play_key, state, action)
        last = stages.set_up(done.state, board_key, done.completed)
        info = {"stage": done.state.stage, "score": done.state.player.score, "won": done.won, "outcome": done}
        return self.see(last), last, done.reward, done.over, jnp.bool_(False), info

    def told(self, before: State, action: int, info: dict) -> list[str]:
        """What a move did and what the enemies did then, in sentences; of the last one, why the game is over."""
        return telling.told(before, action, info["outcome"])

    def why_not(self, state: State, action: int) -> str:
        """Why an action is not legal."""
        return telling.why_not(state, action)

    def legend(self, state: State, legal: np.ndarray) -> list[str]:
        """What the signs of `text` mean, and the programs that one has or could get, with prices and effects."""
        return screen.legend(state, legal)

    def screen(self, state: State, legal: np.ndarray, columns: int, *, colours: bool) -> str:
        """The game for somebody who plays at a terminal that is so wide."""
        return screen.whole(state, legal, columns, colours=colours)

    # -- how a step goes

    def _play(self, key: Key, state: State, action: Array) -> Outcome:
        """The player's part, the enemies' part, and what both were worth."""
        bits = jax.random.bits(key, (2 * MAX_ENEMIES + CELLS,))
        action_bits, spawn_bits = bits[: 2 * MAX_ENEMIES], bits[2 * MAX_ENEMIES :]
        sight = Sight(state)
        allowed = jnp.any(observation.legal(state) & (jnp.arange(NUM_ACTIONS) == action))
        action = jnp.where(allowed, action, -1)
        play = jax.lax.optimization_barrier(act(state, sight, action, action_bits))

        finished = play.at_exit
        won = finished & (state.stage == LAST_STAGE)
        spends_turn = ends_turn(action) & ~finished
        turn = spends_turn & ~play.state.step
        after_turn, attacked = turns.enemy_turn(play.state, action_bits, spawn_bits)
        new = pick(finished, stages.complete(play.state), pick(turn, after_turn, play.state))
        new = new._replace(step=new.step & ~spends_turn)
        history = push(new.history, snapshot(new), turn)
        if not self.undo_across_stages:
            history = history._replace(count=jnp.where(finished, 0, history.count))
        new = new._replace(history=history)

        died = new.player.hp == 0
        paid = jnp.where(allowed, reward(state, play, new, finished, won, died), 0.0)
        return Outcome(new, paid, ~allowed | won | died, won, finished & ~won, play.state, attacked & turn)

    def observe(self, state: State) -> View:
        """What the player sees: `player`, `programs`, `grid`."""
        return observation.observe(state)

    def legal(self, state: State) -> Array:
        """Which of the 28 actions are legal: `bool[28]`."""
        return observation.legal(state)

    def from_scenario(self, data: dict[str, Any], key: Key) -> State:
        """The exact game that plain data describes; raises ConfigError with all that is wrong with it."""
        del key  # nothing in a scenario is drawn
        return scenario.load(data, empty_history(self.undo_depth))

    def internals(self, state: State) -> dict[str, Any]:
        """The state as plain Python values, hidden ones included."""
        return values.read(state)

    def text(self, state: State) -> str:
        """The game for a terminal."""
        return screen.text(state)

    def picture(self, state: State) -> np.ndarray:
        """The game as `uint8[height, width, 3]`."""
        return drawing.picture(state)
