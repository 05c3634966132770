"""One-idea environments that a correct agent solves in seconds, with values that are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from rollax.envs.adapters import to_task
from rollax.envs.protocol import Task
from rollax.types import Observation


@dataclass(frozen=True)
class Probe:
    """An endless line of steps.  `num_actions` actions, an observation of one or two numbers, a reward.

    Subclasses say what a step is worth and when an episode ends.
    """

    num_actions: int = 2
    episode_length: int = 1
    truncates: bool = False  # the episode ends by time limit instead of termination
    default_params: Any = None

    def reset(self, key, params):
        state = {"time": jnp.int32(0), "flag": jax.random.bernoulli(key).astype(jnp.float32), "first": jnp.int32(-1)}
        return self.observe(state), state

    def observe(self, state):
        return jnp.stack([state["flag"], state["time"].astype(jnp.float32)])

    def reward(self, state, action):
        return jnp.float32(1.0)

    def step(self, key, state, action, params):
        reward = self.reward(state, action)
        first = jnp.where(state["time"] == 0, jnp.ravel(action)[0], state["first"]).astype(jnp.int32)
        last = {**state, "time": state["time"] + 1, "first": first}
        done = last["time"] >= self.episode_length
        new_obs, new = self.reset(key, params)
        final = self.observe(last)
        obs, state = jax.tree.map(lambda a, b: jnp.where(done, a, b), (new_obs, new), (final, last))
        never = jnp.zeros((), bool)
        ends = (never, done) if self.truncates else (done, never)
        return obs, state, reward, *ends, {"final_observation": final}


@dataclass(frozen=True)
class Constant(Probe):
    """Reward 1, then the end: every value is 1."""


@dataclass(frozen=True)
class Endless(Probe):
    """Reward 1 for ever, always looking the same, cut by a time limit again and again: worth 1 / (1 - discount)."""

    truncates: bool = True

    def observe(self, state):
        return jnp.array([1.0, 0.0])


@dataclass(frozen=True)
class FromObservation(Probe):
    """The reward is what the observation shows: +1 or -1."""

    def reward(self, state, action):
        return 2 * state["flag"] - 1


@dataclass(frozen=True)
class Delayed(Probe):
    """The reward comes with the last of several steps: the first is worth discount ** (length - 1)."""

    episode_length: int = 2

    def reward(self, state, action):
        return (state["time"] == self.episode_length - 1).astype(jnp.float32)


@dataclass(frozen=True)
class Choice(Probe):
    """Action 1 is right where the flag is up, action 0 where it is down."""

    def reward(self, state, action):
        return jnp.where(action == state["flag"].astype(jnp.int32), 1.0, -1.0)


@dataclass(frozen=True)
class Lottery(Probe):
    """The reward is 0 or 4 with equal chances, and nothing shows which."""

    def observe(self, state):
        return jnp.array([1.0, 0.0])

    def reward(self, state, action):
        return 4 * state["flag"]


@dataclass(frozen=True)
class Chain(Probe):
    """The first action decides what is paid with the last step."""

    episode_length: int = 4

    def observe(self, state):
        return jnp.stack([(state["first"] == 1).astype(jnp.float32), state["time"].astype(jnp.float32)])

    def reward(self, state, action):
        first = jnp.where(state["time"] == 0, action, state["first"])
        return jnp.where((state["time"] == self.episode_length - 1) & (first == 1), 1.0, 0.0)


@dataclass(frozen=True)
class Masked(Probe):
    """Action 2 pays 10 and is never legal; action 1 pays 1; the mask travels with the observation.

    Where the flag is down, action 1 is illegal as well.
    """

    num_actions: int = 3
    episode_length: int = 3

    def observe(self, state):
        legal = jnp.stack([jnp.ones((), bool), state["flag"] > 0, jnp.zeros((), bool)])
        return Observation(jnp.stack([state["flag"], state["time"].astype(jnp.float32)]), legal)

    def reward(self, state, action):
        illegal = (action == 2) | ((action == 1) & (state["flag"] == 0))
        return jnp.where(illegal, 10.0, action.astype(jnp.float32))


@dataclass(frozen=True)
class Counter(Probe):
    """Shows the number of the episode and of the step within it, so that every transition can be recognised."""

    episode_length: int = 5

    def reset(self, key, params):
        _, state = super().reset(key, params)
        state = {**state, "episode": jax.random.randint(key, (), 0, 2**20)}
        return self.observe(state), state

    def observe(self, state):
        episode = state.get("episode", jnp.int32(0))
        return jnp.stack([episode.astype(jnp.float32), state["time"].astype(jnp.float32)])

    def reward(self, state, action):
        return state["time"].astype(jnp.float32)


@dataclass(frozen=True)
class Breaks(Probe):
    """Turns to NaN for some members after a while: `what` is "reward" or "observation"."""

    what: str = "reward"
    after: int = 20
    episode_length: int = 1_000_000

    def observe(self, state):
        shown = jnp.stack([state["flag"], state["time"].astype(jnp.float32)])
        broken = (state["time"] >= self.after) & (state["flag"] > 0)
        return jnp.where(broken & (self.what == "observation"), jnp.nan, shown)

    def reward(self, state, action):
        broken = (state["time"] >= self.after) & (state["flag"] > 0)
        return jnp.where(broken & (self.what == "reward"), jnp.nan, 1.0)


@dataclass(frozen=True)
class Stuck(Masked):
    """Has no legal action left in the last step of an episode."""

    def observe(self, state):
        obs = super().observe(state)
        return obs._replace(legal=obs.legal & (state["time"] < self.episode_length - 1))


@dataclass(frozen=True)
class NoChoice(Masked):
    """One action alone is ever legal."""

    def observe(self, state):
        return super().observe(state)._replace(legal=jnp.array([True, False, False]))


def no_choice() -> NoChoice:
    return NoChoice()


def stuck() -> Stuck:
    return Stuck()


@dataclass(frozen=True)
class Fair(Probe):
    """One of several probes in each episode; a row of flags shows which.  One training tells of them all."""

    booths: tuple[Probe, ...] = ()
    num_actions: int = 3

    def reset(self, key, params):
        booth_key, flag_key = jax.random.split(key)
        _, state = Probe.reset(self.booths[0], flag_key, params)
        state = {**state, "booth": jax.random.randint(booth_key, (), 0, len(self.booths))}
        return self.observe(state), state

    def at_booth(self, state, values):
        return jax.tree.map(lambda *rows: jnp.stack([jnp.asarray(row) for row in rows])[state["booth"]], *values)

    def observe(self, state):
        shown = [
            Observation(*o) if isinstance(o := p.observe(state), Observation) else Observation(o, None)
            for p in self.booths
        ]
        everything = jnp.ones(self.num_actions, bool)
        shown = [Observation(o.features, everything if o.legal is None else o.legal) for o in shown]
        features, legal = self.at_booth(state, shown)
        return Observation(jnp.concatenate([jax.nn.one_hot(state["booth"], len(self.booths)), features]), legal)

    def step(self, key, state, action, params):
        reward = self.at_booth(state, [jnp.float32(p.reward(state, action)) for p in self.booths])
        first = jnp.where(state["time"] == 0, action, state["first"]).astype(jnp.int32)
        last = {**state, "time": state["time"] + 1, "first": first}
        done = last["time"] >= self.at_booth(state, [p.episode_length for p in self.booths])
        late = self.at_booth(state, [p.truncates for p in self.booths])
        new_obs, new = self.reset(key, params)
        final = self.observe(last)
        obs, state = jax.tree.map(lambda a, b: jnp.where(done, a, b), (new_obs, new), (final, last))
        return obs, state, reward, done & ~late, done & late, {"final_observation": final}


# The probes that one training tells of, by name.
BOOTHS = {
    "constant": Constant(),
    "from_observation": FromObservation(),
    "delayed": Delayed(),
    "choice": Choice(),
    "endless": Endless(),
    "endless_by_three": Endless(episode_length=3),
    "chain": Chain(),
    "masked": Masked(),
    "lottery": Lottery(),
}


def task(probe: Any, interval: int | None = None) -> Task:
    """The probe as a task; `interval` promises how far apart its truncations are."""
    made = to_task(probe, None, type(probe).__name__)
    if interval is None:
        return made
    return replace(made, truncation_interval=interval)


def nan_rewards() -> Breaks:
    return Breaks(what="reward")


def nan_observations() -> Breaks:
    return Breaks(what="observation")


def nan_scores() -> Breaks:
    """Only who plays a long episode meets a NaN."""
    return Breaks(what="reward", after=100)


@dataclass(frozen=True)
class NanAtOnce(Probe):
    """Shows NaN from the first reset on."""

    def observe(self, state):
        return jnp.full(2, jnp.nan)


def constant() -> Constant:
    return Constant()


def nan_at_once() -> NanAtOnce:
    return NanAtOnce()


@dataclass(frozen=True)
class Bounds:
    """A box of actions, as other libraries describe it."""

    low: Any
    high: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Numbers(Probe):
    """A probe whose actions are numbers, each within bounds of its own."""

    low: tuple[float, ...] = (-1.0,)
    high: tuple[float, ...] = (3.0,)

    def action_space(self, params):
        return Bounds(jnp.array(self.low), jnp.array(self.high), (len(self.low),))


@dataclass(frozen=True)
class EndlessNumbers(Numbers, Endless):
    """Reward 1 for ever whatever the numbers are: worth 1 / (1 - discount), though time runs out again and again."""

    truncates: bool = True


@dataclass(frozen=True)
class DelayedNumbers(Numbers, Delayed):
    """The reward comes with the last step, whatever the numbers are."""


@dataclass(frozen=True)
class Aim(Numbers):
    """The best action is the goal that is shown, and every other costs the square of its distance."""

    low: tuple[float, ...] = (-1.0, 0.0)
    high: tuple[float, ...] = (3.0, 10.0)

    def reset(self, key, params):
        _, state = super().reset(key, params)
        share = jax.random.uniform(key, (len(self.low),), minval=0.1, maxval=0.9)
        state = {**state, "goal": share}
        return self.observe(state), state

    def observe(self, state):
        return state.get("goal", jnp.zeros(len(self.low)))

    def reward(self, state, action):
        low, high = jnp.array(self.low), jnp.array(self.high)
        return -jnp.sum((2 * ((action - low) / (high - low) - state["goal"])) ** 2)


@dataclass(frozen=True)
class Settings:
    """A choice of a mode, and a number: a tree of spaces."""

    spaces: Any


@dataclass(frozen=True)
class ModeAndNumber(Aim):
    """One of three modes, of which the middle one is right, and one number, which is to be the goal."""

    low: tuple[float, ...] = (-1.0,)
    high: tuple[float, ...] = (3.0,)

    def action_space(self, params):
        return Settings({"mode": Mode(3), "number": super().action_space(params)})

    def step(self, key, state, action, params):
        obs, state_after, reward, *rest = super().step(key, state, action["number"], params)
        return obs, state_after, reward - jnp.where(action["mode"] == 1, 0.0, 1.0), *rest


@dataclass(frozen=True)
class Mode:
    """Choices, as other libraries describe them."""

    n: int
