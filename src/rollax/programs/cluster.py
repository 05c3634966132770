"""Several processes, on one machine or many, that run one program: how they meet, agree, and miss one of them.

JAX's own runtime notices a lost process too, but late, or by aborting.  Here each process keeps a connection to the
first; whoever falls silent or hangs up is named by the first to all others, and everyone ends with exit code 6.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from rollax.errors import ConfigError, ResourceError, RollaxError
from rollax.programs.mesh import Grid, mesh_of
from rollax.tracing import DATA, fetch

START_SECONDS = 60.0  # how long processes wait for one another at the beginning
SILENT_SECONDS = 10.0  # a process that has said nothing for so long is gone
BEAT_SECONDS = 1.0
ALIVE, FAREWELL, LOST = b".", b"!", b"-"


class Place(NamedTuple):
    """Which process this is, and of how many; all empty where the surroundings tell JAX."""

    coordinator: str = ""  # host:port of the first process; it listens there and on the port after it
    processes: int = 0
    index: int = -1

    def problems(self) -> list[str]:
        if self == Place():
            return []
        together = "coordinator, num_processes and process_id go together"
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_535:
            return [f"coordinator={self.coordinator!r} must be HOST:PORT, as in 10.0.0.1:1234; {together}"]
        if self.processes < 1 or not 0 <= self.index < self.processes:
            wanted = f"num_processes={self.processes} must be at least 1, and process_id={self.index} below it"
            return [f"{wanted}; {together}"]
        return []

    @property
    def meeting(self) -> tuple[str, int]:
        """Where the processes keep an eye on one another."""
        host, _, port = self.coordinator.rpartition(":")
        return host, int(port) + 1


def surrounded() -> bool:
    """Whether a scheduler has started this process as one of several, which JAX then finds out by itself."""
    several = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    if any(os.environ.get(name, "1") not in ("", "1") for name in several):
        return "SLURM_PROCID" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ
    job = "KUBERNETES_SERVICE_HOST" in os.environ and "JOB_COMPLETION_INDEX" in os.environ
    return job or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")


PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
EXTRAS = {"gpu": "; for NVIDIA's, pip install 'rollax[cuda13]'", "tpu": "; pip install 'rollax[tpu]'", "cpu": ""}


def use_device(kind: str, *, check: bool = True) -> None:
    """Has JAX compute on that kind of device; `auto` leaves it to JAX.  Must come before JAX does anything.

    Raises ResourceError where there is none, unless it is too early to look.
    """
    if kind == "auto":
        return
    jax.config.update("jax_platforms", PLATFORMS[kind])
    if not check:
        return
    try:
        found = jax.default_backend()
    except (RuntimeError, AssertionError):  # the latter is how JAX says that a platform has no plugin
        found = "none"
    if found != kind:
        raise ResourceError(f"device={kind}: JAX finds none here; leave it out for what is there{EXTRAS[kind]}")


@contextmanager
def joined(place: Place, start_seconds: float = START_SECONDS, device: str = "auto") -> Generator[None]:
    """Within it, this process is one of several, if it is to be, and computes on that kind of device.

    Must begin before JAX does anything.
    """
    if problems := place.problems():
        raise ConfigError(problems)
    use_device(device, check=not place.coordinator and not surrounded())  # several must meet before JAX looks
    if place.coordinator:
        if place.processes == 1:
            yield
            return
        watch = Watch.meet(place.meeting, place.index, place.processes, start_seconds)
        jax.distributed.initialize(
            place.coordinator, place.processes, place.index, initialization_timeout=int(start_seconds)
        )
    elif surrounded():
        jax.distributed.initialize(initialization_timeout=int(start_seconds))
        watch = Watch.meet(free_address(), jax.process_index(), jax.process_count(), start_seconds)
    else:
        yield
        return
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        time.sleep(SILENT_SECONDS + 2 * BEAT_SECONDS)  # if a process is gone, the watch names it before that
        raise ResourceError(f"the connection between the processes broke: {str(error).splitlines()[0]}") from error
    except RollaxError as error:
        watch.leave()
        if error.together:
            jax.distributed.shutdown()
        raise
    finally:
        watch.leave()
    jax.distributed.shutdown()


def free_address() -> tuple[str, int]:
    """An address of the first process that nobody listens on, known to all."""
    host = socket.gethostbyname(socket.gethostname())
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    told = from_first(f"{host}:{port}")
    return told.rpartition(":")[0], int(told.rpartition(":")[2])


def is_first() -> bool:
    """Whether this process writes, and speaks, for all."""
    return jax.process_index() == 0


def agree(*numbers: float) -> tuple[float, ...]:
    """The largest that any process says of each.  All must ask."""
    if jax.process_count() == 1:
        return numbers
    from jax.experimental import multihost_utils

    return tuple(np.max(multihost_utils.process_allgather(np.array(numbers, np.float32)), axis=0).tolist())


def gathered(text: str) -> list[str]:
    """The texts of all processes, to all.  All must ask."""
    if jax.process_count() == 1:
        return [text]
    from jax.experimental import multihost_utils

    own = np.frombuffer(text.encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.array([len(own)], np.int32)).reshape(-1)
    padded = np.zeros(max(int(lengths.max()), 1), np.uint8)
    padded[: len(own)] = own
    rows = multihost_utils.process_allgather(padded)
    return [row[:length].tobytes().decode() for row, length in zip(np.asarray(rows), lengths, strict=True)]


def from_first(text: str) -> str:
    """The text of the first process, to all."""
    return gathered(text)[0]


def mean_of_processes() -> float:
    """One `pmean` over the first devices of all processes, of 1 + each one's number."""
    count = jax.process_count()
    mesh = mesh_of(Grid(1, count))
    split = PartitionSpec(DATA)
    numbers = jax.make_array_from_process_local_data(
        NamedSharding(mesh, split), np.array([1 + jax.process_index()], np.float32)
    )
    mean = jax.shard_map(lambda own: jax.lax.pmean(own, DATA), mesh=mesh, in_specs=split, out_specs=PartitionSpec())
    return float(fetch(jax.jit(mean)(numbers))[0])


class Watch:
    """One process's part in keeping an eye on all."""

    def __init__(self, index: int, peers: dict[int, socket.socket]):
        self.index, self.peers = index, peers  # the first process has all others, each of them only the first
        self.heard = dict.fromkeys(peers, time.monotonic())
        self.left: set[int] = set()  # who has said farewell
        self.leaving = False
        threading.Thread(target=self.beat, daemon=True).start()
        for peer in peers:
            threading.Thread(target=self.listen, args=(peer,), daemon=True).start()

    @classmethod
    def meet(cls, address: tuple[str, int], index: int, processes: int, seconds: float) -> Watch:
        """Waits for all processes.  ResourceError names those that did not come in time."""
        deadline = time.monotonic() + seconds
        if index == 0:
            return cls(index, receive(address, processes, deadline))
        return cls(index, {0: arrive(address, index, deadline)})

    def beat(self) -> None:
        """Tells the others that this one lives, and looks for those who have not for too long."""
        while not self.leaving:
            for peer, link in self.peers.items():
                if peer not in self.left:
                    with contextlib.suppress(OSError):
                        link.sendall(ALIVE)
                if peer not in self.left and time.monotonic() - self.heard[peer] > SILENT_SECONDS:
                    self.end(peer, f"has not been heard of for {SILENT_SECONDS:.0f} s")
            time.sleep(BEAT_SECONDS)

    def listen(self, peer: int) -> None:
        link = self.peers[peer]
        link.settimeout(None)
        while not self.leaving:
            try:
                said = link.recv(1)
            except OSError:
                said = b""
            if self.leaving or peer in self.left:
                return
            if said == ALIVE:
                self.heard[peer] = time.monotonic()
            elif said == FAREWELL:
                self.left.add(peer)
                return
            elif said == LOST:
                self.end(int(link.recv(16).decode()), "is gone")
            else:
                self.end(peer, "is gone")

    def end(self, lost: int, why: str) -> None:
        """Tells everyone, and ends this process as it is: its other threads wait for one that will not come."""
        if self.leaving:
            return
        for peer, link in self.peers.items():
            if peer != lost and self.index == 0:
                with contextlib.suppress(OSError):
                    link.sendall(LOST + str(lost).encode())
        line = f"rollax: process {lost} {why}; the last checkpoint is good, continue with `rollax resume`\n"
        os.write(sys.stderr.fileno(), line.encode())
        os._exit(ResourceError.exit_code)

    def leave(self) -> None:
        """Ends the watch: this process goes, and is not missed."""
        if self.leaving:
            return
        self.leaving = True
        for link in self.peers.values():
            with contextlib.suppress(OSError):
                link.sendall(FAREWELL)


def receive(address: tuple[str, int], processes: int, deadline: float) -> dict[int, socket.socket]:
    """At the first process: connections to all others, once all are there."""
    peers: dict[int, socket.socket] = {}
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("", address[1]))
        except OSError as error:
            raise ConfigError(f"coordinator: port {address[1]} cannot be listened on: {error.strerror}") from error
        door.listen(processes)
        while len(peers) < processes - 1:
            door.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                link, _ = door.accept()
                link.settimeout(max(deadline - time.monotonic(), 0.01))
                peers[int(link.recv(16).decode())] = link
            except (TimeoutError, ValueError):
                if time.monotonic() < deadline:
                    continue
                missing = [index for index in range(1, processes) if index not in peers]
                for link in peers.values():
                    with contextlib.suppress(OSError):
                        link.sendall(LOST + str(missing[0]).encode())
                names = " and ".join(map(str, missing))
                raise ResourceError(f"process {names} of {processes} did not start within the time limit") from None
    for link in peers.values():
        link.sendall(ALIVE)
    return peers


def arrive(address: tuple[str, int], index: int, deadline: float) -> socket.socket:
    """At another: the connection to the first, once it says that all are there."""
    while True:
        try:
            link = socket.create_connection(address, timeout=max(deadline - time.monotonic(), 0.01))
            break
        except OSError as error:
            if time.monotonic() > deadline:
                where = f"{address[0]}:{address[1]}"
                raise ResourceError(f"process 0 did not start within the time limit, at {where}: {error}") from error
            time.sleep(0.2)
    link.sendall(str(index).encode())
    link.settimeout(max(deadline - time.monotonic(), 0.01) + 2 * BEAT_SECONDS)  # the first one names who is missing
    try:
        said = link.recv(1)
    except TimeoutError:
        said = b""
    if said == ALIVE:
        return link
    who = link.recv(16).decode() if said == LOST else "0"
    raise ResourceError(f"process {who} did not start within the time limit")
