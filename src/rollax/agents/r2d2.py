"""R2D2: the DQN family with a memory, learnt from replayed sequences (Kapturowski et al. 2019).

The update rule is the family's.  A sequence is read from where its agent stood then: with the carry that it had, and
some steps more that bring it up to date with today's weights.  Any head, backup and streams go with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import jax
import jax.numpy as jnp

from rollax.agents.base import Recipe
from rollax.agents.dqn import DQN, DQNConfig, DQNHParams, DQNLearner, Looks
from rollax.memory.replay import Replay
from rollax.memory.sequences import Sequence, SequenceBatch, SequenceBuffer, SequenceReplay, flat
from rollax.networks.heads import RescaledHead, Streams
from rollax.networks.recurrence import GRU, Recurrence
from rollax.rules.returns import BellmanError
from rollax.types import Array, EnvSpec, Key, Params


@dataclass(frozen=True)
class R2D2Config(DQNConfig):
    """Choices that shape the compiled program.  All are static."""

    recurrence: Recurrence = GRU()
    replay: Replay = SequenceReplay()

    def build(self, spec: EnvSpec) -> R2D2:
        return R2D2(self, spec)

    def problems(self, spec: EnvSpec) -> list[str]:
        if not self.recurrence.remembers:
            return [
                "agent=r2d2 with recurrence=none remembers nothing; set --recurrence gru, or take `rollax train double`"
            ]
        return super().problems(spec)

    @property
    def reads_sequences(self) -> bool:
        return True

    def other_replay(self) -> str:
        return "agent=r2d2 learns from sequences; set --replay sequences, or choose another agent of the family"

    def rows_of_an_update(self, spec: EnvSpec) -> int:
        return self.batch_size * cast(SequenceReplay, self.replay).read


@dataclass(frozen=True)
class R2D2(DQN):
    """The agent in one environment."""

    config: R2D2Config

    @property
    def recurrence(self) -> Recurrence:
        return self.config.recurrence

    @cached_property
    def buffer(self) -> SequenceBuffer:
        return cast(SequenceReplay, self.config.replay).build(self.spec, self.initial_carry)

    def looks(self, params: Params, learner: DQNLearner, batch: SequenceBatch) -> Looks:
        target = learner.target_params
        now, then = self.seen(params, batch.sequence), self.seen(target, batch.sequence)
        judge, judging = (learner.params, jax.lax.stop_gradient(now)) if self.config.double else (target, then)
        return Looks(
            predicted=lambda noise: self.judged(params, now[batch.now], noise),
            judged=lambda noise, levels: self.judged(judge, judging[batch.after], noise, levels),
            successor=lambda noise: self.judged(target, then[batch.after], noise),
            before=lambda noise: self.judged(target, then[batch.now], noise),
        )

    def seen(self, params: Params, sequence: Sequence) -> Array:
        """What a network has seen by each row that it learns from or looks ahead to, and then by the ends of time.

        A successor after which time ran out has no row in the next step's place: it is one step more of its own.
        """
        carry = sequence.carry
        if len(sequence.burn_in_fresh):
            carry, _, _ = self.remembered(params, carry, sequence.burn_in, sequence.burn_in_fresh)
            carry = jax.lax.stop_gradient(carry)
        _, seen, carries = self.remembered(params, carry, sequence.features, sequence.fresh)
        columns = jnp.arange(sequence.cut.shape[1])
        at_cuts = jax.tree.map(lambda x: flat(x[sequence.cut, columns]), carries)
        features = jax.tree.map(lambda x: flat(x)[None], sequence.cut_features)
        _, ahead, _ = self.remembered(params, at_cuts, features, jnp.zeros((1, sequence.cut.size), bool))
        return jnp.concatenate([flat(seen), ahead[0]])

    def bellman_error(self, params: Params, learner: DQNLearner, batch: SequenceBatch, key: Key) -> BellmanError:
        """A loss for each sequence, the mean of its steps, and a priority: the largest error mixed with the mean."""
        error = super().bellman_error(params, learner, batch, key)
        sequences = batch.sequence.cut.shape[1]
        counts = batch.counts.reshape(-1, sequences)
        loss, size = (jnp.where(counts, x.reshape(counts.shape), 0.0) for x in error)
        steps = jnp.maximum(jnp.sum(counts, axis=0), 1)
        mix = cast(SequenceReplay, self.config.replay).priority_mix
        priority = mix * jnp.max(size, axis=0) + (1 - mix) * jnp.sum(size, axis=0) / steps
        return BellmanError(jnp.sum(loss, axis=0) / steps, priority)


R2D2_RECIPE = Recipe(
    R2D2Config(
        head=RescaledHead(),
        streams=Streams(dueling=True),
        double=True,
        replay=SequenceReplay(capacity=51_200, n_step=3),
        batch_size=32,
        gradient_steps=4,
    ),
    DQNHParams(),
    {"num_envs": 16, "rollout_length": 20, "warm_up_steps": 5_120},
)
