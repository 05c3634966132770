"""A run that did not do what was asked does not end with 0, and never keeps weights that are not finite."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fault_tools import Answer, ask, ask_process, hashes_of, judge, summary_of
from process_tools import HANGING, launch, output_of, wait_for
from safetensors.numpy import load_file
from training_tools import make_program, seed_keys, small, stack_hparams

from rollax.envs import registry
from rollax.envs.host import Stepper
from rollax.programs import evaluate as evaluation
from rollax.programs.evaluate import Best, Evaluation, blank, in_parts, keep_best
from rollax.programs.jit import JitProgram, JitRunning
from rollax.programs.streams import evaluation_keys
from rollax.runs import advancing, signals
from rollax.runs import run as runs
from rollax.runs.folder import RunFolder

SMALL = ["--preset", "none", "--num-envs", "4", "--hidden", "8", "--log-steps", "80", "--eval-steps", "80"]
REPLAY = ["--capacity", "800", "--batch-size", "8", "--warm-up-steps", "40"]
SHORT = ["--eval-episodes", "2", "--max-episode-steps", "8", "--quiet"]
ACTORS = ["apex", *SMALL, *REPLAY, *SHORT, "--rollout-length", "4", "--actors", "2", "--steps", "100000"]
HUNT = [
    *("irainbow", "--env", "TreasureHunt-v0", "--preset", "none", "--agents", "2", "--height", "5", "--width", "5"),
    *("--max-turns", "8", "--num-envs", "2", "--rollout-length", "8", "--hidden", "8", "--batch-size", "8"),
    *("--capacity", "256", "--spawn-prob", "0.9", "--learning-rate", "1e30", "--steps", "4000", "--eval-episodes", "2"),
    *("--warm-up-steps", "128", "--quiet"),
]


def stored(run: Path) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint."""
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return {name: array for path in sorted(newest.glob("*.safetensors")) for name, array in load_file(path).items()}


def stays_finite(run: Path) -> None:
    """Weights and best weights are finite, and the member is named with its step and tensor."""
    arrays = stored(run)
    kinds = ("train/learner/params", "train/learner/target_params", "best/params")
    weights = {name: array for name, array in arrays.items() if name.startswith(kinds)}
    assert {"train", "best"} == {name.split("/")[0] for name in weights}, sorted(arrays)
    for name, array in weights.items():
        assert np.isfinite(array).all(), name
    member = summary_of(run)["members"][0]
    assert summary_of(run)["status"] == member["status"] == "failed"
    assert member["failure"]["step"] > 0


WAYS = {
    "replay": (["double", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_rewards"], "rewards"),
    "observations": (["double", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_observations"], "observations"),
    "prioritized": (["prioritized", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_rewards"], "rewards"),
    "pqn": (["pqn", *SMALL, *SHORT, "--rollout-length", "4", "--env", "probes:nan_rewards"], "rewards"),
    "ppo": (["ppo", *SMALL, *SHORT, "--rollout-length", "4", "--env", "probes:nan_rewards"], "rewards"),
    "host": (["double", *SMALL, *REPLAY, *SHORT, "--env", "gymnasium:sick_envs:SickReward-v0"], "rewards"),
    "host observations": (
        ["double", *SMALL, *REPLAY, *SHORT, "--env", "gymnasium:sick_envs:SickObservation-v0"],
        "observations",
    ),
    "host without overlap": (
        ["pqn", *SMALL, *SHORT, "--env", "gymnasium:sick_envs:SickReward-v0", "--no-overlap"],
        "rewards",
    ),
    "players": (HUNT, "not finite"),
}
ALWAYS = ("replay", "host")


@pytest.mark.parametrize("way", [w if w in ALWAYS else pytest.param(w, marks=pytest.mark.thorough) for w in WAYS])
def test_a_number_that_is_not_finite_ends_every_way_to_run_with_4(request, tmp_path, way):
    flags, told = WAYS[way]
    answer = ask("train", *flags, *([] if "--steps" in flags else ["--steps", "800"]), "--run-dir", tmp_path / "run")
    judge(request, answer, 4, "member 0 (seed 0)", "step", told)
    stays_finite(tmp_path / "run")


def actors(tmp_path: Path, env: str) -> Answer:
    return ask_process("train", *ACTORS, "--env", env, "--run-dir", tmp_path / "run")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("probes:nan_rewards", "rewards"),
        pytest.param("probes:nan_observations", "observations", marks=pytest.mark.thorough),
    ],
)
def test_actors_are_examined_as_everyone(request, tmp_path, env, told):
    """What an actor met reaches the learner, which stops with its last finite weights."""
    judge(request, actors(tmp_path, env), 4, "member 0 (seed 0)", "step", told)
    stays_finite(tmp_path / "run")


def test_a_score_that_is_not_finite_is_no_success(request, tmp_path):
    """The training is well, as its episodes are over before: only the long episodes of evaluations break."""
    flags = [
        "double",
        *SMALL,
        *REPLAY,
        "--env",
        "probes:nan_scores",
        "--eval-episodes",
        "8",
        "--max-episode-steps",
        "200",
    ]
    answer = ask("train", *flags, "--steps", "160", "--quiet", "--run-dir", tmp_path / "run")
    judge(request, answer, 4, "returns of the evaluation not finite")
    stays_finite(tmp_path / "run")


class Learner(NamedTuple):
    params: Any


@pytest.mark.parametrize("score", [1.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [1.0, np.nan, np.inf])
def test_the_best_weights_are_finite_whatever_comes(score, weight):
    """Member 0 is always well; member 1 has this score and this weight."""
    learner = Learner({"kernel": jnp.array([[2.0, 2.0], [2.0, weight]]), "count": jnp.array([1, 1])})
    before = Best(jnp.full(2, -jnp.inf), jax.tree.map(jnp.zeros_like, learner.params))
    returns = jnp.array([[0.0, 4.0], [score, 1.0]])
    after = jax.jit(keep_best)(before, learner, Evaluation(returns, returns, returns))
    well = bool(np.isfinite(score) and np.isfinite(weight))
    np.testing.assert_array_equal(after.params["kernel"], [[2.0, 2.0], [2.0, weight] if well else [0.0, 0.0]])
    np.testing.assert_array_equal(after.score, [2.0, (score + 1) / 2 if well else -np.inf])


# -- signals


DOUBLE = ["double", *SMALL, *REPLAY, "--env", "CartPole-v1", "--eval-episodes", "3", "--steps", "400", "--quiet"]


def learnt(run: Path) -> tuple[Any, ...]:
    """What must be equal, whatever came between: weights, best weights, evaluations."""
    arrays = stored(run)
    best = {name: array.tolist() for name, array in arrays.items() if name.startswith("best/")}
    return hashes_of(run), best, (run / "evaluations.csv").read_text()


@pytest.fixture(scope="module")
def calm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no signal disturbs."""
    folder = tmp_path_factory.mktemp("calm") / "run"
    assert ask("train", *DOUBLE, "--run-dir", folder).code == 0
    return folder


def once(action: Callable[[], None], function: Callable, number: int) -> Callable:
    """The function, with the action before its call of that number, counted from 1."""
    calls = iter(range(1, 10**6))

    def disturbed(*arguments: Any, **named: Any) -> Any:
        if next(calls) == number:
            action()
        return function(*arguments, **named)

    return disturbed


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


MOMENTS = {
    "compiling": (JitProgram, "uncompiled", 1),
    "waiting for the compiler": (Future, "result", 2),
    "beginning": (runs, "begin", 1),
    "warm-up": (JitRunning, "advance_to", 1),
    "learning": (JitRunning, "advance_to", 4),
    "first evaluation": (signals.Ear, "together", 1),
    "a later evaluation": (JitRunning, "evaluate", 3),
    "last evaluation": (JitRunning, "evaluate", 5),
    "saving": (RunFolder, "write_checkpoint", 2),
}
FEW = ("compiling", "first evaluation", "last evaluation")


@pytest.mark.parametrize("moment", [m if m in FEW else pytest.param(m, marks=pytest.mark.thorough) for m in MOMENTS])
def test_a_signal_is_heard_whatever_is_done_and_changes_nothing(request, tmp_path, monkeypatch, calm_run, moment):
    """What a signal interrupts is done again after the resume; nothing half-done is logged, and every bit is equal."""
    run, (place, name, number) = tmp_path / "run", MOMENTS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, once(terminate, getattr(place, name), number))
        answer = ask("train", *DOUBLE, "--checkpoint-seconds", "0", "--run-dir", run)
    judge(request, answer, 75, "SIGTERM")
    assert summary_of(run)["status"] == "interrupted"
    assert len((run / "evaluations.csv").read_text()) < len((calm_run / "evaluations.csv").read_text())
    assert ask("resume", run, "--quiet").code == 0
    assert learnt(run) == learnt(calm_run)


def test_an_environment_that_hangs_does_not_keep_a_signal_from_being_heard(request, tmp_path, monkeypatch):
    """After some seconds of grace; what the last checkpoint holds is kept."""

    def hang(*_: Any) -> None:
        terminate()
        threading.Event().wait(HANGING)

    monkeypatch.setattr(advancing, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(Stepper, "result", once(lambda: hang(), Stepper.result, 60))
    flags = ["double", *SMALL, *REPLAY, *SHORT, "--env", "gymnasium:CartPole-v1", "--steps", "4000"]
    answer = ask("train", *flags, "--checkpoint-seconds", "0", "--run-dir", tmp_path / "run")
    judge(request, answer, 75, "SIGTERM")
    assert summary_of(tmp_path / "run")["status"] == "interrupted"
    assert [path for path in (tmp_path / "run" / "checkpoints").iterdir() if path.name.isdigit()]


def test_a_program_that_never_returns_does_not_keep_a_signal_from_being_heard(tmp_path):
    """A compiled endless loop keeps the main thread: another one hears the signal, and ends the process."""
    run, stuck = tmp_path / "run", tmp_path / "stuck"
    flags = ["--preset", "none", "--num-envs", "4", "--hidden", "8", *REPLAY, "--max-episode-steps", "50"]
    flags += ["--env", "faulty_jax:sticking", "--steps", "100000", "--checkpoint-seconds", "0"]
    flags += ["--chunk-seconds", "0.05"]
    process = launch("train", "double", *flags, "--run-dir", run, STUCK=str(stuck))
    wait_for(stuck.exists, process)
    process.send_signal(signal.SIGTERM)
    _, err = output_of(process)
    assert process.returncode == 75, err
    assert "rollax: SIGTERM: a compiled program does not return; leaving it, with what is saved up to step " in err
    assert "Traceback" not in err
    assert summary_of(run)["status"] == "interrupted"
    assert [path for path in (run / "checkpoints").iterdir() if path.name.isdigit()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_finalizer_swallows_is_heard_all_the_same():
    """Python prints what is raised in one, and goes on; JAX has many."""

    class Finalized:
        def __del__(self) -> None:
            terminate()

    def swallow_and_wait(ear: signals.Ear) -> None:
        with ear.at_once():
            Finalized()
            threading.Event().wait(HANGING)

    with signals.signals() as ear, pytest.raises(signals.Heard):
        swallow_and_wait(ear)
    assert ear.first == signal.SIGTERM


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_process_does_not_wait_for_its_compiler(tmp_path, number, code):
    """Shown by what it has not done: it never says that it has compiled."""
    run = tmp_path / "run"
    flags = ["--preset", "none", "--num-envs", "8", "--rollout-length", "8", "--no-compile-cache", "--run-dir", run]
    process = launch("train", "ppo", "--env", "HackMatrix-v0", *flags)
    wait_for((run / "summary.json").exists, process)
    process.send_signal(number)
    out, err = output_of(process)
    assert process.returncode == code, err
    assert "Compiled" not in out
    assert f"rollax: {signal.Signals(number).name}" in err
    assert summary_of(run)["status"] == "interrupted"


@pytest.mark.parametrize("parts", [1, 3, 7, 1_000])
def test_an_evaluation_in_parts_is_the_whole_one_to_the_bit(monkeypatch, parts):
    """However its steps are cut."""
    program = make_program(registry.make_inside("CartPole-v1"), small("dqn"))
    keys = seed_keys(0, 1)
    state, best = program.init(keys, stack_hparams(2))
    evaluator = program.evaluator
    whole = jax.jit(evaluator)(state.learner, evaluation_keys(keys, jnp.int32(5)))
    monkeypatch.setattr(evaluation, "FIRST_PART", parts)
    monkeypatch.setattr(evaluation, "GROWTH", 1)
    part = jax.jit(program.evaluate)
    begun = blank(jax.eval_shape(evaluator.begin, keys))
    stops: list[int] = []

    def counted(playing: Any, first: Any, stop: Any) -> Any:
        stops.append(int(stop))
        return part(state.learner, keys, jnp.int32(5), best, playing, first, stop)

    found, after = in_parts(counted, begun, evaluator.max_episode_steps, lambda: None)
    assert stops[:2] == [min(parts, 50), min(2 * parts, 50)][: len(stops)]
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)
    expected = keep_best(best, state.learner, whole)
    for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
