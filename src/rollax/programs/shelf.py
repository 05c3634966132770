"""Programs that this user's last runs have compiled, whole: a command that runs again traces nothing.

JAX keeps compiled programs too, but asks for them by their text, which takes longer to make than to load.  What is kept
here is asked for by all that the text depends on.  Only a command of its own process does so: in Python anything may
have been changed.  What is kept is machine code, as in JAX's own cache beside it, in a folder of this user's alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

import rollax
from rollax.agents.base import Agent
from rollax.experiment.experiment import Experiment
from rollax.experiment.scheduled import is_table
from rollax.experiment.tree import to_json
from rollax.programs.background import is_command
from rollax.programs.machine import versions
from rollax.settings import cache_folder, is_own, source_of

MOST = 64  # runs whose programs are kept
FOREIGN = "custom_call_target"  # in the text of a program that calls what is not compiled with it
LOOKING = {"log_steps", "eval_steps", "checkpoint_seconds", "keep_checkpoints", "chunk_seconds", "log_to"}  # on
_found = threading.local()  # whether what this thread compiled was in JAX's own cache
DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Shelf:
    """Where the programs of one experiment are kept on this machine; None of a run that keeps none."""

    folder: Path | None = None

    def load(self, name: str, devices: list[Any], arguments: tuple, result: Any) -> Any | None:
        """The program of that name on these devices, for arguments and results like these; None if there is none."""
        if self.folder is None:
            return None
        with suppress(Exception):  # whatever is wrong with it, it can be compiled
            kept = (self.folder / name).read_bytes()
            digest, program = kept[:DIGEST], kept[DIGEST:]
            if hashlib.sha256(program).digest() != digest:
                return None
            trees = jax.tree.structure((arguments, {})), jax.tree.structure(result)
            loaded = serialize_executable.deserialize_and_load(program, *trees, execution_devices=devices)
            os.utime(self.folder)
            return loaded
        return None

    def compiled(self, name: str, compile_it: Callable[[], Any]) -> Any:
        """The program as it is compiled, which is kept.

        Not where JAX had it in its own cache: XLA cannot write down on a CPU what it has not compiled itself.
        """
        _found.here = False
        made = compile_it()
        if self.folder is not None and not _found.here:
            threading.Thread(target=self.keep, args=(name, made)).start()
        return made

    def forget(self) -> None:
        """Removes what is kept, after a run that has failed: should that have been the reason, it will not be again."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, name: str, compiled: Any) -> None:
        """Writes a program down, where that is possible.

        Not one that calls other libraries, such as LAPACK: JAX makes them ready when it compiles such a program, and a
        process that only loads it would jump to nowhere.
        """
        assert self.folder is not None
        with suppress(Exception):
            if FOREIGN in compiled.as_text():
                return
            program, _, _ = serialize_executable.serialize(compiled)
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            unfinished = self.folder / f".{name}.{os.getpid()}"
            unfinished.write_bytes(hashlib.sha256(program).digest() + program)
            unfinished.replace(self.folder / name)
            forget_oldest(self.folder.parent)


NO_SHELF = Shelf()


def shelf_of(experiment: Experiment, agent: Agent, *facts: Any) -> Shelf:
    """The shelf of the experiment's programs, of which agent and facts say what the experiment leaves open.

    What is an argument of a program is not asked for: its length, its seeds, the values of hyper-parameters.  There is
    none where a user's own code is in it.
    """
    plain = to_json(experiment)
    asked = {name: plain[name] for name in ("env", "world", "view", "loop")} | plain["record"]
    asked = {name: value for name, value in asked.items() if name not in LOOKING}
    about = [repr(asked), repr(agent), repr(facts)]
    caches = is_command() and jax.config.values["jax_compilation_cache_dir"]
    tried = jax.default_backend() == "cpu" and jax.process_count() == 1  # elsewhere nobody has seen it work
    own = any(is_own(word) for word in words_of(plain) if not is_table(word)) or any(" at 0x" in text for text in about)
    if own or not (caches and tried):
        return NO_SHELF
    with suppress(OSError, RuntimeError):
        source = source_of(Path(rollax.__file__).parent)
        about += [repr(fact) for fact in (versions(), source, settings_of_jax(), processor())]
        return Shelf(cache_folder() / "programs" / hashlib.sha256(repr(about).encode()).hexdigest()[:32])
    return NO_SHELF


@jax.monitoring.register_event_listener
def note_found(event: str, **_: Any) -> None:
    """Notes that JAX has found a program in its cache: it says so in the thread that asked."""
    if event == "/jax/compilation_cache/cache_hits":
        _found.here = True


def words_of(data: Any) -> list[str]:
    """Every text in plain data."""
    if isinstance(data, str):
        return [data]
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [word for value in inner for word in words_of(value)]


def settings_of_jax() -> list[Any]:
    """What JAX and XLA were told, and which devices they have."""
    told = sorted(item for item in os.environ.items() if item[0].startswith(("JAX_", "XLA_", "TF_", "OMP_")))
    return [told, sorted(jax.config.values.items(), key=str), [str(device) for device in jax.devices()]]


def processor() -> str:
    """What machine code may be made for: a home folder may be shared by machines of several kinds."""
    about = platform.processor() + jax.devices()[0].client.platform_version
    with suppress(OSError):
        lines = io.StringIO(Path("/proc/cpuinfo").read_text())
        about += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return about


def forget_oldest(folder: Path) -> None:
    """Removes the programs of the runs that were made the longest ago, where there are too many."""
    kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in kept[:-MOST]:
        shutil.rmtree(old, ignore_errors=True)
