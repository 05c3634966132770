"""Where the arrays of a run are when it has several devices: members first, then environments, over a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rollax.agents.players import SHARED, spread
from rollax.tracing import DATA, MEMBERS

EVERYWHERE = PartitionSpec()  # every device has the whole
BY_MEMBER = PartitionSpec(MEMBERS)


class Grid(NamedTuple):
    """How many devices the members are spread over, and how many the environments of each."""

    members: int = 1
    data: int = 1

    @property
    def size(self) -> int:
        return self.members * self.data

    def __str__(self) -> str:
        return f"{self.size} devices: members on {self.members}, the environments of each member on {self.data}"


def grid_of(count: int, members: int, fits: Callable[[int], bool]) -> Grid | None:
    """So many devices, with as many for members as divide them; `fits` tells into how many shares a member goes."""
    for across in range(count, 0, -1):
        if count % across == 0 and members % across == 0 and fits(count // across):
            return Grid(across, count // across)
    return None


def largest_grid(most: int, unit: int, members: int, fits: Callable[[int], bool]) -> Grid | None:
    """The most devices that divide the work, a multiple of `unit` of them."""
    counts = range(most // unit * unit, 0, -unit)
    return next((grid for count in counts if (grid := grid_of(count, members, fits))), None)


def mesh_of(grid: Grid) -> Mesh:
    """The mesh; every process has the same number of devices in it."""
    each = grid.size // jax.process_count()
    chosen = [device for index in range(jax.process_count()) for device in _of_process(index)[:each]]
    devices = np.array(chosen).reshape(grid)
    return Mesh(devices, (MEMBERS, DATA), axis_types=(AxisType.Auto,) * 2)


def _of_process(index: int) -> list[Any]:
    return [device for device in jax.devices() if device.process_index == index]


class Spread(NamedTuple):
    """A run's state over a mesh: what it is as a whole, and which axes of it are split."""

    mesh: Mesh
    shapes: tuple[Any, Any]  # of the state and of the best weights, as if there were one device
    specs: tuple[Any, Any]  # trees of PartitionSpec

    def sharding(self, specs: Any) -> Any:
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
        )

    def share_bytes(self, shapes: Any) -> int:
        """Bytes of the state on one device."""

        def size(leaf: Any, sharding: NamedSharding) -> int:
            return math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize

        return sum(jax.tree.leaves(jax.tree.map(size, shapes, self.sharding(self.specs))))

    def place(self, tree: Any, specs: Any) -> Any:
        """A tree that every process has whole, as arrays of the mesh; `specs` may be one for all of it."""
        if isinstance(specs, PartitionSpec):
            one = NamedSharding(self.mesh, specs)
            return jax.tree.map(lambda leaf: _placed(leaf, one), tree)
        return jax.tree.map(_placed, tree, self.sharding(specs))


def split_axes(whole: Any, share: Any, axes: Any) -> Any:
    """A PartitionSpec for each leaf, from its shape as a whole and in one share.

    An axis that is shorter in a share than as a whole is split over `DATA`; `axes` is 0 for leaves that lead with the
    members, None for others.
    """

    def spec(whole: Any, share: Any, axis: int) -> PartitionSpec:
        names = [DATA if mine < all_ else None for mine, all_ in zip(share.shape, whole.shape, strict=True)]
        return PartitionSpec(*names) if axis == SHARED else PartitionSpec(MEMBERS, *names[1:])

    return jax.tree.map(spec, whole, share, spread(axes, whole))


def _placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_placed(jax.random.key_data(leaf), sharding))
    array = np.asarray(leaf)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
