"""What an agent is put together from: the parts that fit each place, by name, those of the user's own included."""

from __future__ import annotations

import dataclasses
from typing import Any

from flax import linen as nn

from rollax import settings as named
from rollax.agents.dqn import MeanLoss
from rollax.agents.q_learner import NoisyActing
from rollax.agents.treasurehunt import QuietActing, ShrinkingEpsilon, SyncedTarget, WeightedLoss
from rollax.errors import ConfigError, did_you_mean
from rollax.memory.epochs import EpochReplay
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Replay
from rollax.memory.sequences import SequenceReplay
from rollax.memory.uniform import UniformReplay
from rollax.networks.hackmatrix import HackMatrixTorso
from rollax.networks.heads import CategoricalHead, Head, ImplicitQuantileHead, QuantileHead, RescaledHead, ScalarHead
from rollax.networks.normalization import NormalizedObservations, NormalizedRewards, RawObservations, RawRewards
from rollax.networks.recurrence import GRU, LSTM, MinGRU, NoRecurrence, Recurrence
from rollax.networks.torsos import MLP, ImpalaTorso, MinAtarTorso, MixedTorso, NatureTorso, Torso
from rollax.networks.weights import FlaxWeights, TorchWeights
from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.rules.schedules import Exploration, LinearEpsilon, PeriodicTarget
from rollax.settings import About

# What may stand in a field that holds a part, by the names that files and the command line use.
PARTS: dict[str, dict[str, Any]] = {
    "torso": {
        "mixed": MixedTorso,
        "mlp": MLP,
        "minatar": MinAtarTorso,
        "nature": NatureTorso,
        "impala": ImpalaTorso,
        "hackmatrix": HackMatrixTorso,
    },
    "recurrence": {"none": NoRecurrence, "gru": GRU, "lstm": LSTM, "min_gru": MinGRU},
    "head": {
        "scalar": ScalarHead,
        "rescaled": RescaledHead,
        "categorical": CategoricalHead,
        "quantile": QuantileHead,
        "implicit_quantile": ImplicitQuantileHead,
    },
    "backup": {"greedy": GreedyBackup, "munchausen": MunchausenBackup},
    "replay": {
        "uniform": UniformReplay,
        "prioritized": PrioritizedReplay,
        "epoch": EpochReplay,
        "sequences": SequenceReplay,
    },
    "exploration": {"linear": LinearEpsilon, "shrinking": ShrinkingEpsilon},
    "target": {"periodic": PeriodicTarget, "synced": SyncedTarget},
    "objective": {"mean": MeanLoss, "weighted": WeightedLoss},
    "acting": {"noisy": NoisyActing, "quiet": QuietActing},
    "weights": {"flax": FlaxWeights, "torch": TorchWeights},
    "observations": {"raw": RawObservations, "normalized": NormalizedObservations},
    "rewards": {"raw": RawRewards, "normalized": NormalizedRewards},
}
# Where a part of the user's own may stand, and what it must be a subclass of: `package.module:Class` is its name.
OWN_PARTS: dict[str, type] = {
    "torso": Torso,
    "recurrence": Recurrence,
    "head": Head,
    "backup": GreedyBackup,
    "replay": Replay,
    "exploration": Exploration,
    "target": PeriodicTarget,
}
# What belongs to the setting that chooses the part of a place.
PART_ABOUT = {
    "torso": About(
        "The network's torso, which turns an observation into features; package.module:Class is one of your own.",
        group="network",
    ),
    "recurrence": About(
        "The recurrent cell between torso and head, which remembers within an episode; package.module:Class is one of "
        "your own.",
        group="network",
    ),
    "head": About(
        "The network's head, which predicts mean returns or distributions; package.module:Class is one of your own.",
        group="network",
    ),
    "backup": About(
        "The policy that Bellman targets assume in the next state; package.module:Class is one of your own.",
        group="targets",
        rare=True,
    ),
    "replay": About(
        "The replay buffer, which draws past transitions; package.module:Class is one of your own.", group="replay"
    ),
    "exploration": About(
        "The schedule of random actions; package.module:Class is one of your own.", group="exploration", rare=True
    ),
    "target": About(
        "How the target network follows the online network; package.module:Class is one of your own.",
        group="targets",
        rare=True,
    ),
    "objective": About("How the losses of a batch are combined into one number.", group="optimizer", rare=True),
    "acting": About("Whether the noise of a noisy network is used for acting.", group="exploration", rare=True),
    "weights": About("How the network's weights are initialised.", group="network", rare=True),
    "observations": About("Whether observations are normalised by their running statistics.", group="network"),
    "rewards": About("Whether rewards are normalised by the running variance of returns.", group="targets"),
}


def part_name(slot: str, part: Any) -> str:
    """The name of a part; one of the user's own is `package.module:Class`."""
    return next((name for name, kind in PARTS[slot].items() if kind is type(part)), named.name_of(type(part)))


def part_of(slot: str, name: str) -> Any:
    """The class of parts that has this name.  Raises ConfigError where nothing of that name fits the slot."""
    if name in PARTS[slot]:
        return PARTS[slot][name]
    named.check_text(slot, name)
    if not named.is_own(name):
        raise ConfigError(f"{slot}={name!r} is no {slot}; {did_you_mean(name, PARTS[slot])}")
    kind = named.find(slot, name)
    fit_for(slot, kind)
    return kind


def fit_for(slot: str, kind: Any) -> None:
    """Raises ConfigError unless parts of this class can stand in the slot."""
    if kind in PARTS[slot].values():
        return
    base = OWN_PARTS.get(slot)
    if base is None or not (isinstance(kind, type) and issubclass(kind, base)):
        own = f", and subclasses of {base.__module__}.{base.__name__}" if base else ""
        raise ConfigError(f"{slot}={kind!r} is no {slot}; known are {', '.join(sorted(PARTS[slot]))}{own}")


def other_part(old: Any, kind: Any) -> Any:
    """A part of that kind, with what was changed in the old one under the same names."""
    if type(old) is kind:
        return old
    usual = type(old)()
    fields = {item.name for item in dataclasses.fields(kind)}
    changed = {name: getattr(old, name) for name in part_fields(old) if getattr(old, name) != getattr(usual, name)}
    needed = [item.name for item in dataclasses.fields(kind) if is_required(item) and item.name not in changed]
    if needed:
        raise ConfigError(f"{named.name_of(kind)} needs a value of {needed[0]}; give that field a default")
    return kind(**{name: value for name, value in changed.items() if name in fields})


def is_required(item: dataclasses.Field) -> bool:
    """Whether a part cannot be made without a value of that field."""
    return item.init and item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def part_fields(tree: Any) -> list[str]:
    """The names of a part's own fields; a flax module's bookkeeping is left out."""
    hidden = {"parent", "name"} if isinstance(tree, nn.Module) else set()
    return [item.name for item in dataclasses.fields(tree) if item.name not in hidden]
