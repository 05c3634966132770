"""What must hold on several devices, measured in a process of its own that has four: prints one JSON object."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import rollax
from rollax.agents.dqn import DQN, DQNConfig, DQNHParams
from rollax.experiment.experiment import make_experiment
from rollax.memory.replay import Sample
from rollax.memory.ring import Batch
from rollax.programs.machine import use_compile_cache
from rollax.programs.mesh import Grid, mesh_of
from rollax.programs.plan import make_plan, spread_over
from rollax.runs.checkpoint import flatten, params_sha256
from rollax.runs.folder import RunFolder
from rollax.tracing import DATA
from rollax.types import Discrete, EnvSpec, Observation

SMALL: dict[str, Any] = {"env": "CartPole-v1", "preset": "none", "eval_episodes": 4, "steps": 2_048}
AGENTS: dict[str, dict[str, Any]] = {
    "double": {"capacity": 512, "warm_up_steps": 256, "batch_size": 32},
    "prioritized": {"capacity": 512, "warm_up_steps": 256, "batch_size": 32},
    "ppo": {"rollout_length": 16, "observations": "normalized", "rewards": "normalized", "eval_episodes": 5},
}


def experiment(agent: str, **values):
    return make_experiment(agent, **(SMALL | AGENTS[agent] | values))


def advanced(plan, iterations: int):
    """The state after so many iterations, those of the warm-up first."""
    running = plan.program.compile(plan.keys, plan.hparams)
    state, _ = running.begin(plan.keys, plan.hparams)
    return running.advance_to(state, plan.schedule.warm_up + iterations).state


def distance(left, right) -> float:
    left, right = flatten(left), flatten(right)
    return max(float(np.max(np.abs(left[name] - right[name]), initial=0.0)) for name in left)


def one_shard_is_no_mesh(agent: str) -> float:
    """How far the weights of a mesh of one device are from those without a mesh."""
    plan = make_plan(experiment(agent, devices=1, seeds=2))
    spread = spread_over(mesh_of(Grid(1, 1)), plan.program, plan.program, plan.keys, plan.hparams)
    meshed = replace(plan, program=spread)
    return distance(advanced(plan, 20).learner.params, advanced(meshed, 20).learner.params)


def replicas_differ(agent: str, **values) -> int:
    """Leaves of the learner that are not the same bit for bit on all devices that hold them, after some learning."""
    plan = make_plan(experiment(agent, **values))
    assert plan.grid.data > 1, plan.grid
    state = advanced(plan, 20)
    different = 0
    for leaf in jax.tree.leaves((state.learner, state.window, state.health)):
        copies: dict = {}
        for shard in leaf.addressable_shards:
            copies.setdefault(str(shard.index), []).append(np.asarray(shard.data).tobytes())
        different += any(len(set(held)) > 1 for held in copies.values())
    return different


def shards_see_the_same(agent: str) -> bool:
    """Whether two shards of one member show the same observations: their keys would then be the same."""
    shown = np.asarray(advanced(make_plan(experiment(agent, devices=2)), 3).envs.obs.features)[0]
    first, second = np.split(shown, 2)
    return bool((first == second).any())


def the_update_alone() -> float:
    """How far weights are apart after 100 gradient steps, with the same batches whole and halved on two devices."""
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), Discrete(2), 8, 1)
    rng = np.random.default_rng(0)

    def features():
        return Observation(jnp.asarray(rng.normal(size=(100, 32, 4)), jnp.float32))

    batches = Batch(
        features(),
        jnp.asarray(rng.integers(0, 2, (100, 32)), jnp.int32),
        jnp.asarray(rng.normal(size=(100, 32)), jnp.float32),
        jnp.full((100, 32), 0.99),
        features(),
    )
    samples = Sample(batches, jnp.asarray(rng.uniform(0.5, 1, (100, 32)), jnp.float32), ())

    def learn(shards: int, samples: Sample):
        agent = DQN(DQNConfig(double=True, batch_size=32), spec._replace(shards=shards))
        learner, _ = agent.init(jax.random.key(0), DQNHParams(learning_rate=1e-2))

        def step(learner, sample):
            return agent.improve(learner, sample, jax.random.key(1))[0], None

        return jax.lax.scan(step, learner, samples)[0].params

    whole = jax.jit(lambda samples: learn(1, samples))(samples)
    split = jax.shard_map(
        lambda samples: learn(2, samples),
        mesh=mesh_of(Grid(1, 2)),
        in_specs=PartitionSpec(None, DATA),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    return distance(whole, jax.jit(split)(samples))


def devices_may_change(folder: Path) -> dict:
    """A run that is saved on one device, goes on with two and ends with one."""
    rollax.train(experiment("double", devices=1, steps=1_024), folder, quiet=True)
    one = dict(flatten(restored(folder).learner.params))
    rollax.resume(folder, 1_536, devices=2, quiet=True)
    split = restored(folder).memory.observations.features.shape
    rollax.resume(folder, 2_048, devices=1, quiet=True)
    two = dict(flatten(restored(folder).learner.params))
    summary = rollax.resume(folder, quiet=True).summary
    moved = any((one[name] != two[name]).any() for name in one)
    return {"moved": moved, "memory": split, "status": summary["status"], "steps": summary["total_steps"]}


def restored(folder: Path):
    from rollax.experiment.experiment import from_json
    from rollax.runs import checkpoint

    plan = make_plan(from_json(RunFolder(folder).read_config()))
    path, _ = RunFolder(folder).newest_good_checkpoint()
    assert path is not None
    return checkpoint.restore(path, dict(zip(("train", "best"), plan.shapes(), strict=True)))["train"]


def main(folder: Path) -> None:
    use_compile_cache()
    repeated = [params_sha256(advanced(make_plan(experiment("double", devices=2)), 5).learner.params) for _ in range(2)]
    print(
        json.dumps(
            {
                "one_shard": one_shard_is_no_mesh("double"),
                "replicas": {
                    "prioritized on 2 x 2": replicas_differ("prioritized", devices=4, seeds=2),
                    "ppo on 2": replicas_differ("ppo", devices=2),
                },
                "same": shards_see_the_same("double"),
                "repeats": len(set(repeated)) == 1,
                "update": the_update_alone(),
                "devices": devices_may_change(folder / "run"),
                "automatic": str(make_plan(experiment("double", seeds=3)).grid),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
