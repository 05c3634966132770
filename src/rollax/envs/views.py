"""What an agent is shown beside an environment's own observation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax

from rollax.envs.host import HostTask
from rollax.envs.protocol import Task
from rollax.errors import ConfigError
from rollax.settings import setting


@dataclass(frozen=True)
class ViewConfig:
    """Which of it is shown."""

    observe_last: bool = setting(
        False, "Show the previous action and reward beside each observation.", group="environment", rare=True
    )

    def of(self, task: Task, name: str) -> Task:
        """An environment as it is shown.  Raises ConfigError where that cannot be."""
        if not self.observe_last:
            return task
        if task.players or task.stack > 1:
            raise ConfigError(
                f"observe_last=True is for environments with one player and without stacked frames, "
                f"unlike env={name!r}; leave it out"
            )
        shown = jax.eval_shape(lambda obs: task.with_last(obs, *task.nothing_before()), task.observation)
        return replace(task, observation=shown, shows_last=True)

    def outside(self, task: HostTask, name: str) -> HostTask:
        """The same for one outside JAX."""
        if self.observe_last:
            raise ConfigError(
                f"observe_last=True is for environments in JAX, and env={name!r} runs outside it; leave it out"
            )
        return task
