"""A model of training on many hosts: steps per second against their number, under a bandwidth and a latency.

    python benchmarks/scale_model.py [--gigabits 100] [--latency-us 20] [--jitter 0.05] [--picture PATH]

Three ways to spread `pqn` or `double` on Atari, with constants that were measured on one H200 with 16 cores:

- members: a population over hosts; nothing is exchanged but rows of metrics.
- synchronous: one learner's environments over hosts; gradients are averaged in a ring after every gradient step, and
  everyone waits for the slowest.
- asynchronous: actors on all hosts, replay shards on one in sixteen, one learner; frames go to the shards, batches to
  the learner, weights to the actors.

Times of hosts are drawn from a log-normal distribution, so that waiting for the slowest costs what it costs.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

HOSTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096)


class Measured(NamedTuple):
    """Of one host: an H200 with 16 cores; see RESULTS.md."""

    steps_per_second: float = 10_036.0  # pqn with 128 emulators, learning included
    steps_of_rollout: int = 128 * 32
    updates_of_rollout: int = 4 * 32  # epochs x minibatches
    update_seconds: float = 0.6e-3  # of double, one gradient step with a batch of 32
    weight_bytes: float = 4 * 1_687_524.0  # pqn on Breakout in float32
    frame_bytes: float = 84 * 84  # a transition sends one new frame
    batch_bytes: float = 32 * 2 * 4 * 84 * 84  # stacks of a batch and of its successors
    publish_updates: int = 16  # gradient steps between two publications of the weights


class Network(NamedTuple):
    bytes_per_second: float
    latency_seconds: float


def ring_seconds(hosts: int, size: float, network: Network) -> float:
    """An all-reduce in a ring: every host sends nearly twice the whole, in 2 (n - 1) messages."""
    rounds = 2 * (hosts - 1)
    return rounds * (size / hosts / network.bytes_per_second + network.latency_seconds)


def tree_seconds(hosts: int, size: float, network: Network) -> float:
    """An all-reduce up and down a binary tree: fewer messages, each of them whole."""
    return 2 * np.ceil(np.log2(hosts)) * (size / network.bytes_per_second + network.latency_seconds)


def all_reduce_seconds(hosts: int, size: float, network: Network) -> float:
    """The better of the two, as libraries choose."""
    return 0.0 if hosts == 1 else min(ring_seconds(hosts, size, network), tree_seconds(hosts, size, network))


def members(hosts: int, one: Measured) -> float:
    return hosts * one.steps_per_second


def synchronous(hosts: int, one: Measured, network: Network, jitter: float, random: np.random.Generator) -> float:
    """Steps per second of one learner over all hosts, each with the batch that one host had alone."""
    alone = one.steps_of_rollout / one.steps_per_second
    times = alone * np.exp(random.normal(0.0, jitter, (200, hosts)))
    exchange = one.updates_of_rollout * all_reduce_seconds(hosts, one.weight_bytes, network)
    return hosts * one.steps_of_rollout / float(np.mean(times.max(axis=1)) + exchange)


def asynchronous(hosts: int, one: Measured, network: Network) -> tuple[float, float, str]:
    """Steps per second of all actors, transitions learnt from for each, and what limits."""
    shards = max(1, hosts // 16)
    wanted = hosts * one.steps_per_second
    room = shards * network.bytes_per_second / one.frame_bytes
    batches = network.bytes_per_second / one.batch_bytes  # what reaches the learner
    updates = min(1.0 / one.update_seconds, batches)
    sent = updates / one.publish_updates * one.weight_bytes * hosts  # by the learner, were there no tree
    limit = "actors" if wanted <= room else "frames to the shards"
    if sent > network.bytes_per_second:
        limit = f"{limit}; weights need a tree"
    steps = min(wanted, room)
    return steps, updates * 32 / steps, limit


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabits", type=float, default=100.0)
    parser.add_argument("--latency-us", type=float, default=20.0)
    parser.add_argument("--jitter", type=float, default=0.05)
    parser.add_argument("--picture", default="")
    options = parser.parse_args()
    network, one = Network(options.gigabits * 1e9 / 8, options.latency_us * 1e-6), Measured()
    random = np.random.default_rng(0)
    print(f"{options.gigabits:g} Gbit/s, {options.latency_us:g} us, jitter {options.jitter:g}; thousands of steps/s")
    names = ("members", "synchronous", "efficiency", "asynchronous", "replay ratio")
    print(" ".join(["hosts".rjust(6), *(name.rjust(12) for name in names), " limit"]))
    curves = []
    for hosts in HOSTS:
        together = synchronous(hosts, one, network, options.jitter, random)
        free, ratio, limit = asynchronous(hosts, one, network)
        row = (members(hosts, one), together, free)
        curves.append(row)
        share = together / row[0]
        numbers = (
            f"{hosts:6} {row[0] / 1e3:12.0f} {together / 1e3:12.0f} {share:12.2f} {free / 1e3:12.0f} {ratio:12.3f}"
        )
        print(f"{numbers}  {limit}")
    if options.picture:
        draw(np.array(curves), options.picture)


def draw(curves: np.ndarray, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    styles = {"asynchronous": "-", "members (as many as asynchronous steps)": ":", "synchronous": "-"}
    for (name, style), curve in zip(styles.items(), curves.T[[2, 0, 1]], strict=True):
        axes.loglog(HOSTS, curve, style, marker="o", label=name)
    axes.set(xlabel="hosts, each an H200 with 16 cores", ylabel="environment steps per second, Atari")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
