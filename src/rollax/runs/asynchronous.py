"""Runs an experiment asynchronously: a fleet of Ray's processes collects, and this one learns.

Nobody waits for anybody, so a run does not repeat, and what is resumed is the learner alone: the replay fills anew.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.dqn import DQN, DQNConfig
from rollax.envs.host import HostTask
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment, from_json
from rollax.experiment.tree import to_json
from rollax.memory.replay import PrioritizedReplay, Sample
from rollax.programs.actors import Actor, Board, Shard, Totals, remote
from rollax.programs.evaluate import Best, keep_best
from rollax.programs.loop import Health, TrainState
from rollax.programs.plan import Plan, make_plan
from rollax.programs.program import evaluation_keys
from rollax.runs import checkpoint
from rollax.runs import tables as records
from rollax.runs.console import Console, warn
from rollax.runs.folder import EVALUATION_COLUMNS, METRIC_COLUMNS, Lock, RunFolder, Table
from rollax.runs.loggers import Loggers
from rollax.runs.loggers import problems as loggers_missing
from rollax.runs.result import Result
from rollax.runs.run import (
    draw_curve,
    first_signal,
    outcome_of,
    resources,
    save,
    signals,
    tell_concerns,
    unused_folder,
    use_compile_cache,
    write_summary,
)
from rollax.runs.session import Session, Times, show_progress, tell_end

TOGETHER = 16  # batches that are asked for, and learnt from, at once
AHEAD = 2  # requests that are under way
OWN_COLUMNS = ("updates", "updates_per_second", "replay_ratio", "policy_lag", "lost")


def check(experiment: Experiment) -> Plan:
    """The learner's own plan.  Raises ConfigError with all that does not go with actors."""
    loop, choices = experiment.loop, experiment.choices
    problems = []
    if not isinstance(getattr(choices, "replay", None), PrioritizedReplay):
        problems.append("actors=... want priorities; try `rollax train apex`, or --replay prioritized")
    if experiment.seeds != 1:
        problems.append(f"seeds={experiment.seeds}: actors collect for one learner; leave --seeds out")
    if loop.num_envs % loop.actors:
        near = max(1, loop.num_envs // loop.actors) * loop.actors
        problems.append(f"num_envs={loop.num_envs} cannot be shared out to {loop.actors} actors; try num_envs={near}")
    if loop.replay_shards > loop.actors:
        problems.append(f"replay_shards={loop.replay_shards} are more than the actors; try replay_shards={loop.actors}")
    problems += loggers_missing(experiment.record.log_to)
    if problems:
        raise ConfigError(problems)
    plan = make_plan(replace(experiment, loop=replace(loop, actors=0, devices=1)))
    if isinstance(plan.program.loop.task, HostTask) or not isinstance(plan.program.loop.agent, DQN):
        raise ConfigError(f"actors=... cannot collect in {experiment.env}; they are for single-player ones in JAX")
    return plan._replace(experiment=replace(plan.experiment, loop=loop))


def train(experiment: Experiment, run_dir: str | Path | None, *, quiet: bool, compile_cache: bool) -> Result:
    """Runs an experiment with actors in a new folder."""
    if compile_cache:
        use_compile_cache()
    plan = check(experiment)
    folder = RunFolder(run_dir or unused_folder(f"{experiment.agent}_{experiment.env}"))
    folder.make()
    with Lock(folder):
        folder.create(to_json(experiment))
        return drive(plan, folder, Console(quiet), None, {})


def resume(run_dir: str | Path, *, quiet: bool, compile_cache: bool) -> Result:
    """Goes on with what was learnt."""
    folder = RunFolder(run_dir)
    with Lock(folder):
        plan = check(from_json(folder.read_config()))
        if compile_cache:
            use_compile_cache()
        if folder.outcome():
            raise ConfigError(f"{folder.path} has ended; a run with actors is not extended")
        return drive(plan, folder, Console(quiet), *folder.newest_good_checkpoint(set_aside=True))


def drive(plan: Plan, folder: RunFolder, console: Console, path: Path | None, meta: dict[str, Any]) -> Result:
    step = meta.get("step", 0)
    with resources(folder), console.open():
        columns = (*METRIC_COLUMNS, *plan.program.loop.agent.metric_names, *OWN_COLUMNS)
        total = plan.total * plan.steps_per_iteration
        session = Session(
            plan=plan,
            folder=folder,
            console=console,
            metrics=Table(folder.metrics, columns, step, 1, total),
            evaluations=Table(folder.evaluations, EVALUATION_COLUMNS, step, 1, total),
            loggers=Loggers(plan.experiment.record.log_to, folder, to_json(plan.experiment), step),
            times=Times(**meta.get("times", {})),
            saved_step=step,
        )
        loop = plan.experiment.loop
        console.say(f"{plan.experiment.agent} on {plan.experiment.env}, {total:,} steps, on {records.device_name()}")
        console.say(f"{loop.actors} actors collect without waiting, {loop.replay_shards} shards remember")
        console.say(
            f"Run folder: {folder.path}" + (f" (resumed from {path.name}; the replay is empty)" if path else "")
        )
        write_summary(session, "running", step, None)
        learning = Learning(session, path)
        try:
            # Ray listens to signals itself from its start on; what listens last is heard.
            with closing(Fleet(plan.experiment)) as fleet, signals() as caught:
                heard = learning.run(fleet, caught)
        except BaseException:
            write_summary(session, "interrupted", session.saved_step, None)
            session.loggers.close("interrupted")
            raise
        learning.evaluate()
        learning.save()
        status, code = outcome_of(session, learning.steps >= total, heard)
        summary = write_summary(session, status, learning.steps, learning.state().learner.params)
        session.loggers.close(status)
        tell_end(session, status, summary)
        if status != "interrupted":
            draw_curve(session)
        return Result(folder.path, code)


class Fleet:
    """All processes but the learner's."""

    def __init__(self, experiment: Experiment):
        try:
            import ray
        except ModuleNotFoundError:
            raise ConfigError("actors need Ray: pip install 'rollax[ray]'") from None
        self.ray, loop, choices = ray, experiment.loop, cast(DQNConfig, experiment.choices)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="os.fork")  # Ray's processes are programs of their own at once
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        own = {"runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}}}
        capacity = choices.replay.capacity // loop.replay_shards
        exponent = float(experiment.hparams.priority_exponent)
        self.board = remote(Board, **own).remote()
        self.shards = [
            remote(Shard, **own).remote(capacity, exponent, experiment.seed + number)
            for number in range(loop.replay_shards)
        ]
        config = to_json(experiment)
        self.actors = [
            (remote(Actor, **own).remote(config, number), self.shards[number % loop.replay_shards])
            for number in range(loop.actors)
        ]
        self.running = [actor.run.remote(self.board, shard) for actor, shard in self.actors]
        self.lost = 0
        self.published: Any = None

    def publish(self, version: int, params: Any) -> None:
        """Puts weights on the board, once the last have arrived there; counts the actors that had to begin again."""
        if self.published is not None:
            again = max(0, self.ray.get(self.published) - len(self.actors))
            if again > self.lost:
                warn(f"an actor was lost, {again} so far; another has taken its place")
            self.lost = max(self.lost, again)
        self.published = self.board.publish.remote(version, jax.tree.map(np.asarray, params))

    def look_after(self) -> None:
        """Raises what an actor could not cope with: one that is lost comes back, one that fails does not."""
        ended, _ = self.ray.wait(self.running, timeout=0)
        self.ray.get(ended)

    def close(self) -> None:
        self.ray.shutdown()


class Seen(NamedTuple):
    """What had been seen, at a row of the log."""

    time: float
    steps: int
    updates: int
    episodes: np.ndarray


class Learning:
    """The learner, and the books that it keeps."""

    def __init__(self, session: Session, path: Path | None):
        self.session, self.plan = session, session.plan
        self.agent: Any = self.plan.program.loop.agent
        hparams = jax.tree.map(lambda leaf: leaf[0], self.plan.hparams)
        self.learner = jax.jit(lambda key: self.agent.init(key, hparams)[0])(self.plan.keys[0])
        self.best = Best(jnp.full((1,), -jnp.inf), in_population(self.learner.params))
        self.updates, self.before = 0, session.saved_step
        self.totals: dict[int, Totals] = {}  # of each shard, since it began
        self.ended = np.zeros(3)  # episodes that lost shards had seen
        if path is not None:
            restored = checkpoint.restore(path, {"train": self.state(), "best": self.best})
            self.learner = jax.tree.map(lambda leaf: leaf[0], restored["train"].learner)
            self.best, self.updates = restored["best"], int(restored["train"].iteration)
        self.learn = jax.jit(self.lessons)
        self.judge = jax.jit(self.judged)
        self.losses: list[float] = []

    @property
    def steps(self) -> int:
        return self.before + sum(total.steps for total in self.totals.values())

    def lessons(self, learner: Any, samples: Sample, key: Any) -> tuple[Any, Any, Any]:
        """Gradient steps with samples `[count, batch, ...]`: the learner, priorities and losses of each."""

        def one(learner: Any, own: tuple[Sample, Any]) -> tuple[Any, tuple]:
            learner, priority, metrics = self.agent.improve(learner, *own)
            return learner, (priority, metrics["loss"])

        learner, (priority, loss) = jax.lax.scan(one, learner, (samples, jax.random.split(key, TOGETHER)))
        return learner, priority, loss

    def judged(self, learner: Any, iteration: Any, best: Best) -> tuple[Any, Best]:
        result = self.plan.program.evaluator(learner, evaluation_keys(self.plan.keys, iteration))
        return result, keep_best(best, learner, result)

    def run(self, fleet: Fleet, caught: list[int]) -> int:
        """Until all steps have been taken, or a signal is heard."""
        experiment, hp = self.plan.experiment, self.plan.experiment.hparams
        least = max(experiment.loop.warm_up_steps // len(fleet.shards), self.agent.config.batch_size)
        total = self.plan.total * self.plan.steps_per_iteration
        fleet.publish(self.updates, self.learner.params)

        def request(shard: int) -> tuple[int, Any]:
            share = min(1.0, self.steps / hp.importance_steps)
            exponent = hp.importance_start + (hp.importance_end - hp.importance_start) * share
            drawn = fleet.shards[shard].draw.remote(least, TOGETHER, self.agent.config.batch_size, exponent)
            return shard, drawn

        pending = deque(request(number % len(fleet.shards)) for number in range(AHEAD))
        seen = self.now()
        saved_at = time.monotonic()
        while self.steps < total and not caught:
            fleet.look_after()
            shard, future = pending.popleft()
            pending.append(request(shard))
            drawn, totals = fleet.ray.get(future)
            self.count(shard, totals)
            if drawn is None:
                time.sleep(0.02)
                continue
            began = time.perf_counter()
            key = jax.random.fold_in(self.plan.keys[0], self.updates)
            samples = Sample(jax.tree.map(jnp.asarray, drawn.batch), jnp.asarray(drawn.weight), ())
            self.learner, priority, loss = self.learn(self.learner, samples, key)
            self.losses += np.asarray(loss).tolist()
            self.updates += TOGETHER
            self.session.times.train_seconds += time.perf_counter() - began
            fleet.shards[shard].reprioritize.remote(drawn.handle, np.asarray(priority))
            fleet.publish(self.updates, self.learner.params)
            if self.steps // experiment.record.log_steps > seen.steps // experiment.record.log_steps:
                self.note(fleet, seen)
                if self.steps // experiment.record.eval_steps > seen.steps // experiment.record.eval_steps:
                    self.evaluate()
                seen = self.now()
            if time.monotonic() - saved_at > experiment.record.checkpoint_seconds:
                self.save()
                saved_at = time.monotonic()
        self.note(fleet, seen)
        return first_signal(caught)

    def count(self, shard: int, totals: Totals) -> None:
        """Takes down what a shard has seen; one that was lost has begun again from nothing."""
        last = self.totals.get(shard, totals)
        if totals.steps < last.steps:
            warn("a shard of the replay was lost; it fills anew")
            self.before, self.ended = self.before + last.steps, self.ended + np.array(last.episodes)
        self.totals[shard] = totals

    def now(self) -> Seen:
        episodes = self.ended + np.sum([total.episodes for total in self.totals.values()] or [np.zeros(3)], axis=0)
        return Seen(time.perf_counter(), self.steps, self.updates, episodes)

    def note(self, fleet: Fleet, before: Seen) -> None:
        """A row of metrics: what happened since, and how far the actors are behind."""
        now, batch = self.now(), self.agent.config.batch_size
        seconds, steps = now.time - before.time, now.steps - before.steps
        count, returns, lengths = now.episodes - before.episodes
        updates = now.updates - before.updates
        newest = max((total.version for total in self.totals.values()), default=0)
        row = {
            "step": now.steps,
            "member": 0,
            "seed": self.plan.members[0].seed,
            "wall_seconds": round(self.session.wall(), 3),
            "steps_per_second": round(steps / seconds),
            "episodes": int(count),
            "episode_return_mean": returns / count if count else None,
            "episode_length_mean": lengths / count if count else None,
            "loss": float(np.mean(self.losses)) if self.losses else None,
            "epsilon": 0.0,
            "updates": now.updates,
            "updates_per_second": round(updates / seconds),
            "replay_ratio": round(updates * batch / steps, 3) if steps else None,
            "policy_lag": now.updates - newest,
            "lost": fleet.lost,
        }
        self.losses.clear()
        self.session.add_metrics([row])
        tell_concerns(self.session, [row])
        self.session.metrics.write_if_due()
        pace = seconds / max(steps, 1) * self.plan.steps_per_iteration
        show_progress(self.session, now.steps // self.plan.steps_per_iteration, pace)

    def state(self) -> TrainState:
        """What is kept: the learner, as a population of one."""
        window, health = jnp.zeros((1, 0)), Health(jnp.zeros(1, jnp.int32), jnp.full(1, -1, jnp.int32))
        return TrainState(jnp.int32(self.updates), self.plan.keys, in_population(self.learner), (), (), window, health)

    def evaluate(self) -> None:
        result, self.best = self.judge(in_population(self.learner), jnp.int32(self.updates), self.best)
        self.session.add_evaluations(records.evaluation_rows(self.plan, result, self.steps, {}))

    def save(self) -> None:
        save(self.session, self.state(), self.best, self.steps)


def in_population(tree: Any) -> Any:
    """A member's leaves as those of a population of one."""
    return jax.tree.map(lambda leaf: leaf[None], tree)
