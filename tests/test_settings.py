"""Settings: what belongs to them, their names, what is refused, and the help that a person sees."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import pytest
from flax import struct

from rollax.agents.base import OptimizerHParams
from rollax.agents.dqn import FAMILY
from rollax.agents.names import AGENTS
from rollax.commands.cli import COMMANDS, run_command, usage
from rollax.commands.flags import flags_of, read_experiment
from rollax.commands.help import GROUPS
from rollax.commands.train import TrainFlags
from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.experiment import parts
from rollax.experiment.experiment import Experiment, from_json, make_experiment, population, with_values
from rollax.experiment.foreign import ELSEWHERE, FOREIGN, told_here
from rollax.experiment.presets import PRESETS
from rollax.experiment.presets.preset import Preset
from rollax.experiment.tree import leaves, parts_of, to_json
from rollax.networks.torsos import MLP
from rollax.programs.learners import keys_and_hparams
from rollax.search.space import read_space
from rollax.settings import COUNT, SHARE, About, abouts, setting

ROOT = Path(__file__).parent.parent
MODULE = """
from flax import linen as nn, struct
from rollax.agents.base import Recipe
from rollax.agents.dqn import DQNHParams, FAMILY
from rollax.networks.torsos import Torso, flatten_features
from rollax.settings import setting

class Stepping(Torso):
    steps: int = 2
    @nn.compact
    def __call__(self, features):
        return nn.Dense(8)(flatten_features(features))

class Echoing(Torso):
    batch_size: int = 4
    quiet: bool = False
    @nn.compact
    def __call__(self, features):
        return nn.Dense(self.batch_size)(flatten_features(features))

class Ranged(Torso):
    value_min: float = 3.0

@struct.dataclass
class Seeded(DQNHParams):
    seed: float = 0.5

RECIPE = FAMILY["dqn"]._replace(hparams=Seeded())
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_named.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("own_named")
    del sys.modules["own_named"]


def refusal(capsys, *arguments):
    """The one line with which a command is refused."""
    assert run_command(arguments[0], list(arguments[1:])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


# -- what belongs to a setting


@dataclass(frozen=True)
class Base:
    rate: float = setting(0.1, "How fast.", limit=SHARE, group="optimizer", rare=True)
    plain: int = 3


@dataclass(frozen=True)
class Faster(Base):
    rate: float = 0.5


@dataclass(frozen=True)
class Explained(Base):
    rate: float = setting(0.7, "How very fast.")


def test_a_subclass_that_overrides_a_default_inherits_the_rest():
    base = About("How fast.", SHARE, "optimizer", rare=True)
    assert abouts(Base) == {"rate": base, "plain": About()}
    assert (Faster().rate, abouts(Faster)["rate"]) == (0.5, base)
    assert (Explained().rate, abouts(Explained)["rate"]) == (0.7, base._replace(help="How very fast."))

    @struct.dataclass
    class Hotter(OptimizerHParams):
        learning_rate: float = 0.25

    assert (Hotter().learning_rate, abouts(Hotter)["learning_rate"]) == (
        0.25,
        abouts(OptimizerHParams)["learning_rate"],
    )

    class Wider(MLP):
        hidden: tuple[int, ...] = (7,)

    assert (Wider().hidden, abouts(Wider)["hidden"]) == ((7,), abouts(MLP)["hidden"])
    assert abouts(MLP)["hidden"].limit == COUNT


def every_leaf():
    """Every setting of the library: of all agents with all parts, in all kinds of environments."""
    for agent in AGENTS:
        start = make_experiment(agent, preset="none")
        yield from leaves(start)
        for slot in parts_of(start):
            for part in parts.PARTS[slot]:
                yield from leaves(make_experiment(agent, preset="none", **{slot: part}))
    for env in (*registry.OWN, "ALE/Pong-v5", "gymnasium:CartPole-v1"):
        yield from leaves(make_experiment("ppo", env=env, preset="none"))


def test_every_help_text_is_one_whole_sentence():
    texts = {leaf.path[-2:]: leaf.help for leaf in every_leaf()}
    texts |= {("part", slot): about.help for slot, about in parts.PART_ABOUT.items()}
    assert len(texts) > 120
    for name, text in texts.items():
        assert re.fullmatch(r"[A-Z][^\n]*[a-z0-9)]\.", text), (name, text)
        assert "..." not in text, (name, text)
        assert ". " not in text, (name, text)
        assert len(text) <= 125, (name, text)


def test_every_setting_has_a_group_and_every_number_a_limit():
    assert parts.PART_ABOUT.keys() == parts.PARTS.keys()
    for leaf in every_leaf():
        assert leaf.about.group in GROUPS, leaf
        assert leaf.limit is not None or leaf.annotation not in (int, float), leaf


def test_roles_are_said_in_the_fields():
    chosen = list(leaves(make_experiment("double")))

    def having(role):
        return {leaf.name for leaf in chosen if getattr(leaf.about, role)}

    kept = {"checkpoint_seconds", "keep_checkpoints", "chunk_seconds", "log_to", "devices", "max_memory"}
    assert having("resumable") == kept | {"steps"}
    assert having("incidental") == kept | {"env", "seed", "seeds", "log_steps", "eval_steps"}
    sizes = {"seeds", "num_envs", "rollout_length", "capacity", "batch_size", "hidden", "eval_episodes"}
    assert having("memory") == sizes
    assert having("protocol") == {"evaluation_epsilon", "max_episode_steps"}
    assert {leaf.name for leaf in chosen if not leaf.about.searchable} == {
        *("agent", "env", "seed", "seeds", "max_memory"),
        *("learning_rate_schedule", "importance_schedule", "epsilon_schedule"),
    }
    assert {leaf.path[0] for leaf in chosen if leaf.traced} == {"hparams"}
    assert all(leaf.traced for leaf in chosen if leaf.path[0] == "hparams")


# -- names


def test_a_setting_is_named_by_an_ending_of_its_path():
    plain = make_experiment("double", hidden=(8,))
    for name in ("torso.hidden", "choices.torso.hidden"):
        value: Any = {name: (8,)}
        assert make_experiment("double", **value) == plain
    assert make_experiment("double", **{"choices.replay": "prioritized"}) == make_experiment(
        "double", replay="prioritized"
    )
    assert {leaf.name for leaf in leaves(plain)} == {leaf.path[-1] for leaf in leaves(plain)}


def test_an_ambiguous_name_is_refused_with_both(own, monkeypatch, capsys):
    start = make_experiment("double", torso="own_named:Echoing")
    assert {"torso.batch_size", "choices.batch_size"} <= {leaf.name for leaf in leaves(start)}
    both = "batch_size is ambiguous; say torso.batch_size or choices.batch_size"
    for make in (
        lambda: make_experiment("double", torso=own.Echoing(), batch_size=8),
        lambda: with_values(start, {"batch_size": 8}),
        lambda: from_json({"agent": "double", "choices": {"torso": {"part": "own_named:Echoing"}}, "batch_size": 8}),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.problems == [both]
    with pytest.raises(ConfigError, match=f"^search: {both}$"):
        read_space(start, ["batch-size=int:4:8"])
    (dimension,) = read_space(start, ["torso.batch_size=int:4:8"]).dimensions
    assert dimension.name == "torso.batch_size"
    odd = Preset({"torso": "own_named:Echoing", "batch_size": 1})
    monkeypatch.setitem(PRESETS, "double/odd", odd)
    with pytest.raises(ConfigError, match=both):
        make_experiment("double", preset="double/odd")
    flags = ("train", "double", "--torso", "own_named:Echoing")
    line = refusal(capsys, *flags, "--batch-size", "8")
    assert line == "rollax: --batch-size is ambiguous; say --torso.batch-size or --choices.batch-size"


def test_what_an_environment_asks_does_not_meet_a_field_of_the_users_own(own):
    made: Any = make_experiment("c51", env="Acrobot-v1", torso=own.Ranged())
    assert (made.choices.head.value_min, made.choices.torso.value_min) == (-100.0, 3.0)


def test_each_of_two_is_set_by_its_qualified_name(own):
    both: Any = {"torso.batch_size": 5, "choices.batch_size": 32}
    made: Any = make_experiment("double", torso=own.Echoing(), **both)
    assert (made.choices.torso.batch_size, made.choices.batch_size) == (5, 32)
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    flags = ["double", "--torso", "own_named:Echoing", "--torso.batch-size", "5", "--choices.batch-size=32"]
    read, options = read_experiment([*flags, "--torso.quiet"], TrainFlags, "train", "")
    assert (read.choices.torso.batch_size, read.choices.batch_size) == (5, 32)
    assert (read.choices.torso.quiet, options.quiet) == (True, False), "a command's option keeps its short name"


def test_a_field_that_is_named_like_the_experiments_own_is_refused(own, tmp_path, capsys):
    wrong = "torso=own_named:Stepping has a field steps, which is the experiment's; rename it, as torso_steps"
    for torso in (own.Stepping(), "own_named:Stepping"):
        with pytest.raises(ConfigError) as caught:
            make_experiment("double", torso=torso, steps=5_000)
        assert caught.value.problems == [wrong]
    assert refusal(capsys, "train", "double", "--torso", "own_named:Stepping", "--steps", "5") == f"rollax: {wrong}"
    data = to_json(make_experiment("double"))
    data["choices"]["torso"] = {"part": "own_named:Stepping"}
    (tmp_path / "config.json").write_text(json.dumps(data))
    assert refusal(capsys, "train", "--config", str(tmp_path / "config.json"), "--trust") == f"rollax: {wrong}"
    with pytest.raises(ConfigError, match="hparams=own_named:Seeded has a field seed, which is the experiment's"):
        make_experiment("own_named:RECIPE")


@pytest.mark.parametrize(
    ("agent", "theirs", "ours"),
    [
        ("double", "gamma", "discount"),
        ("double", "lr", "learning_rate"),
        ("double", "buffer_size", "capacity"),
        ("double", "total_timesteps", "steps"),
        ("double", "n_envs", "num_envs"),
        ("double", "tau", "target_step"),
        ("double", "learning_starts", "warm_up_steps"),
        ("double", "train_freq", "rollout_length"),
        ("double", "target_update_interval", "target_period"),
        ("double", "exploration_fraction", "epsilon_steps"),
        ("ppo", "ent_coef", "entropy_weight"),
        ("ppo", "gae_lambda", "trace_lambda"),
        ("ppo", "clip_coef", "clip"),
        ("ppo", "clip_range", "clip"),
        ("ppo", "vf_coef", "value_weight"),
        ("ppo", "n_steps", "rollout_length"),
        ("ppo", "n_epochs", "epochs"),
        ("pqn", "num_minibatches", "minibatches"),
        ("double", "minibatch_size", "batch_size"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(agent, theirs, ours, capsys):
    with pytest.raises(ConfigError) as caught:
        make_experiment(agent, **dict[str, Any]({theirs: 0.9}))
    assert caught.value.problems == [f"{theirs} is no field; it is called {ours} here"]
    flag, ours = theirs.replace("_", "-"), ours.replace("_", "-")
    assert refusal(capsys, "train", agent, f"--{flag}", "0.9") == f"rollax: --{flag} is called --{ours} here"


@pytest.mark.parametrize("theirs", ["batch_size", "minibatch_size"])
def test_a_size_is_not_taken_for_a_number(theirs, capsys):
    told = "here, which is their number and not their size"
    with pytest.raises(ConfigError, match=f"{theirs} is no field; it is called minibatches {told}"):
        make_experiment("ppo", **dict[str, Any]({theirs: 64}))
    flag = theirs.replace("_", "-")
    assert refusal(capsys, "train", "ppo", f"--{flag}", "64") == f"rollax: --{flag} is called --minibatches {told}"


def test_what_is_no_setting_is_said_to_be_elsewhere():
    with pytest.raises(ConfigError, match=r"it is called run_dir here, an argument of rollax\.train"):
        make_experiment("double", save_dir="x")


def test_one_setting_under_two_names_is_refused(capsys):
    with pytest.raises(ConfigError, match=r"torso\.hidden and hidden are the same setting; give it once"):
        make_experiment("double", **dict[str, Any]({"torso.hidden": (3,), "hidden": (4,)}))
    line = refusal(capsys, "train", "double", "--torso.hidden", "3", "--hidden", "4")
    assert line == "rollax: --torso.hidden and --hidden are the same setting; give it once"


def test_what_an_agent_has_not_is_said(capsys):
    with pytest.raises(ConfigError, match="it is called entropy_weight here, which double has not"):
        make_experiment("double", ent_coef=0.1)
    line = refusal(capsys, "train", "double", "--ent-coef", "0.1")
    assert line == "rollax: --ent-coef is called --entropy-weight here, which this agent has not"
    line = refusal(capsys, "train", "double", "--lerning-rate", "0.1")
    assert line.startswith("rollax: --lerning-rate is no flag; did you mean --learning-rate")
    line = refusal(capsys, "eval", "--episode", "3")
    assert line == "rollax: --episode is no flag; did you mean --episodes or --epsilon?"
    assert refusal(capsys, "list", "--gamma") == "rollax: --gamma is no flag; --help-all shows all"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "double", "--steps", "abc"), "--steps 'abc' must be a whole number"),
        (("train", "double", "--loss", "l2"), "--loss 'l2' must be one of huber, squared"),
        (("train", "double", "--learning-rate"), "learning_rate=() holds no number"),
        (("train", "double", "again"), "Unrecognized options: again"),
        (("resume",), "Missing from rollax resume: STR run-dir (required)"),
    ],
)
def test_a_wrong_value_costs_one_line(arguments, message, capsys):
    assert refusal(capsys, *arguments).startswith(f"rollax: {message}")


def test_the_table_of_other_names_leads_to_settings():
    known = {leaf.path[-1] for leaf in every_leaf()} | set(ELSEWHERE)
    assert set(FOREIGN) <= known
    foreign = Counter(name for names in FOREIGN.values() for name in names)
    assert {name for name, uses in foreign.items() if uses > 1} == {"minibatch_size", "mini_batch_size"}
    assert told_here("such-a-name", known, "this agent") == ""


# -- parts below hparams


@struct.dataclass
class Constant:
    epsilon: float = setting(0.1, "Share of random actions.", limit=SHARE)


@struct.dataclass
class Halving:
    epsilon: float = 0.5
    half_life: int = setting(100, "Number of steps in which the share of random actions halves.", limit=COUNT)


@struct.dataclass
class Numbers(OptimizerHParams):
    exploring: Constant | Halving = Constant()


def with_numbers(**values):
    recipe = FAMILY["dqn"]
    tree = Experiment(agent="dqn", choices=recipe.choices, hparams=Numbers())
    return with_values(tree, values)


@pytest.fixture
def exploring(monkeypatch):
    monkeypatch.setitem(parts.PARTS, "exploring", {"constant": Constant, "halving": Halving})
    monkeypatch.setitem(parts.PART_ABOUT, "exploring", About("How it explores.", group="exploration"))


def test_a_part_may_lie_below_hparams(exploring):
    made = with_numbers(exploring="halving", half_life=[10, 20], learning_rate=0.5)
    assert parts_of(made)["exploring"] == "halving"
    assert {leaf.about.group for leaf in leaves(made) if "exploring" in leaf.path} == {"exploration"}
    assert made.hparams.exploring == Halving(half_life=cast(Any, (10, 20)))
    data = to_json(made)
    assert data["hparams"]["exploring"] == {"part": "halving", "epsilon": 0.5, "half_life": [10, 20]}
    members = population(made)
    assert [member.hparams["half_life"] for member in members] == [10, 20]
    _, hparams = keys_and_hparams(made, members)
    assert isinstance(hparams.exploring, Halving)
    assert hparams.exploring.half_life.dtype == jnp.int32
    assert hparams.exploring.half_life.tolist() == [10, 20]
    assert hparams.exploring.epsilon.dtype == jnp.float32
    assert hparams.learning_rate.tolist() == [0.5, 0.5]
    with pytest.raises(ConfigError, match="exploring='often' is no exploring"):
        with_numbers(exploring="often")


def test_a_file_outlives_a_field_that_has_moved_into_a_part(exploring, monkeypatch):
    monkeypatch.setitem(AGENTS, "moved", FAMILY["dqn"]._replace(hparams=Numbers()))
    read = from_json({"agent": "moved", "hparams": {"learning_rate": 0.1, "epsilon": [0.3, 0.4]}})
    assert read.hparams.exploring == Constant(epsilon=cast(Any, (0.3, 0.4)))
    assert from_json(to_json(read)) == read


def test_files_of_an_earlier_version_are_read():
    paths = sorted((ROOT / "tests" / "old_configs").glob("*.json"))
    assert len(paths) == 4
    for path in paths:
        data = json.loads(path.read_text())
        made = from_json(data)
        assert made.agent == data["agent"]
        values = {leaf.path[-1]: leaf.value for leaf in leaves(made)}
        flat = dict(numbers(data))
        # What a part has now that these do not need said nothing then.
        nothing = {"epsilon_decay": 0.0, "epsilon_steps": 25_000.0, "sync_period": 0, "loss_weight": 1.0}
        gone = {name: flat.pop(name) for name in nothing if name in flat and name not in values}
        assert all(value == nothing[name] for name, value in gone.items()), path
        assert flat.keys() - values.keys() == set(), path
        for name, value in flat.items():
            assert values[name] == (tuple(value) if isinstance(value, list) else value), (path, name)


def numbers(data):
    """Every value of a file by the name of its field."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from numbers(value)
        elif name != "part":
            yield name, value


# -- help and commands


def shown(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        run_command(arguments[0], list(arguments[1:]))
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["train", "sweep", "tune", "plan", "inspect", "profile"])
def test_help_shows_common_settings_first_and_help_all_the_rest(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    common, everything = shown(capsys, name, "double", "--help"), shown(capsys, name, "double", "--help-all")
    for text in (common, everything):
        assert max(map(len, text.splitlines())) <= 90
        assert text.startswith(f"usage: rollax {name} [AGENT] [flags]\n")
        headings = [line for line in text.splitlines() if re.fullmatch(r"[A-Z][\w ]+", line)]
        order = [heading.lower() for heading in headings]
        assert order == [group for group in GROUPS if group in order]
        assert {"experiment", "network", "optimizer", "replay"} <= set(order)
    assert "--learning-rate FLOAT ..." in common
    assert "--optimizer-eps" not in common
    assert "--optimizer-eps FLOAT ..." in everything
    for leaf in leaves(make_experiment("double")):
        if leaf.name != "agent":
            assert f"  --{leaf.name.replace('_', '-')}" in everything, leaf.name
    (count,) = re.findall(r"--help-all shows (\d+) more flags", common)
    flags = re.compile(r"^  --", flags=re.MULTILINE)
    assert len(flags.findall(everything)) - len(flags.findall(common)) == int(count)


def test_help_shows_a_setting_of_the_users_own(own, capsys):
    text = shown(capsys, "train", "double", "--torso", "own_named:Echoing", "--help")
    assert "--torso.batch-size INT" in text[text.index("\nNetwork\n") : text.index("\nExploration\n")]
    assert "--torso.quiet, --torso.no-quiet" in text


def test_every_command_is_in_the_table_and_explains_its_flags(capsys):
    lines = usage().splitlines()
    for name, command in COMMANDS.items():
        assert any(line.startswith(f"  {name} ") and line.endswith(command.line) for line in lines), name
        assert shown(capsys, name, "--help").startswith(f"usage: rollax {name}")
    assert max(map(len, lines)) <= 110


def test_every_option_has_a_sentence():
    from rollax.commands import bench, comparing, inspect, listing, playing, report, search, train

    forms = [
        *(train.TrainFlags, train.Resume, playing.Eval, playing.Watch, playing.Play, comparing.Compare, bench.Bench),
        *(listing.List, listing.Zoo, listing.CheckEnv, listing.Doctor, report.Plot, report.Report, report.Export),
        *(search.SweepFlags, search.TuneFlags, inspect.InspectFlags, inspect.PlanFlags, inspect.ProfileFlags),
    ]
    for form in forms:
        for flag in flags_of(form):
            assert re.fullmatch(r"[A-Z].*\.", flag.about.help), (form, flag.name)


# -- presets


def test_presets_say_what_was_measured_and_where():
    for name, preset in PRESETS.items():
        assert preset.score, name
        assert bool(preset.machine) == (preset.score != "not measured"), name


def test_no_two_shapes_are_alike():
    """Presets with the same values share one table of them."""
    tables = list({id(preset.values): preset.values for preset in PRESETS.values()}.values())
    for index, values in enumerate(tables):
        assert values not in tables[:index], values


def test_the_list_shows_scores(capsys):
    assert run_command("list", []) == 0
    assert re.search(r"double/CartPole-v1 +500\.0 on each of ten seeds \(two cores", capsys.readouterr().out)
