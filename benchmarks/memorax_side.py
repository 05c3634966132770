"""The other side of `memory_peers.py`: memorax's own recurrent PQN and PPO, in a Python that has memorax and no rollax.

It compiles once and says how long that took.  Then each line that it reads makes it train on, and it answers when that
is done.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import flax.linen as nn
import jax
import optax
from memorax.algorithms import PPO, PQN, PPOConfig, PQNConfig  # ty: ignore[import-not-found]
from memorax.environments import environment  # ty: ignore[import-not-found]
from memorax.networks import MLP, RNN, FeatureExtractor, Network, heads  # ty: ignore[import-not-found]


def network(head: Any, hidden: int, units: int) -> Any:
    """A dense layer, a GRU, and what stands on it."""
    return Network(FeatureExtractor(MLP((hidden,))), RNN(nn.GRUCell(units)), head)


def agent_of(name: str, work: dict[str, Any], steps: int) -> Any:
    """Memorax's agent in the chain of that length."""
    env, params = environment.make("gymnax::MemoryChain-bsuite")
    params = params.replace(memory_length=work["memory_length"])
    actions = env.action_space(params).n
    size = {"hidden": work["hidden"], "units": work["units"]}
    common = {
        "name": name,
        "num_envs": work["num_envs"],
        "num_eval_envs": 1,
        "num_steps": work["rollout_length"],
        "gamma": 0.99,
        "num_minibatches": work["minibatches"],
        "update_epochs": work["epochs"],
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    if name == "pqn":
        falls = optax.linear_schedule(1.0, 0.02, steps // 2)
        config = PQNConfig(**common, td_lambda=0.95)
        return PQN(config, env, params, network(heads.DiscreteQNetwork(actions), **size), optimizer, falls)
    config = PPOConfig(
        **common,
        gae_lambda=0.95,
        normalize_advantage=True,
        clip_coef=0.2,
        clip_vloss=False,
        ent_coef=0.02,
        vf_coef=0.5,
    )
    actor, critic = network(heads.Categorical(actions), **size), network(heads.VNetwork(), **size)
    return PPO(config, env, params, actor, critic, optimizer, optimizer)


def main() -> None:
    name, iterations, work = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    steps = iterations * work["num_envs"] * work["rollout_length"]
    agent = agent_of(name, work, steps)
    key, state = agent.init(jax.random.key(0))
    began = time.perf_counter()
    train = type(agent).train.lower(agent, key, state, num_steps=steps).compile()
    print(json.dumps(time.perf_counter() - began), flush=True)
    for _ in sys.stdin:
        key, state, _ = jax.block_until_ready(train(key, state))
        print("done", flush=True)


if __name__ == "__main__":
    main()
