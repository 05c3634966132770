"""Parts and agents of the user's own: by themselves, by their names, in files and as flags."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from rollax import train
from rollax.commands.flags import read_experiment, starting_experiment
from rollax.commands.train import TrainFlags
from rollax.errors import ConfigError
from rollax.experiment.experiment import from_json, make_experiment
from rollax.experiment.parts import part_name
from rollax.experiment.tree import leaves, to_json
from rollax.runs.result import evaluate_run
from rollax.settings import COUNT

MODULE = """
from dataclasses import dataclass
from flax import linen as nn
from rollax.agents.dqn import FAMILY
from rollax.rules.backups import GreedyBackup
from rollax.memory.uniform import UniformReplay
from rollax.networks.torsos import Torso, flatten_features
from rollax.settings import COUNT, setting

class Thin(Torso):
    units: int = setting(8, "How thin.", limit=COUNT)
    @nn.compact
    def __call__(self, features):
        return nn.Dense(self.units)(flatten_features(features))

@dataclass(frozen=True)
class Cautious(GreedyBackup):
    pessimism: float = 0.5

class Forgetful(UniformReplay):
    pass

class Needy(Torso):
    units: int

class Evaluated(Thin):
    eval_episodes: int = 3
    evaluation_epsilon: float = 0.5

RECIPE = FAMILY["n_step"]
nothing = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_things.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("own_things")
    del sys.modules["own_things"]


def test_a_part_survives_its_file(own):
    made = make_experiment(
        "double", torso=own.Thin(units=4), backup=own.Cautious(pessimism=0.1), replay=own.Forgetful()
    )
    data = json.loads(json.dumps(to_json(made)))
    assert data["choices"]["torso"] == {"part": "own_things:Thin", "units": 4}
    assert from_json(data) == made
    (leaf,) = (leaf for leaf in leaves(made) if leaf.name == "units")
    assert (leaf.value, leaf.help, leaf.limit) == (4, "How thin.", COUNT)
    (plain,) = (leaf for leaf in leaves(made) if leaf.name == "pessimism")
    assert (plain.value, plain.help, plain.limit) == (0.1, "", None)


def test_a_name_is_as_good_as_the_part(own):
    assert make_experiment("ppo", torso="own_things:Thin", units=3) == make_experiment("ppo", torso=own.Thin(units=3))
    choices: Any = make_experiment("ppo", torso="own_things:Thin").choices
    assert part_name("torso", choices.torso) == "own_things:Thin"


def test_flags_name_parts_and_agents(own):
    flags = ["--torso", "own_things:Thin", "--units", "5"]
    start = starting_experiment("own_things:RECIPE", flags)
    made, _ = read_experiment(["own_things:RECIPE", *flags], TrainFlags, "train", "")
    assert start.choices.replay.n_step == 3
    assert made.choices.torso.units == 5
    assert type(start.choices.torso) is own.Thin


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"torso": "own_things:Thick"}, "own_things has no 'Thick'; did you mean own_things:Thin?"),
        ({"torso": "no_such_module:Thin"}, "there is no module 'no_such_module'; is it on PYTHONPATH?"),
        ({"torso": "own_things:Cautious"}, "and subclasses of rollax.networks.torsos.Torso"),
        ({"torso": "own_things:nothing"}, "and subclasses of rollax.networks.torsos.Torso"),
        ({"head": 3}, "and subclasses of rollax.networks.heads.Head"),
        ({"acting": "own_things:Thin"}, "is no acting; known are noisy, quiet"),
        ({"torso": "own_things:Needy"}, "own_things:Needy needs a value of units; give that field a default"),
    ],
)
def test_what_does_not_fit_is_refused(own, values, message):
    with pytest.raises(ConfigError, match=r"own_things|no_such|known") as caught:
        make_experiment("double", **values)
    assert message in str(caught.value)


def test_agents_that_are_none_are_refused(own):
    with pytest.raises(ConfigError, match="it must be a rollax"):
        make_experiment("own_things:nothing")
    with pytest.raises(ConfigError, match="did you mean own_things:RECIPE"):
        make_experiment("own_things:RECIPES")
    with pytest.raises(ConfigError, match=r"own_broken fails at .*own_broken.py:1: ZeroDivisionError: .*, on import"):
        make_experiment("own_broken:RECIPE")


def test_a_file_cannot_bring_in_what_does_not_fit(own):
    data = to_json(make_experiment("double"))
    data["choices"]["torso"] = {"part": "os:system"}
    data["choices"]["acting"] = {"part": "own_things:Thin"}
    with pytest.raises(ConfigError) as caught:
        from_json(data)
    assert "and subclasses of rollax.networks.torsos.Torso" in str(caught.value)
    assert "choices.acting.part='own_things:Thin' does not fit here" in str(caught.value)


def test_a_field_that_is_named_like_one_of_an_evaluation_is_no_trouble(own, tmp_path):
    """`eval` sets the experiment's own by their whole paths."""
    values: Any = {"preset": "none", "steps": 64, "num_envs": 8, "capacity": 64, "batch_size": 8, "warm_up_steps": 32}
    made = make_experiment("double", torso=own.Evaluated(), **values, **{"record.eval_episodes": 2})
    result = train(made, tmp_path / "run", quiet=True)
    (row,) = evaluate_run(result.run_dir, 4, epsilon=0.1)
    assert row["episodes"] == 4
