"""Settings that cannot be: every number of every agent, world and part with every bad value, and bad ones together.

Nothing is built for it: what is refused is refused before anything compiles.
"""

from __future__ import annotations

import functools
import json
import math
import typing

import pytest
from fault_tools import Answer, ask, judge, note

from rollax.agents.names import AGENTS
from rollax.commands.words import word_problem
from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.experiment import parts
from rollax.experiment.experiment import MOST_MEMBERS, Experiment, from_json, make_experiment, population, with_values
from rollax.experiment.tree import Leaf, leaves, parts_of, range_problems, to_json
from rollax.programs.plan import make_plan
from rollax.search.space import read_space
from rollax.settings import ANY_NUMBER

BAD = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus_infinity": -math.inf,
    "beyond_float32": 1e39,
    "below_float32": 1e-50,
    "minus_one": -1,
    "beyond_int32": 10**20,
    "no_float_at_all": 10**400,
    "not_whole": 1.5,
    "text": "fast",
    "truth": True,
    "list": [[1, 2]],
    "nothing": None,
    "object": {"a": 1},
    "below_limit": "low",  # the two that depend on the setting
    "above_limit": "high",
}
LONG = "x" * 100_000_000


def numbers() -> dict[str, tuple[Leaf, dict]]:
    """Every number that can be set, once for each place where it stands, and with what an experiment has it."""
    found: dict[str, tuple[Leaf, dict]] = {}

    def add(**values) -> None:
        for leaf in leaves(make_experiment(preset="none", **values)):
            if kind_of(leaf) in (int, float):
                found.setdefault(".".join(leaf.path), (leaf, values))

    for agent in AGENTS:
        add(agent=agent)
        for slot in parts_of(make_experiment(agent, preset="none")):
            for part in parts.PARTS[slot]:
                add(agent=agent, **{slot: part})
    for env in (*registry.OWN, "ALE/Pong-v5", "gymnasium:CartPole-v1"):
        add(agent="ppo", env=env)
    return found


def kind_of(leaf: Leaf) -> typing.Any:
    """The type of one number of it."""
    return typing.get_args(leaf.annotation)[0] if listed(leaf) else leaf.annotation


def listed(leaf: Leaf) -> bool:
    return typing.get_origin(leaf.annotation) is tuple


NUMBERS = numbers()


@functools.cache
def start(**values) -> Experiment:
    return make_experiment(preset="none", **values)


def checked(experiment: Experiment) -> None:
    """As `make_plan` begins, which goes on to environments."""
    if problems := range_problems(experiment):
        raise ConfigError(problems)


def value_for(leaf: Leaf, case: str) -> typing.Any:
    limit = leaf.limit or ANY_NUMBER[kind_of(leaf)]
    if case == "below_limit":
        return limit.low if limit.above else limit.low - 1 if kind_of(leaf) is int else 2 * min(limit.low, -1.0)
    if case == "above_limit":
        return limit.high + 1 if kind_of(leaf) is int else limit.high * 1.5
    return BAD[case]


def legal(leaf: Leaf, value: typing.Any) -> bool:
    """Whether the setting may have this value, by what is said of it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = number and (kind_of(leaf) is float or isinstance(value, int) or value.is_integer())
    return whole and (leaf.limit or ANY_NUMBER[kind_of(leaf)]).admits(value)


def refused(request: pytest.FixtureRequest, action: typing.Callable[[], object]) -> list[str]:
    """The problems with which something is refused, as an answer that is counted."""
    try:
        action()
    except ConfigError as error:
        note(request, "answered")
        return error.problems
    except Exception:
        note(request, "traceback")
        raise
    note(request, "silent")
    raise AssertionError("it was accepted")


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_cannot_be_is_refused(request, name, case):
    leaf, values = NUMBERS[name]
    bad = value_for(leaf, case)
    if legal(leaf, bad):
        return
    asked = {name: (bad,) if listed(leaf) else bad}
    problems = refused(request, lambda: checked(with_values(start(**values), asked)))
    assert any(leaf.path[-1] in problem for problem in problems), problems
    assert all(len(problem) < 400 for problem in problems)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_cannot_be_is_refused_in_a_file(request, name):
    """NaN and infinities are words of Python's JSON too."""
    leaf, values = NUMBERS[name]
    data = to_json(start(**values))
    *path, last = leaf.path
    branch = data
    for step in path:
        branch = branch[step]
    branch[last] = [math.nan] if listed(leaf) else math.nan
    problems = refused(request, lambda: make_plan(from_json(json.loads(json.dumps(data)))))
    assert any(last in problem for problem in problems), problems


FLAGS = ["hparams.learning_rate", "choices.replay.capacity", "choices.torso.hidden", "record.checkpoint_seconds"]
SHOWN = [*FLAGS, *(pytest.param(name, marks=pytest.mark.thorough) for name in NUMBERS if name not in FLAGS)]


@pytest.mark.parametrize("word", ["nan", "1e39", "-7", "99999999999999999999", "fast", ""])
@pytest.mark.parametrize("name", SHOWN)
def test_a_number_that_cannot_be_is_refused_as_a_flag(request, name, word):
    leaf, values = NUMBERS[name]
    number = None if word_problem(kind_of(leaf), word) else kind_of(leaf)(word)
    if legal(leaf, number):
        return
    agent, *others = values.items()
    chosen = [f"--{flag.replace('_', '-')}={value}" for flag, value in others]
    answer = ask("plan", agent[1], "--preset", "none", *chosen, f"--{name.replace('_', '-')}={word}")
    said = judge(request, answer, 2, most=4).lines
    assert any(leaf.path[-1] in line.replace("-", "_") for line in said), said


# -- settings that do not go together


def plan(**values) -> typing.Callable[[], object]:
    return lambda: make_plan(make_experiment(**({"preset": "none"} | values)))


TOGETHER = {
    "epsilon": (plan(epsilon_start=0.1, epsilon_end=0.2), "epsilon_end=0.2 must be at most epsilon_start=0.1"),
    "epsilon_shrinking": (
        plan(agent="dqn", exploration="shrinking", epsilon_start=0.1, epsilon_end=0.2),
        "epsilon_end",
    ),
    "epsilon_of_one_member": (plan(epsilon_start=[0.1, 1.0], epsilon_end=[0.01, 0.2]), "epsilon_end=0.2"),
    "importance": (plan(agent="prioritized", importance_start=0.9, importance_end=0.5), "importance_start=0.9"),
    "support": (plan(agent="c51", value_min=5.0, value_max=-5.0), "value_min=5.0"),
    "batch": (plan(capacity=1_600, batch_size=1_601), "batch_size=1601 is more than"),
    "batch_of_n_steps": (plan(agent="n_step", capacity=1_600, batch_size=1_560), "the most is batch_size=1552"),
    "batch_prioritized": (plan(agent="prioritized", capacity=1_600, batch_size=1_600), "the most is batch_size=1584"),
    "batch_of_actors": (
        plan(agent="apex", actors=2, replay_shards=2, num_envs=16, capacity=160, batch_size=128, warm_up_steps=64),
        "batch_size: a shard waits for 128 transitions, but holds 80",
    ),
    "warm_up_of_actors": (
        plan(agent="apex", actors=2, num_envs=16, capacity=1_600, warm_up_steps=3_200, batch_size=8),
        "warm_up_steps: a shard waits for 3200",
    ),
    "population": (plan(learning_rate=[1e-3] * 10_000, discount=[0.9] * 1_000, seeds=1_000), "10,000,000,000 members"),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_settings_that_do_not_go_together_are_refused(request, case):
    action, words = TOGETHER[case]
    problems = refused(request, action)
    assert any(words in problem for problem in problems), problems


def test_a_batch_as_large_as_what_the_replay_has_is_taken():
    plan(agent="n_step", capacity=1_600, batch_size=1_552)()


def test_all_problems_come_together_whatever_their_kind(request, tmp_path):
    wrong: dict[str, typing.Any] = {
        "learning_rate": "fast",
        "discount": 7,
        "epsilon_end": -1,
        "batch_size": 1.5,
        "hidden": "many",
    }
    told = refused(request, lambda: make_experiment(preset="none", **wrong))
    assert {name for name in wrong if any(problem.startswith(f"{name}=") for problem in told)} == set(wrong)
    words = ["--learning-rate", "fast", "--discount", "7", "--steps", "1e3x", "--lerning", "3", "--loss", "l2"]
    answer = judge(request, ask("plan", "double", *words, "--head", "scaler"), 2, most=6)
    for name in ("learning-rate", "discount", "steps", "lerning", "loss", "head"):
        assert name in answer.err, name
    assert len(answer.lines) == 6
    data = to_json(make_experiment())
    data["hparams"] |= {"learning_rate": "fast", "discount": 7}
    told = refused(request, lambda: from_json(data))
    assert len(told) == 2


def test_options_of_commands_are_in_their_ranges(request):
    for words, name in (
        (["sweep", "double", "--search", "discount=uniform:0.1:0.9", "--rungs", "0"], "rungs=0"),
        (["sweep", "double", "--search", "discount=uniform:0.1:0.9", "--settings", "10000000000"], "settings="),
        (["tune", "double", "--search", "discount=uniform:0.1:0.9", "--trials", "-3", "--batch", "0"], "batch=0"),
        (["resume", "somewhere", "--steps", "-3"], "steps=-3"),
        (["eval", "somewhere", "--episodes", "0", "--epsilon", "nan"], "epsilon=nan"),
        (["watch", "somewhere", "--fps", "1000"], "fps=1000"),
        (["bench", "--seconds", "inf"], "seconds=inf"),
        (["check-env", "CartPole-v1", "--steps", "-1"], "steps=-1"),
        (["train", "double", "--process-id", "-5"], "process_id=-5"),
    ):
        judge(request, ask(*words), 2, name)


# -- spaces


SPACES = {
    "twice": (["learning-rate=log:1e-4:1e-2", "hparams.learning_rate=log:1e-3:1e-2"], "learning_rate is named twice"),
    "infinite": (["learning-rate=log:1e-4:inf"], "learning_rate=inf"),
    "infinite_int": (["target-period=int:1:inf"], "target_period"),
    "nan": (["learning-rate=uniform:nan:1"], "LOW below HIGH"),
    "beyond_float32": (["learning-rate=log:1:1e39"], "at most 3.4"),
    "beyond_int32": (["target-period=int:1:1e12"], "target_period"),
    "same_choice": (["learning-rate=choice:0.1,0.1"], "names a value twice"),
    "pair": (["epsilon-end=uniform:0.1:0.9", "epsilon-start=uniform:0.5:1"], "epsilon_end=0.9 must be at most"),
    "long": ([f"{LONG}=log:1:2"], "is no field"),
}


@pytest.mark.parametrize("case", SPACES)
def test_a_space_that_cannot_be_is_refused(request, case):
    searches, words = SPACES[case]
    problems = refused(request, lambda: read_space(make_experiment(), searches))
    assert any(words in problem for problem in problems), problems
    assert all(len(problem) <= 2_100 for problem in problems)


# -- names and files


@pytest.mark.parametrize("value", [LONG, "a\0b", 5, None, ["a"]], ids=["long", "nul", "number", "nothing", "list"])
@pytest.mark.parametrize("name", ["agent", "env", "preset", "head", "init_from", "own_agent", "own_env", "loss"])
def test_a_name_that_cannot_be_is_refused_at_once(request, name, value):
    if name.startswith("own_"):
        name, value = name.removeprefix("own_"), f"{value}:thing" if isinstance(value, str) else value
    problems = refused(request, lambda: make_plan(make_experiment(**{name: value})))
    assert any(problem.startswith(f"{name}=") for problem in problems)
    assert all(len(problem) <= 2_100 for problem in problems)


def test_a_command_line_without_end_is_refused_at_once(request):
    for words in (["train", LONG], ["train", "double", f"--{LONG}", "3"], ["train", "double", "--env", LONG], [LONG]):
        answer = judge(request, ask(*words), 2)
        assert len(answer.err) < 5_000


FILES = {
    "twice": ('{"agent": "double", "seeds": 1, "seeds": 2}', "'seeds' comes twice"),
    "twice_below": ('{"agent": "double", "hparams": {"discount": 0.9, "discount": 0.8}}', "'discount' comes twice"),
    "digits": ('{"agent": "double", "seeds": ' + "9" * 5_000 + "}", "no valid JSON"),
    "infinity": ('{"agent": "double", "hparams": {"learning_rate": Infinity}}', "learning_rate=inf"),
    "minus": ('{"agent": "double", "seeds": -1, "steps": 1.5}', "seeds=-1"),
    "agent": ('{"agent": 5}', "agent=5 must be a str"),
    "env": ('{"agent": "double", "env": ["CartPole-v1"]}', "env=['CartPole-v1'] must be a str"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_configuration_that_cannot_be_is_refused(request, case, tmp_path):
    text, words = FILES[case]
    path = tmp_path / "config.json"
    path.write_text(text)
    judge(request, ask("plan", "--config", path), 2, words)


def folder(tmp_path, case):
    (tmp_path / "file").write_text("mine")
    return {"file": tmp_path / "file", "below_file": tmp_path / "file" / "run", "blank": "   ", "nul": "a\0b"} | {
        "long": str(tmp_path / ("x" * 5_000)),
        "long_name": tmp_path / ("x" * 300),
    }


@pytest.mark.parametrize("case", ["file", "below_file", "blank", "nul", "long", "long_name"])
def test_a_folder_that_cannot_be_is_refused(request, case, tmp_path):
    where = folder(tmp_path, case)[case]
    answer: Answer = ask("train", "double", "--preset", "none", "--steps", "16", "--run-dir", where)
    judge(request, answer, 2, "run")
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# -- what is right stays right


def test_whole_numbers_may_be_written_as_others():
    made = make_experiment(preset="none", seeds=3.0, learning_rate=1, epsilon_end=-0.0)
    assert (made.seeds, made.hparams.learning_rate) == (3, 1.0)
    assert isinstance(made.seeds, int)
    assert math.copysign(1.0, made.hparams.exploration.epsilon_end) == 1.0


@pytest.mark.parametrize("agent", AGENTS)
def test_no_default_is_refused(agent):
    experiment: Experiment = make_experiment(agent)
    assert range_problems(experiment) == []
    assert len(population(experiment)) <= MOST_MEMBERS
