"""Environments outside JAX: emulators and Gymnasium's, stepped in a batch by a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.actions import for_environment
from rollax.envs.protocol import EnvConfig, Envs
from rollax.errors import EnvError, RollaxError, fails, warn
from rollax.settings import POSITIVE, setting
from rollax.types import Array, Carry, EnvSpec, Key, Observation, Space, count_of

CLOSING_SECONDS = 5.0
OPENING_SECONDS = 1.0  # more, for each environment, to make it: an emulator of ALE takes a tenth


class HostStep(NamedTuple):
    """What a batch of environments did: arrays `[N]`, observations trees of `[N, ...]`."""

    shown: Any  # where each stands now: in the next episode, where one ended
    reward: np.ndarray  # as the environment gives it
    terminated: np.ndarray  # as a learner should see it
    truncated: np.ndarray
    ended: np.ndarray  # whether an episode is over; a learner may be told earlier that nothing follows
    last: Any = None  # the true last observations of episodes that ended; anything elsewhere, None if none did
    lost: np.ndarray | None = None  # which of them broke: it shows a new episode, and nothing is known of the step


class HostEnvs(Protocol):
    """A batch of environments: NumPy in, NumPy out.  Each begins its next episode by itself.

    What it returns is the caller's: no later step may change it.
    """

    def reset(self, seeds: np.ndarray) -> Any:
        """Starts all with these seeds `int32[N]`; returns what they show."""
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """One step of each with actions `[N, ...]`, as an agent speaks of them."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class HostConfig(EnvConfig):
    """What can be chosen of every environment outside JAX."""

    env_seconds: float = setting(
        60.0,
        "Seconds that a step of the environments may take before the run is ended.",
        limit=POSITIVE,
        rare=True,
        resumable=True,
    )


@dataclass(frozen=True)
class HostTask:
    """Environments of one kind outside JAX, brought to the library's own data types."""

    name: str
    open: Callable[[int], HostEnvs]  # makes so many of them
    observation: Observation  # of jax.ShapeDtypeStruct
    action: Space  # what may be done, as the agent speaks of it
    truncation_interval: int = 1
    stack: int = 1  # what is shown is a frame; an observation is so many of them
    one_hot: int = 0  # what is shown is a number below this
    clip_rewards: bool = False  # a learner is told rewards cut to between -1 and 1
    seconds: float = 60.0  # in which a step must be done
    patience: float = 0.0  # more of them, for a batch that keeps to `seconds` itself, and starts anew what does not
    protocol: tuple[tuple[str, Any], ...] = ()  # what a score of it depends on, by name
    camera: Callable[[], HostEnvs] | None = None  # makes one that plays the same and shows a picture in colours
    pictures_per_second: int = 30  # at which a film of it runs as it should
    action_names: tuple[str, ...] = ()  # of numbered actions, where it names them
    # It has one player and no arithmetic of its own on the device.
    outside: ClassVar[bool] = True
    players: ClassVar[int] = 0
    in_turn: ClassVar[bool] = False
    costly: ClassVar[bool] = False

    @property
    def num_actions(self) -> int:
        return count_of(self.action)

    def for_environment(self, action: Any) -> Any:
        """Actions `[...]` of an agent as the environment takes them, scaled to its bounds."""
        return for_environment(self.action, action)

    def spec(self, num_envs: int, rollout_length: int) -> EnvSpec:
        return EnvSpec(
            self.observation,
            self.action,
            num_envs,
            rollout_length,
            self.truncation_interval,
            self.stack,
            restarts=True,
        )

    def begin(self, key: Key, num_envs: int, carry: Carry = ()) -> Envs:
        """A batch before anything has been seen: the environments begin when the run does."""
        obs = jax.tree.map(lambda x: jnp.zeros((num_envs, *x.shape), x.dtype), self.observation)
        return Envs((), obs, carry, jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32))

    def observe(self, before: Observation, shown: Any, ended: Array) -> Observation:
        """What an agent sees: `shown`, after what it saw before, of which nothing is left where an episode ended."""
        if self.stack == 1:
            return self.see(jax.tree.map(jnp.asarray, shown))
        older = jnp.where(ended[..., None, None, None], 0, before.features[..., 1:])
        return Observation(jnp.concatenate([older, shown[..., None]], axis=-1))

    def see(self, raw: Any) -> Observation:
        """An observation as an agent sees it: numbers as flags.  Of frames it must be the whole stack."""
        if isinstance(raw, Observation):
            return raw
        if self.one_hot:
            return Observation(jax.nn.one_hot(raw, self.one_hot))
        return Observation(raw)

    def lesson_reward(self, reward: np.ndarray) -> np.ndarray:
        """The rewards that a learner is told."""
        return np.clip(reward, -1.0, 1.0) if self.clip_rewards else reward

    def stepper(self, num_envs: int) -> Stepper:
        seconds = self.seconds + self.patience
        return Stepper(self.name, lambda: self.open(num_envs), seconds, seconds + num_envs * OPENING_SECONDS)

    def camera_stepper(self) -> Stepper:
        """One environment like the others that shows a picture in colours; there must be a camera."""
        assert self.camera is not None
        return Stepper(self.name, self.camera, self.seconds, self.seconds + OPENING_SECONDS)


class Stepper:
    """Steps a batch of environments in a thread, so that others can work meanwhile.

    An environment that raises, or does not answer within `seconds`, is an EnvError in the thread that asks.
    """

    def __init__(self, name: str, open_envs: Callable[[], HostEnvs], seconds: float, opening_seconds: float):
        self.name, self.seconds, self.opening_seconds = name, seconds, opening_seconds
        self.asked: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.made, self.hangs = False, False
        # A thread that hangs must not keep the process from ending.
        self.thread = threading.Thread(target=self._work, args=(open_envs,), daemon=True, name=f"stepper of {name}")
        self.thread.start()

    def reset(self, seeds: np.ndarray) -> Any:
        """Starts all environments anew, the first time after making them; returns what they show."""
        if not self.made:
            self.asked.put(("make", None))
            self.answer("make", self.opening_seconds)
            self.made = True
        self.asked.put(("reset", seeds))
        return self.answer("reset", self.opening_seconds)

    def submit(self, action: np.ndarray) -> None:
        """Begins a step; `result` waits for its end."""
        self.asked.put(("step", action))

    def result(self) -> HostStep:
        """What the step that was begun last has come to."""
        return self.answer("step", self.seconds)

    def answer(self, call: str, seconds: float) -> Any:
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            self.hangs = True
            raise late(self.name, call, seconds) from None
        return given(self.name, call, answer)

    def close(self) -> None:
        """Ends the environments; one that hangs is left alone, and one that fails at it has done its work."""
        self.asked.put(None)
        if self.hangs:
            return
        self.thread.join(timeout=2 * CLOSING_SECONDS)
        if self.thread.is_alive():
            warn(f"{late(self.name, 'close', 2 * CLOSING_SECONDS)}; it is left running")

    def _work(self, open_envs: Callable[[], HostEnvs]) -> None:
        envs = None
        while (asked := self.asked.get()) is not None:
            call, argument = asked
            try:
                if call == "make":
                    envs = open_envs()
                    self.answers.put(None)
                else:
                    self.answers.put(getattr(envs, call)(argument))
            except BaseException as error:  # whatever it is, it must reach who asked
                self.answers.put(error)
        if envs is not None:
            try:
                envs.close()
            except BaseException as error:
                warn(f"{self.name}: close {fails(error)}; it is left alone")


def timed(name: str, call: str, seconds: float, function: Callable[[], Any]) -> Any:
    """What a function of an environment returns.  Raises EnvError for what it raises, or if it takes longer."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(function())
        except BaseException as error:
            answers.put(error)

    threading.Thread(target=work, daemon=True, name=f"{call} of {name}").start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise late(name, call, seconds) from None
    return given(name, call, answer)


def given(name: str, call: str, answer: Any) -> Any:
    """An answer of an environment's.  Raises EnvError with its name for what it has raised."""
    if isinstance(answer, EnvError) and name not in str(answer):
        raise EnvError(f"{name}: {answer}") from answer
    if isinstance(answer, RollaxError):
        raise answer
    if isinstance(answer, BaseException):
        raise EnvError(f"{name}: {call} {fails(answer)}") from answer
    return answer


def late(name: str, call: str, seconds: float) -> EnvError:
    return EnvError(f"{name} has not answered for {seconds:g} s in {call}; if it is only slow, raise --env-seconds")
