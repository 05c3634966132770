"""A population whose members can be dropped, copied and given other numbers, between chunks of one compiled program.

Members are trained in blocks of equal size.  One set of programs serves every block, so that whatever is done to the
population, nothing is compiled again; who is dropped takes no more time once a whole block is free.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment, Member
from rollax.programs.budget import check_memory
from rollax.programs.learners import keys_and_hparams
from rollax.programs.loop import TrainState
from rollax.programs.plan import Plan, make_plan
from rollax.programs.program import population_axes
from rollax.runs import checkpoint
from rollax.tracing import fetch

CHUNK_SECONDS = 1.0


class Score(NamedTuple):
    """How members did in an evaluation: arrays `[members]`."""

    mean: np.ndarray
    failed: np.ndarray  # met a number that is not finite


class Arena:
    """Members with seeds and hyper-parameters of their own, at the same step."""

    def __init__(self, experiment: Experiment, members: Sequence[Member], block: int):
        """Compiles for about `block` members; the last block is filled up with copies that nobody looks at."""
        devices = jax.device_count() if block > 1 else 1
        self.experiment, self.block = experiment, -(-block // devices) * devices  # the same number for each device
        self.plan = searchable_plan(experiment, self.in_blocks(members)[0])
        check_memory(self.plan)
        self.running = self.plan.program.compile(self.plan.keys, self.plan.hparams)
        self.chunk = self.plan.program.block * self.plan.program.first_chunk  # iterations between looks at signals
        self.begin(members)

    def begin(self, members: Sequence[Member]) -> None:
        """From the start, with these members."""
        self.members, self.iteration = list(members), 0
        blocks = self.in_blocks(members)
        self.blocks = [self.running.begin(*keys_and_hparams(self.experiment, block)) for block in blocks]

    def in_blocks(self, members: Sequence[Any]) -> list[list[Any]]:
        """The members of each block; the last is filled up with its last member."""
        filled = [*members, *[members[-1]] * (-len(members) % self.block)]
        return [filled[start : start + self.block] for start in range(0, len(filled), self.block)]

    @property
    def done(self) -> bool:
        return self.iteration >= self.plan.schedule.total

    def advance(self) -> None:
        """All members, to the next evaluation, in chunks of about a second: between two of them signals are heard."""
        total, every = self.plan.schedule.total, self.plan.schedule.evaluation
        stop = min((self.iteration // every + 1) * every, total)
        for number in range(len(self.blocks)):
            reached = self.iteration
            while reached < stop:
                state, best = self.blocks[number]
                began, reached = time.monotonic(), min(reached + self.chunk, stop)
                self.blocks[number] = (self.running.advance_to(state, reached).state, best)
                if time.monotonic() - began < CHUNK_SECONDS:
                    self.chunk *= 2
        self.iteration = stop

    def saved(self) -> dict[str, Any]:
        """All that the members have learnt, as a tree."""
        return {str(number): {"train": state, "best": best} for number, (state, best) in enumerate(self.blocks)}

    def restore(self, path: Path, iteration: int) -> None:
        """Goes on with these members from a checkpoint of `saved`, taken after so many iterations."""
        state, best = self.plan.shapes()
        like = {str(number): {"train": state, "best": best} for number in range(len(self.blocks))}
        with self.plan.program.restoring():
            found = checkpoint.restore(path, like)
        self.blocks = [self.plan.program.placed(found[name]["train"], found[name]["best"]) for name in like]
        self.iteration = iteration

    def evaluate(self) -> Score:
        """Greedy episodes of every member."""
        means, failed = [], []
        for number, (state, best) in enumerate(self.blocks):
            result, best = self.running.evaluate(state, best)
            self.blocks[number] = (state, best)
            means.append(fetch(result.returns).mean(axis=1))
            failed.append(fetch(state.health.cause) > 0)
        count = len(self.members)
        return Score(np.concatenate(means)[:count], np.concatenate(failed)[:count])

    def keep(self, members: Sequence[int]) -> None:
        """Goes on with these members only, in this order."""
        self.blocks = [self.gathered(block) for block in self.in_blocks(list(members))]
        self.members = [self.members[member] for member in members]

    def gathered(self, members: Sequence[int]) -> tuple[TrainState, Any]:
        """These members as one block."""
        places = [divmod(member, self.block) for member in members]

        def pick(axis: int | None, *leaves: Any) -> Any:
            if axis is None:
                return jax.tree.map(jnp.copy, leaves[0])
            return jax.tree.map(lambda *each: jnp.stack([each[block][row] for block, row in places]), *leaves)

        state, best = self.plan.shapes()
        axes = (population_axes(state), jax.tree.map(lambda _: 0, best))
        picked = jax.tree.map(pick, axes, *self.blocks, is_leaf=lambda leaf: leaf is None)
        return self.plan.program.placed(*picked)

    def adopt(self, sources: Sequence[int], hparams: Sequence[dict[str, Any]]) -> None:
        """Each member goes on with what another has learnt, and with other numbers; its seed and memory stay.

        Needs one block.
        """
        ((state, best),) = self.blocks
        self.members = [replaced(member, numbers) for member, numbers in zip(self.members, hparams, strict=True)]
        (members,), (filled,) = self.in_blocks(self.members), self.in_blocks(list(sources))
        _, numbers = keys_and_hparams(self.experiment, members)
        learner = copied(state.learner, jnp.asarray(filled), numbers)
        self.blocks = [self.plan.program.placed(state._replace(learner=learner), best)]


def searchable_plan(experiment: Experiment, members: list[Member] | None = None) -> Plan:
    """The plan of an experiment, with these members if not its own.  Raises ConfigError where it cannot be searched."""
    plan = make_plan(experiment, members=members, searched=True)
    if not plan.program.searchable:
        raise ConfigError(
            f"{experiment.env} with these settings is not one compiled program, which a search of populations needs; "
            "search environments in JAX, without actors"
        )
    return plan


def replaced(member: Member, numbers: dict[str, Any]) -> Member:
    return member._replace(hparams=member.hparams | numbers)


@jax.jit
def copied(learner: Any, sources: Any, hparams: Any) -> Any:
    """For each member the learner of its source, with other numbers."""
    taken = jax.tree.map(lambda leaf: leaf[sources], learner)

    def number(new: Any, old: Any) -> Any:  # where players learn apart, each has the member's
        return jnp.broadcast_to(new.reshape(new.shape[:1] + (1,) * (old.ndim - new.ndim) + new.shape[1:]), old.shape)

    return taken._replace(hparams=jax.tree.map(number, hparams, taken.hparams))


def with_rungs(experiment: Experiment, rungs: int) -> Experiment:
    """The experiment with so many evaluations, evenly apart."""
    unit = experiment.steps_per_iteration
    steps = -(-experiment.steps // rungs // unit) * unit
    return replace(experiment, steps=steps * rungs, record=replace(experiment.record, eval_steps=steps))
