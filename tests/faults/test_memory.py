"""Runs that the machine cannot hold: refused before anything is compiled, with a size that fits."""

from __future__ import annotations

import resource
import shlex
import subprocess

import jax
import jax.numpy as jnp
import pytest
from fault_tools import TINY, Answer, ask, judge
from process_tools import rollax, surroundings

from rollax.errors import ConfigError, ResourceError
from rollax.experiment.experiment import make_experiment
from rollax.experiment.tree import leaves
from rollax.programs import budget, machine
from rollax.programs.budget import check_compiled, check_memory, need_of
from rollax.programs.foresight import temporary_bytes
from rollax.programs.machine import parsed_size
from rollax.programs.plan import make_plan

GIB = 2**30
ABSURD = {
    "num_envs": ("ppo", 200_000_000),
    "rollout_length": ("ppo", 2_000_000_000),
    "eval_episodes": ("double", 2_000_000_000),
    "hidden": ("double", (2_000_000_000,)),
    "batch_size": ("double", 100_000_000),
    "capacity": ("double", 2_000_000_000),
    "seeds": ("ppo", 1_000_000),
}


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """The same machine for every test."""
    monkeypatch.setattr(budget, "available_bytes", lambda: 8 * GIB)
    monkeypatch.setattr(budget, "host_bytes", lambda: 8 * GIB)


def test_every_setting_that_memory_grows_with_is_tried():
    experiments = [make_experiment(agent) for agent in ("double", "ppo")]
    marked = {leaf.name for one in experiments for leaf in leaves(one) if leaf.about.memory}
    assert marked - set(ABSURD) <= {"minibatches", "replay.capacity"}, marked


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "capacity" else pytest.mark.thorough) for name in ABSURD],
)
def test_an_absurd_size_is_refused_with_one_that_fits(request, tmp_path, name):
    agent, value = ABSURD[name]
    flag, folder = f"--{name.replace('_', '-')}", tmp_path / "run"
    values = list(value) if isinstance(value, tuple) else [value]
    same = ["--capacity", 101_000_000] if name == "batch_size" else []
    words = ["train", agent, "--preset", "none", flag, *values, *same, "--run-dir", folder]
    answer = judge(request, ask(*words), 6, "of memory", flag, "would fit", most=1)
    assert not folder.exists()
    fits = int(answer.lines[0].split(f"{flag} ")[1].split()[0])
    changes = {name: (fits,) if isinstance(value, tuple) else fits} | ({"capacity": same[1]} if same else {})
    check_memory(make_plan(make_experiment(agent, preset="none", **changes)))


@pytest.mark.thorough
def test_a_setting_may_say_less_than_the_machine_has(request, tmp_path):
    folder = tmp_path / "run"
    judge(request, ask("train", *TINY, "--max-memory", "10KiB", "--run-dir", folder), 6, "max_memory", "10.0 KiB")
    assert not folder.exists()
    judge(request, ask("train", *TINY, "--max-memory", "64GiB", "--run-dir", folder, "--quiet"), 0)
    judge(request, ask("resume", folder, "--steps", 1_600, "--max-memory", "10KiB"), 6, "max_memory")
    judge(request, ask("resume", folder, "--steps", 1_600, "--max-memory", "1GiB", "--quiet"), 0)


@pytest.mark.parametrize("text", ["much", "-1GiB", "0", "4 parsecs", "1e9", "nan"])
def test_a_size_that_is_none_is_refused(request, text):
    judge(request, ask("train", *TINY, f"--max-memory={text}"), 2, "max_memory", "4GiB", most=1)


@pytest.mark.parametrize(
    ("text", "size"), [("", None), ("4GiB", 4 * GIB), ("1.5g", 3 * GIB // 2), ("500 MB", 500 * 2**20), ("17", 17)]
)
def test_sizes_are_read(text, size):
    assert parsed_size(text) == size


def test_what_the_compiler_says_decides():
    plan = make_plan(make_experiment("double", max_memory="1GiB"))
    check_compiled(plan, GIB // 2)
    with pytest.raises(
        ResourceError, match=r"compiled, the run needs 2.0 GiB of memory, but max_memory allows only 1.0"
    ):
        check_compiled(plan, 2 * GIB)


def test_the_replay_of_actors_is_counted(request):
    words = ["train", "apex", "--preset", "none", "--actors", 2, "--capacity", 2_000_000_000]
    judge(request, ask(*words), 6, "replay", "--capacity", "would fit", most=1)


def test_a_run_that_is_small_is_not_traced(monkeypatch):
    plan = make_plan(make_experiment("double", seeds=1))
    monkeypatch.setattr(type(plan.program), "temporary_bytes", lambda *_: 1 / 0)
    check_memory(plan)


@pytest.mark.parametrize("limit", [5, pytest.param(7, marks=pytest.mark.thorough)])
def test_a_limit_of_addresses_is_heeded(request, tmp_path, limit):
    words = rollax("train", "double", "--preset", "none", "--capacity", 400_000_000, "--run-dir", tmp_path / "run")
    limited = ["bash", "-c", f"ulimit -v {limit * 2**20}; exec {shlex.join(words)}"]
    done = subprocess.run(limited, capture_output=True, text=True, env=surroundings(), check=False)
    judge(request, Answer(done.returncode, done.stdout, done.stderr), 6, "of memory", "--capacity", most=1)


def test_free_addresses_are_counted(monkeypatch):
    assert machine.free_addresses() > 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**40, 2**40))
    assert 0 < machine.free_addresses() < 2**40


def beside(function, *shapes) -> int:
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return temporary_bytes(jax.make_jaxpr(function)(*structs).jaxpr)


def test_what_is_fused_takes_no_memory():
    assert beside(lambda x: jnp.sum(jnp.exp(x) * 2 + 1), (1000,)) <= 8


def test_what_a_product_reads_is_stored_until_then():
    assert beside(lambda x: jnp.sum(jnp.exp(x) @ x), (100, 100)) == pytest.approx(2 * 40_000, rel=0.01)


def test_an_update_is_made_in_place():
    assert beside(lambda x: x.at[3].set(1.0), (100_000,)) < 1_000


def test_a_loop_holds_one_body_at_a_time():
    def loop(x):
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ carry), None), x, length=100)[0]

    assert beside(loop, (100, 100)) <= 3 * 40_000


CASES = [
    ("double", "CartPole-v1", {"batch_size": 8192}),
    ("c51", "CartPole-v1", {"batch_size": 2048}),
    ("ppo", "CartPole-v1", {"num_envs": 256}),
    ("pqn", "Breakout-MinAtar", {"num_envs": 32}),
    ("ppo", "Breakout-MinAtar", {"num_envs": 32}),
]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case is CASES[2] else pytest.mark.thorough) for case in CASES], ids=str
)
def test_the_prediction_is_within_a_quarter_of_what_the_compiler_says(case):
    agent, env, changes = case
    plan = make_plan(make_experiment(agent, env=env, **changes))
    compiled = plan.program.compile(plan.keys, plan.hparams).memory_bytes
    assert need_of(plan).near == pytest.approx(compiled, rel=0.25)


def test_a_wrong_size_is_one_of_all_problems():
    with pytest.raises(ConfigError) as caught:
        make_plan(make_experiment("double", max_memory="much", discount=2.0))
    assert len(caught.value.problems) == 2
