"""Errors in what a user wrote: an environment, a part, an agent, a callback.  The answer names their file and line."""

from __future__ import annotations

import json
import sys

import pytest
from fault_tools import TINY, ask, judge

import rollax
from rollax.errors import users_line

MODULE = """
import jax.numpy as jnp
from flax import linen as nn, struct
from rollax.agents.dqn import FAMILY, DQNConfig
from rollax.networks.torsos import Torso
from rollax.rules.schedules import LinearEpsilon


def nothing():
    pass


class Corridor:
    num_actions = 2

    def reset(self, key, params):
        nothing()  # reset
        return jnp.zeros(1), {"at": jnp.float32(0)}

    def step(self, key, state, action, params):
        nothing()  # step
        at = state["at"] + action
        done = at > 3
        at = jnp.where(done, 0.0, at)
        return at[None], {"at": at}, jnp.float32(1), done, jnp.zeros((), bool), {"final_observation": at[None]}

    def action_space(self, params):
        nothing()  # action_space
        return type("Space", (), {"n": 2})

    def observation_space(self, params):
        nothing()  # observation_space
        return type("Space", (), {})


def make():
    nothing()  # make
    return Corridor(), None


class Bent(Torso):
    def problems(self, observation):
        nothing()  # problems
        return []

    @nn.compact
    def __call__(self, features):
        nothing()  # torso
        return nn.Dense(8)(features)


@struct.dataclass
class Curious(LinearEpsilon):
    def epsilon(self, env_steps, spec):
        nothing()  # exploration
        return jnp.float32(0.1)


RECIPE = FAMILY["double"]
nothing()  # import
"""
BAD = {
    "raises": ("{}['att']", "KeyError: 'att'"),
    "traced": ("bool(jnp.zeros(2).at[0].set(1) > 0)", "ValueError: "),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
}
ENVIRONMENT = ["import", "make", "action_space", "observation_space", "reset", "step"]
PARTS = {"problems": "--torso", "torso": "--torso", "exploration": "--exploration"}


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    """Writes the module with a bad statement at a place; returns `file:line` of it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(place: str, statement: str) -> str:
        text = MODULE.replace(f"nothing()  # {place}\n", f"{statement}\n")
        assert (text != MODULE) == bool(place)
        (tmp_path / "own_corridor.py").write_text(text)
        sys.modules.pop("own_corridor", None)
        number = next((n for n, line in enumerate(text.splitlines(), 1) if place and line.strip() == statement), 0)
        return f"own_corridor.py:{number}: "

    yield write
    sys.modules.pop("own_corridor", None)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", ENVIRONMENT)
@pytest.mark.parametrize("command", [["check-env"], ["train", *TINY, "--env"]], ids=["check", "train"])
def test_an_environments_line_is_named(request, corridor, command, place, bad):
    statement, said = BAD[bad]
    line = corridor(place, statement)
    answer = judge(request, ask(*command, "own_corridor:make"), 5, f"{line}{said}", "own_corridor", most=1)
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", PARTS)
def test_a_parts_line_is_named(request, corridor, tmp_path, place, bad):
    statement, said = BAD[bad]
    line, flag = corridor(place, statement), PARTS[place]
    part = f"own_corridor:{'Curious' if flag == '--exploration' else 'Bent'}"
    hidden = TINY.index("--hidden")
    words = [*TINY[:hidden], *TINY[hidden + 2 :], flag, part, "--run-dir", tmp_path / "run", "--quiet"]
    judge(request, ask("train", *words), 2, f"{line}{said}", most=1)


@pytest.mark.parametrize("bad", ["raises", "exits"])
def test_an_agents_module_that_fails_is_named(request, corridor, bad):
    statement, said = BAD[bad]
    line = corridor("import", statement)
    judge(request, ask("train", "own_corridor:RECIPE"), 2, f"{line}{said}", most=1)


def test_a_mistake_in_python_itself_is_named(request, corridor, tmp_path):
    corridor("", "")
    (tmp_path / "own_corridor.py").write_text("import jax\n\ndef make(:\n    pass\n")
    judge(request, ask("check-env", "own_corridor:make"), 5, "own_corridor.py:3: SyntaxError: invalid syntax", most=1)


@pytest.mark.parametrize("command", ["resume", pytest.param("eval", marks=pytest.mark.thorough)])
def test_an_environment_that_broke_later_is_named(request, corridor, tmp_path, command):
    """The run began with one that was right."""
    corridor("", "")
    assert ask("train", *TINY, "--env", "own_corridor:make", "--run-dir", tmp_path / "run", "--quiet").code == 0
    line = corridor("step", BAD["raises"][0])
    more = ["--steps", "1600"] if command == "resume" else []
    judge(request, ask(command, tmp_path / "run", *more), 5, f"{line}KeyError: 'att'", most=1)


@pytest.mark.parametrize("error", [KeyError("att"), pytest.param(SystemExit(3), marks=pytest.mark.thorough)])
def test_a_callback_that_fails_is_named_and_left_out(request, tmp_path, capsys, error):
    """It can only listen, so the run goes on."""

    def on_rows(kind, rows):
        raise error

    small = {"steps": 800, "num_envs": 8, "hidden": (8,), "capacity": 400, "batch_size": 8, "warm_up_steps": 80}
    experiment = rollax.make_experiment("double", preset="none", eval_episodes=2, **small)
    result = rollax.train(experiment, tmp_path / "run", quiet=True, on_rows=on_rows)
    said = capsys.readouterr().err
    assert json.loads((result.run_dir / "summary.json").read_text())["status"] == "finished"
    number = test_a_callback_that_fails_is_named_and_left_out.__code__.co_firstlineno + 5
    assert f"test_users_code.py:{number}: {type(error).__name__}" in said
    assert said.count("on_rows has failed") == 1


def test_the_lines_above_the_library_are_not_blamed():
    """Who calls it is not at fault for what it finds."""
    with pytest.raises(rollax.errors.ConfigError) as caught:
        rollax.make_experiment("dubble")
    assert users_line(caught.value) == ""
