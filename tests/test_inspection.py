"""`inspect`, `plan`, `profile`: what is counted is so."""

from __future__ import annotations

import gzip
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rollax
from rollax.commands.cli import run_command
from rollax.programs import foresight
from rollax.programs.plan import make_plan
from rollax.programs.program import nbytes
from rollax.tools.inspection import memory, profiling, programs, showing
from rollax.tools.inspection.differences import difference

SMALL: Any = {
    "preset": "none",
    "env": "probes:constant",
    "num_envs": 8,
    "hidden": (16,),
    "capacity": 2_000,
    "batch_size": 16,
    "warm_up_steps": 80,
    "steps": 4_000,
    "log_steps": 400,
    "eval_steps": 2_000,
    "eval_episodes": 5,
    "max_episode_steps": 10,
}
FLAGS = [
    word
    for name, value in SMALL.items()
    for word in (f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,)))
]


def small_plan(agent="double", **changes):
    return make_plan(rollax.make_experiment(agent, **(SMALL | changes)))


def answer(capsys, *arguments):
    code = run_command(arguments[0], list(arguments[1:]))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def test_a_run_compiles_each_program_exactly_once(tmp_path):
    """A whole run: warm-up, many chunks of different lengths, two evaluations, checkpoints."""
    experiment = rollax.make_experiment("double", **SMALL | {"chunk_seconds": 0.01, "checkpoint_seconds": 0.05})
    with programs.compilations() as found:
        rollax.train(experiment, tmp_path / "run", quiet=True)
    names = [one.name for one in found]
    assert {name: names.count(name) for name in programs.NAMES} == dict.fromkeys(programs.NAMES, 1)


@pytest.mark.thorough  # the same of the program alone: test_a_chunk_moves_nothing_between_host_and_device
def test_a_chunk_makes_no_transfer_that_is_not_asked_for():
    """The state stays on the device: per chunk two numbers go in, and the rows that are fetched come out."""
    plan = small_plan()
    run = plan.program.compile(plan.keys, plan.hparams)
    state, _ = run.begin(plan.keys, plan.hparams)
    log = jax.device_put(np.int32(plan.schedule.log))
    shapes = set()
    for stop in (10, 12, 40, 41):
        asked = jax.device_put(np.int32(stop))
        with jax.transfer_guard("disallow"):
            state, rows = run.chunks[stop != 10](state, asked, log)
        shapes.add(jax.device_get(rows).shape)
    assert len(shapes) == 1


def test_what_the_summary_says(capsys):
    facts = json.loads(answer(capsys, "inspect", "double", *FLAGS, "--json"))
    assert facts["compilations"] == dict.fromkeys(facts["compilations"], 1)
    assert set(facts["compilations"]) == set(programs.NAMES)
    shown = {part["name"]: part["bytes"] for part in facts["memory"]}
    plan = small_plan()
    state, best = plan.shapes()
    assert sum(shown.values()) == nbytes((state, best))
    assert shown["learner/params"] == shown["learner/target_params"] == nbytes(state.learner.params)
    assert sum(size for name, size in shown.items() if name.startswith("memory/")) == nbytes(state.memory)
    assert sum(part["bytes"] for part in facts["params"]) == nbytes(state.learner.params)
    # All of the state is updated in its place: only the two numbers are not.
    assert facts["buffers"]["arguments"] - facts["buffers"]["outputs in the place of arguments"] == 8
    assert facts["buffers"]["peak"] >= nbytes(state) + facts["buffers"]["temporaries"]
    assert facts["cost"]["flops"] > 0 < facts["cost"]["bytes_accessed"]
    text = showing.summary(plan, facts)
    assert "params/torso/Dense_0/kernel" in text
    assert "memory/steps" in text


def test_products_are_counted_as_often_as_they_run():
    """A network of 2 -> 16 -> 2 has 64 multiply-adds: once to act, three times to learn, and the way back."""
    flops = programs.flops_of_iteration(small_plan(double=False))
    forward = 2 * (2 * 16 + 16 * 2)
    acting, learning = 8 * forward, 16 * forward
    backward = learning + 16 * 2 * 16 * 2  # of the weights, and of the hidden layer
    assert flops["products"] == acting + 3 * learning + backward  # values now, of who judges, and of the target
    longer = programs.flops_of_iteration(small_plan(gradient_steps=3))
    assert longer["products"] == acting + 3 * (flops["products"] - acting)


def test_the_texts_are_of_the_same_program(capsys, tmp_path):
    printed = answer(capsys, "inspect", "double", *FLAGS, "--jaxpr", "--stablehlo", "--hlo", "--out", str(tmp_path))
    assert len(printed.splitlines()) == 3
    texts = {kind: (tmp_path / f"advance.{kind}.txt").read_text() for kind in ("jaxpr", "stablehlo", "hlo")}
    assert "while" in texts["jaxpr"]
    assert "stablehlo.while" in texts["stablehlo"]
    assert texts["hlo"].startswith("HloModule jit_advance")
    for phase in ("acting", "stepping", "remembering", "sampling", "learning"):
        assert any(phase in labels for labels in profiling.labels_of(texts["hlo"]).values()), phase


def test_outside_jax_there_are_memory_and_weights(capsys):
    flags = ["--env", "gymnasium:CartPole-v1", "--preset", "none", "--num-envs", "2", "--capacity", "200"]
    printed = answer(capsys, "inspect", "double", *flags)
    assert "outside JAX" in printed
    assert "Weights of one member" in printed
    assert run_command("inspect", ["double", *flags, "--hlo"]) == 2
    assert "`rollax inspect --memory --params` shows what there is" in capsys.readouterr().err


def test_with_actors_the_program_in_turn_is_looked_at(capsys):
    """They collect in processes of their own; the agent is the same."""
    assert run_command("inspect", ["apex", *FLAGS, "--rollout-length", "1", "--actors", "2", "--params"]) == 0
    printed = capsys.readouterr()
    assert "actors are left out" in printed.err
    assert "Weights of one member" in printed.out


@pytest.mark.parametrize("agent", ["double", "ppo"])
def test_vmap_adds_an_axis_to_observations_and_none_to_weights(agent):
    changes = {} if agent == "double" else {"capacity": None, "batch_size": None, "warm_up_steps": None}
    known = {name: value for name, value in (SMALL | changes).items() if value is not None}
    plan = make_plan(rollax.make_experiment(agent, **known))
    found = difference(plan, "vmap")
    assert "f32[8,1,16]" in found.after
    assert "f32[8,1,16]" not in found.before
    assert any(line.startswith("-") for line in found.lines[3:])
    assert found.before.count("dot_general") == found.after.count("dot_general") > 0
    assert "one product" in found.comments[-1]


def test_shard_map_adds_one_exchange():
    found = difference(small_plan(), "shard_map")
    assert "psum" not in found.before
    assert found.after.count("psum") == 1
    assert "1 x shard_map" in found.comments[1]


@pytest.mark.parametrize(
    ("agent", "changes"),
    [
        ("double", {"env": "CartPole-v1", "capacity": 20_000, "hidden": (64, 64), "batch_size": 64}),
        pytest.param(
            "double",
            {"env": "CartPole-v1", "capacity": 50_000, "seeds": 3, "batch_size": 128},
            marks=pytest.mark.thorough,
        ),
        pytest.param("rainbow", {"env": "CartPole-v1", "capacity": 50_000}, marks=pytest.mark.thorough),
        pytest.param("dqn", {"env": "Breakout-MinAtar", "capacity": 10_000}, marks=pytest.mark.thorough),
    ],
)
def test_a_plan_is_right_to_fifteen_percent(agent, changes):
    needs = showing.needs(small_plan(agent, **changes), measure=True)
    estimated = needs["state_bytes"] + needs["temporary_bytes"]
    assert estimated == pytest.approx(needs["measured_bytes"], rel=0.15)
    assert needs["measured_bytes"] - needs["measured_temporary_bytes"] == needs["state_bytes"]


def test_what_a_scan_carries_is_known():
    """However this version of JAX says it."""

    def weighted(weights, total, rows):
        return jax.lax.scan(lambda total, row: (total + row @ weights, total), total, rows)

    traced = jax.make_jaxpr(weighted)(jnp.ones(2), 0.0, jnp.ones((4, 2)))
    (scan,) = [equation for equation in traced.jaxpr.eqns if equation.primitive.name == "scan"]
    assert foresight.scan_counts(scan) == (1, 1)
    assert [value.aval.shape for value in foresight.carried_into(scan, scan.params["jaxpr"].jaxpr)] == [()]


def test_drivers_are_found_by_doubling(capsys):
    plan = small_plan(capacity=200_000)
    found = memory.drivers(plan)
    assert {"seeds", "capacity"} == {driver.name for driver in found[:2]}
    twice = small_plan(capacity=400_000)
    assert next(one.added for one in found if one.name == "capacity") == nbytes(twice.shapes()) - nbytes(plan.shapes())
    batch = {driver.name: driver.added for driver in found}["batch_size"]
    assert batch > 0
    text = answer(capsys, "plan", "double", *FLAGS)
    assert "500 iterations of 8 steps each, the first 10 without learning" in text
    assert "twice as much adds" in text


def event(name, start, duration, thread=1, module="jit_advance"):
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "pid": 1, "tid": thread,
            "args": {"hlo_op": name, "hlo_module": module}}  # fmt: skip


def test_self_times_and_phases_of_a_trace(tmp_path):
    """A loop of 100 with 30 + 20 inside; a body that two callers share; another thread; another program."""
    events = [
        event("loop", 0, 100), event("add", 10, 30), event("dot", 50, 20), event("shared", 120, 10),
        event("caller", 115, 20), event("add", 0, 5, thread=2), event("noise", 0, 99, module="jit_other"),
    ]  # fmt: skip
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [*events, {"ph": "M", "name": "x"}]}).encode()))
    labels = {"loop": (), "add": ("learning", "sampling"), "dot": ("learning",), "shared": ("acting",)}
    labels |= {"caller": ("stepping",)}
    found = profiling.summed(profiling.spans(profiling.read_events(path), labels), 1, path)
    assert found.operations == {"loop": 50, "add": 35, "dot": 20, "caller": 10, "shared": 10}
    assert found.phases == {
        "acting": 0, "stepping": 20, "remembering": 0, "sampling": 35, "learning": 20, "other": 50,
    }  # fmt: skip


def test_names_that_the_compiler_lost_are_inferred():
    text = """
  %first = f32[2] add(%a, %b), metadata={op_name="jit(advance)/while/body/vmap(acting)/add" stack_frame_id=1}
  %lost = f32[2] dot(%first, %b), metadata={stack_frame_id=2}
  ROOT %last = f32[2] max(%lost, %c), metadata={op_name="jit(advance)/vmap(learning)/transpose(jvp(sampling))/max"}
  %plain = f32[2] add(%a, %b), metadata={op_name="jit(advance)/interacting/add"}
"""
    labels = profiling.labels_of(text)
    assert labels["first"] == ("acting",)
    assert labels["last"] == labels["lost"] == ("learning", "sampling")
    assert labels["plain"] == ()


@pytest.mark.thorough  # two profiles
def test_a_larger_batch_lengthens_learning_alone(tmp_path):
    plans = {size: small_plan(batch_size=size, hidden=(64,), capacity=20_000) for size in (8, 16_384)}
    found = {size: profiling.profile(plan, 0.2, tmp_path / str(size)) for size, plan in plans.items()}
    shares = {size: showing.shares(one) for size, one in found.items()}
    assert all(sum(each.values()) == pytest.approx(1.0) for each in shares.values())
    # Two thousand times the rows; whatever else the machine does cannot make up for that.
    times = {
        size: {phase: spent / one.iterations for phase, spent in one.phases.items()} for size, one in found.items()
    }
    assert times[16_384]["learning"] > 5 * times[8]["learning"]
    assert times[16_384]["learning"] - times[8]["learning"] > times[16_384]["acting"]
    assert min(shares[8][phase] for phase in ("acting", "stepping", "sampling", "learning")) > 0
    assert list((tmp_path / "8").rglob("perfetto_trace.json.gz"))
    assert list((tmp_path / "8").rglob("*.xplane.pb"))
    text = showing.profile_text(found[8], 5)
    assert "us/iteration" in text
    assert "stepping" in text


def test_scopes_change_no_number(monkeypatch):
    from contextlib import nullcontext

    from rollax.agents import replaying
    from rollax.envs import protocol as base
    from rollax.programs import loop

    def params():
        plan = small_plan()

        def train(keys, hparams):
            state, _ = plan.program.init(keys, hparams)
            state, _ = plan.program.repeat(state, jnp.int32(20), jnp.int32(99), learn=False)
            return plan.program.repeat(state, jnp.int32(40), jnp.int32(99), learn=True)[0]

        return jax.tree.leaves(jax.jit(train)(plan.keys, plan.hparams).learner.params)

    with_scopes = params()
    for module in (replaying, base, loop):
        monkeypatch.setattr(module, "phase", lambda name: nullcontext())
    for one, other in zip(with_scopes, params(), strict=True):
        np.testing.assert_array_equal(one, other)
