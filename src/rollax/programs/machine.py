"""What this machine has, and how it is used: cores, memory, devices, versions, and programs kept on disk."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import rollax
from rollax.errors import ConfigError, installed
from rollax.settings import cache_folder

PACKAGES = ("jax", "jaxlib", "flax", "optax", "gymnax", "numpy")
OPTIONAL = ("ale-py", "gymnasium")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
COMPILING = 2**30  # addresses that the compiler and its threads take beside what a run holds


def own_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Gives each core of a CPU a device of its own, over which the members of a population are then spread.

    Must come before JAX does anything; afterwards it changes nothing.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", own_cores())


def use_compile_cache() -> None:
    """Keeps compiled programs on disk, so that the second run starts at once."""
    jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla" / rollax.__version__))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def available_bytes() -> int:
    """Memory that a run may take on the device that it will use."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return statistics["bytes_limit"] - statistics["bytes_in_use"]
    return host_bytes()


def host_bytes() -> int:
    """Memory that is free on the machine."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:  # a container may be allowed less than the machine has
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        free = min(free, int(limit) - int(used)) if limit.isdigit() else free
    except OSError:
        pass
    return min(free, free_addresses())


def free_addresses() -> int:
    """Bytes that this process may still map, if it is limited (`ulimit -v`); else more than any machine has."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        used = 0
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - used - COMPILING, 0)


def memory_size(count: float) -> str:
    """Bytes as a person reads them."""
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
    name, unit = next(((name, unit) for name, unit in units.items() if abs(count) >= unit), ("B", 1))
    return f"{count / unit:.1f} {name}" if name != "B" and abs(count) < 100 * unit else f"{count / unit:.0f} {name}"


def parsed_size(text: str) -> int | None:
    """Bytes from `4GiB`, `500 MB` or `1000000`; None of nothing.  Raises ConfigError for anything else."""
    if not text.strip():
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"max_memory={text!r} is no size; write it as in 4GiB or 500MiB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def device_name() -> str:
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return f"CPU, {own_cores()} cores"
    return f"{device.platform}: {device.device_kind}"


def versions() -> dict[str, str]:
    """Of Python, this library (which may run from its source) and the packages that decide what is computed."""
    own = {"python": platform.python_version(), "rollax": rollax.__version__}
    there = {name for name in OPTIONAL if installed(name.replace("-", "_"))}
    return own | {name: version(name) for name in (*PACKAGES, *sorted(there))}


def machine() -> dict[str, Any]:
    """Versions, backend, devices and memory."""
    return {
        **versions(),
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "devices": [str(device) for device in jax.devices()],
        "device_kind": jax.local_devices()[0].device_kind,
        "cores": os.cpu_count(),
        "memory_free": memory_size(available_bytes()),
    }
