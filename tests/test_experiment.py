"""Experiments: their leaves, files, populations, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollax.agents.dqn import FAMILY
from rollax.agents.names import AGENTS
from rollax.errors import ConfigError, ResourceError
from rollax.experiment.experiment import Experiment, from_json, make_experiment, population, range_problems, resolve
from rollax.experiment.parts import part_name
from rollax.experiment.presets import PRESETS
from rollax.experiment.tree import differences, leaves, parts_of, to_json
from rollax.networks.heads import CategoricalHead, ImplicitQuantileHead, QuantileHead
from rollax.networks.torsos import MLP
from rollax.programs.budget import check_memory
from rollax.programs.plan import make_plan


def choices(*agent: str, **values: Any) -> Any:
    """The parts and choices of an experiment."""
    return make_experiment(*agent, **values).choices


def test_leaves_have_unique_names_and_every_one_is_explained():
    names = [leaf.name for leaf in leaves(Experiment())]
    assert len(names) == len(set(names))
    assert [leaf.name for leaf in leaves(Experiment()) if not leaf.help] == []


def test_every_number_has_a_limit():
    free = [leaf.name for leaf in leaves(Experiment()) if leaf.annotation in (int, float) and leaf.limit is None]
    assert free == []


def test_an_experiment_survives_its_file():
    made = resolve(make_experiment("double", seeds=3, learning_rate=(1e-4, 3e-4), hidden=(32, 16), loss="squared"))
    assert from_json(json.loads(json.dumps(to_json(made)))) == made


def test_presets_apply_by_themselves_and_flags_override_them():
    def n_step(**values):
        made: Any = make_experiment("double", **values)
        return made.choices.replay.n_step

    assert n_step() == PRESETS["double/CartPole-v1"].values["n_step"]
    assert n_step(n_step=5) == 5
    assert n_step(preset="none") == 1
    assert n_step(env="Catch-bsuite") == 1
    assert n_step(env="Catch-bsuite", preset="double/CartPole-v1") == 3


def test_an_environment_asks_what_fits_the_agent():
    """C51's support covers the returns of the task, whichever way its head came; other agents never hear of it."""
    for made in (
        choices("c51", env="Acrobot-v1"),
        choices("double", env="Acrobot-v1", head="categorical"),
    ):
        assert (made.head.value_min, made.head.value_max) == (-100.0, 0.0)
    assert choices("double", head="categorical").head.value_max == 100.0
    assert choices("c51", env="Acrobot-v1", value_min=-50.0).head.value_min == -50.0
    assert choices("c51", env="Acrobot-v1", preset="none").head.value_min == -10.0
    assert part_name("torso", choices("rainbow", env="Breakout-MinAtar").torso) == "minatar"
    assert part_name("torso", choices("rainbow", env="Breakout-MinAtar", torso="mlp").torso) == "mlp"


def test_a_part_may_be_given_itself():
    made: Any = make_experiment("double", head=CategoricalHead(21, -3.0, 3.0))
    assert made.choices.head == CategoricalHead(21, -3.0, 3.0)
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    with pytest.raises(ConfigError, match="pqn has no head"):
        make_experiment("pqn", head="categorical")
    with pytest.raises(ConfigError, match="is no head; known are categorical"):
        make_experiment("double", head=MLP())


def test_quantile_presets_learn_quantiles():
    """With a large kappa their loss would be squared, which finds expectiles."""
    heads = {agent: recipe.choices.head for agent, recipe in AGENTS.items() if hasattr(recipe.choices, "head")}
    quantile = {agent for agent, head in heads.items() if isinstance(head, QuantileHead | ImplicitQuantileHead)}
    assert quantile == {"qr", "iqn", "irainbow"}
    for name in PRESETS:
        agent, env = agent_and_env(name)
        if agent in quantile:
            assert make_experiment(agent, env=env, preset=name).hparams.huber_kappa <= 1.0, name


def agent_and_env(preset):
    """An agent and an environment that a preset is for."""
    agent, env = [*preset.split("/"), "Acrobot-v1"][:2]
    return agent, "ALE/Pong-v5" if env == "ALE" else env


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_plan(name):
    agent, env = agent_and_env(name)
    plan = make_plan(make_experiment(agent, env=env, preset=name))
    assert plan.schedule.total > plan.schedule.warm_up >= 0


# Where members of the family differ by their idea.
NOISE = {"noise", "epsilon_start", "epsilon_end", "epsilon_steps"}
IDEAS = {
    "dqn": set(),
    "double": {"double"},
    "dueling": {"dueling"},
    "n_step": {"n_step"},
    "prioritized": {"replay"},
    "noisy": NOISE,
    "c51": {"head"},
    "qr": {"head"},
    "iqn": {"head"},
    "munchausen": {"backup"},
    "rainbow": {
        "head",
        "dueling",
        "noise",
        "double",
        "replay",
        "n_step",
        "epsilon_start",
        "epsilon_end",
        "epsilon_steps",
    },
    "apex": {"dueling", "double", "replay", "n_step"},
    "irainbow": NOISE | {"head", "dueling", "double", "n_step"},
}


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Breakout-MinAtar"])
def test_under_the_controlled_preset_only_the_idea_differs(env):
    def settings(agent):
        experiment = make_experiment(agent, env=env, preset="controlled")
        own = {leaf.name: leaf.value for leaf in leaves(experiment) if leaf.name != "agent"}
        return own | parts_of(experiment)

    plain = settings("dqn")
    assert set(IDEAS) == set(FAMILY)
    for agent, idea in IDEAS.items():
        own = settings(agent)
        # Fields that only one of the two has are those of the part that is its idea.
        assert {name for name in plain.keys() & own.keys() if plain[name] != own[name]} == idea, agent
    assert make_plan(make_experiment("rainbow", env=env, preset="controlled"))


def test_the_controlled_preset_names_who_it_is_for():
    with pytest.raises(ConfigError, match="preset='controlled' is for agents of the DQN family, not 'ppo': dqn"):
        make_experiment("ppo", preset="controlled")


def test_an_agents_own_preset_serves_where_its_environment_has_none():
    there = make_experiment("ppo", env="Acrobot-v1")
    assert there == make_experiment("ppo", env="Acrobot-v1", preset="ppo")
    assert (there.loop.num_envs, there.loop.rollout_length, there.steps) == (256, 128, 10_000_000)
    assert there.hparams.entropy_weight == 0.1
    assert make_experiment("ppo", env="CartPole-v1").loop.num_envs != 256
    flat: Any = make_experiment("ppo", env="HackMatrix-v0", preset="ppo")
    assert isinstance(flat.choices.torso, MLP)
    assert flat.choices.torso.hidden == (256, 256)


def test_settings_are_outer_and_seeds_inner():
    members = population(make_experiment("dqn", seeds=2, seed=5, learning_rate=[0.1, 0.2], discount=[0.9, 0.8]))
    listed = [(member.seed, member.hparams["learning_rate"], member.hparams["discount"]) for member in members]
    assert listed == [
        (5, 0.1, 0.9), (6, 0.1, 0.9), (5, 0.1, 0.8), (6, 0.1, 0.8),
        (5, 0.2, 0.9), (6, 0.2, 0.9), (5, 0.2, 0.8), (6, 0.2, 0.8),
    ]  # fmt: skip


def test_one_number_in_a_list_is_that_number():
    assert make_experiment("dqn", learning_rate=[0.1]) == make_experiment("dqn", learning_rate=0.1)


def test_all_problems_come_together():
    with pytest.raises(ConfigError) as caught:
        make_experiment("dqn", lerning_rate=1, seeds=1.5, loss="l2", hidden=3, discount="high", double=1)
    assert len(caught.value.problems) == 6
    assert "did you mean learning_rate" in caught.value.problems[0]


def test_out_of_range_names_the_range():
    wrong = make_experiment("dqn", discount=1.5, seeds=0, learning_rate=(0.1, float("nan")), capacity=2**40)
    found = range_problems(wrong)
    assert "discount=1.5 must be at most 1.0" in found
    assert "seeds=0 must be in [1, 1e+06]" in found
    assert "learning_rate=nan must be at least 0" in found
    assert any(line.startswith("capacity=1099511627776 must be at most") for line in found)
    with pytest.raises(ConfigError, match="did you mean CartPole-v1"):
        make_plan(make_experiment("dqn", env="CartPole-v9", seeds=0))


def test_what_does_not_fit_together_is_refused_with_the_fix():
    with pytest.raises(ConfigError) as caught:
        make_plan(make_experiment("dqn", preset="none", capacity=1_001, warm_up_steps=0))
    assert caught.value.problems == [
        "capacity=1001 is not a multiple of num_envs * rollout_length = 16; try capacity=1008",
        "warm_up_steps=0 fills the replay with less than learning needs; the least is warm_up_steps=32",
    ]


def test_problems_of_every_kind_come_together():
    with pytest.raises(ConfigError) as caught:
        make_plan(make_experiment("dqn", preset="none", discount=2, capacity=1_001, warm_up_steps=0))
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="with so few environments"):
        make_plan(make_experiment("dqn", steps=2**52))


def test_memory_that_will_not_fit_is_refused_with_a_size_that_does():
    with pytest.raises(ResourceError) as caught:
        check_memory(make_plan(make_experiment("dqn", preset="none", seeds=1_000, capacity=2_000_000_000)))
    fits = int(str(caught.value).split("--capacity ")[1].split()[0])
    check_memory(make_plan(make_experiment("dqn", preset="none", seeds=1_000, capacity=fits)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "JSON object"),
        ({"agent": "dqnn"}, "did you mean dqn"),
        ({"agent": "dqn", "loop": {"num_env": 3}}, "loop.num_env is no field; did you mean num_envs"),
        ({"agent": "dqn", "choices": {"torso": {"part": "os.system"}}}, "does not fit here"),
        ({"agent": "dqn", "hparams": 3}, "must be an object"),
        ({"agent": "dqn", "choices": {"part": "MLP"}}, "does not fit here"),
        ({"agent": "dqn", "choices": {"part": []}}, "does not fit here"),
        ({"agent": "dqn", "hparams": {"discount": 10**400}}, "too large"),
        ({"agent": "dqn", "seeds": "ten"}, "must be a number"),
    ],
)
def test_wrong_files_are_explained(data, message):
    with pytest.raises(ConfigError, match=message):
        from_json(data)


def test_a_part_in_a_file_is_the_part_of_the_command_line():
    """It keeps what was changed in the part that it replaces."""
    filed: Any = from_json({"agent": "pqn", "choices": {"torso": {"part": "minatar"}}})
    assert filed.choices.torso == choices("pqn", preset="none", torso="minatar").torso
    assert filed.choices.torso.layer_norm
    replayed: Any = from_json({"agent": "rainbow", "choices": {"replay": {"part": "uniform"}}})
    assert replayed.choices.replay.n_step == 3


def test_parts_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match="head='quantil' is no head; did you mean quantile"):
        make_experiment("c51", head="quantil")
    with pytest.raises(ConfigError, match="is no head"):
        make_experiment("c51", head=["x"])
    with pytest.raises(ConfigError, match=r"value_min=5\.0 must be below value_max=1\.0"):
        make_plan(make_experiment("c51", value_min=5.0, value_max=1.0))
    with pytest.raises(ConfigError, match="wants one picture"):
        make_plan(make_experiment("dqn", torso="nature", preset="none"))


def test_differences_are_named():
    one, two = to_json(make_experiment("dqn")), to_json(make_experiment("dqn", discount=0.5))
    assert differences(one, two) == ["hparams.discount: 0.99 -> 0.5"]
    assert differences(one, one) == []


def test_automatic_grids_are_whole_iterations():
    made = resolve(make_experiment("dqn", preset="none", steps=12_345))
    assert made.record.log_steps % made.steps_per_iteration == 0
    assert made.record.log_steps >= 123
    assert made.iterations(made.steps) * made.steps_per_iteration == 12_352
