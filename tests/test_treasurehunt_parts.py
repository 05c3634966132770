"""The treasure hunt's parts stand in an experiment like any other, and keep their numbers' names."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Constant, task
from training_tools import small, stack_hparams

from rollax.agents.treasurehunt import QuietActing, ShrinkingEpsilon, SyncedTarget, WeightedLoss
from rollax.commands.cli import run_command
from rollax.errors import ConfigError
from rollax.experiment.experiment import from_json, make_experiment, population
from rollax.experiment.tree import leaves, to_json
from rollax.programs.learners import keys_and_hparams
from rollax.rules.schedules import LinearEpsilon
from rollax.types import Observation

HUNT = {"env": "TreasureHunt-v0"}


def test_presets_name_the_parts():
    made: Any = make_experiment("irainbow", **HUNT)
    hp = made.hparams
    assert hp.exploration == ShrinkingEpsilon(epsilon_start=1.0, epsilon_end=0.0, epsilon_decay=0.001)
    assert hp.target == SyncedTarget(target_period=1, target_step=0.001, sync_period=200)
    assert hp.objective == WeightedLoss(loss_weight=1 / 12)
    assert made.choices.acting == QuietActing(act_levels=32)


@pytest.mark.parametrize("name", ["sync_period", "epsilon_decay", "loss_weight", "act_levels"])
def test_other_agents_know_nothing_of_them(name):
    assert name not in {leaf.name for leaf in leaves(make_experiment("irainbow"))}
    with pytest.raises(ConfigError, match=f"{name} is no field"):
        make_experiment("double", **dict[str, Any]({name: 1}))


def test_any_agent_may_have_them():
    """By name, by flags' values, and with what was set before under the same names."""
    made = make_experiment("pqn", exploration="shrinking", epsilon_decay=0.01)
    assert made.hparams.exploration == ShrinkingEpsilon(epsilon_start=1.0, epsilon_end=0.1, epsilon_decay=0.01)
    back = make_experiment("irainbow", **HUNT, exploration="linear", epsilon_steps=100.0)
    assert back.hparams.exploration == LinearEpsilon(epsilon_start=1.0, epsilon_end=0.0, epsilon_steps=100.0)


def test_several_values_make_a_population_and_survive_the_file():
    made = make_experiment("irainbow", **HUNT, epsilon_decay=(0.1, 0.2), sync_period=(3, 4), seeds=2)
    members = population(made)
    assert len(members) == 8
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    _, hparams = keys_and_hparams(made, members)
    np.testing.assert_allclose(hparams.exploration.epsilon_decay, [0.1] * 4 + [0.2] * 4)
    np.testing.assert_array_equal(hparams.target.sync_period, [3, 3, 4, 4] * 2)
    assert hparams.target.sync_period.dtype == jnp.int32
    assert {leaf.dtype.name for leaf in jax.tree.leaves(hparams)} == {"int32", "float32"}


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_single_decision_is_the_same_as_one_of_many(epsilon):
    """Though it asks the network only where it is not random."""
    agent = small("irainbow", acting=QuietActing(act_levels=4)).build(task(Constant()).spec(8, 1))
    hparams = jax.tree.map(lambda x: x[0], stack_hparams(1, "irainbow"))
    learner, _ = agent.init(jax.random.key(0), hparams)
    alone, acting, chosen = Observation(jnp.ones((1, 2))), agent.config.acting, []

    def ask(key, taus):
        return agent.returns(learner.params, alone, key, taus=taus)

    for number in range(20):
        key = jax.random.key(number)
        action, values = acting.choose(ask, alone, epsilon, key, explore=True)
        drawn = jax.random.uniform(key, (2 + 4, 1))
        random = bool(drawn[0, 0] < epsilon)
        expected = agent.returns(learner.params, alone, taus=drawn[2:].T).mean()
        np.testing.assert_allclose(values, jnp.zeros((1, 2)) if random else expected, rtol=1e-5)
        best = jnp.argmax(expected, axis=-1)
        np.testing.assert_array_equal(action, (2 * drawn[1]).astype(int) if random else best)
        chosen.append(random)
    assert {0.0: not any(chosen), 1.0: all(chosen)}.get(epsilon, 0 < sum(chosen) < 20)


@pytest.mark.parametrize(
    ("agent", "env"), [("irainbow", "TreasureHunt-v0"), ("double", "CartPole-v1"), ("pqn", "CartPole-v1")]
)
def test_a_file_from_before_there_were_such_parts_is_read(agent, env):
    """All numbers beside one another, those that did nothing included."""
    made = make_experiment(agent, env=env)
    data = to_json(made)
    idle = {"epsilon_steps": 25_000.0, "epsilon_decay": 0.0}
    if agent != "pqn":
        idle |= {"sync_period": 0, "loss_weight": 1.0}
    parts = [data["hparams"].pop(slot) for slot in ("exploration", "target", "objective") if slot in data["hparams"]]
    numbers = {name: value for part in parts for name, value in part.items() if name != "part"}
    assert from_json(data | {"hparams": data["hparams"] | idle | numbers}) == made


def test_a_flag_of_another_part_names_that_part(capsys):
    assert run_command("train", ["double", "--epsilon-decay", "0.1"]) == 2
    assert capsys.readouterr().err == "rollax: --epsilon-decay goes with --exploration shrinking\n"
