"""Whose code a file may run: which modules a configuration names, and whether they may be imported here.

A module is trusted if its name was given in this call, if it is installed, if a run of this user has imported the same
file for the same configuration before, or if the user says so.  All else in the library reads a configuration from
disk through `experiment_in`, or with `looked_at`, which imports nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment, from_json
from rollax.experiment.looking import modules_in
from rollax.runs.files import write_text
from rollax.settings import cache_folder


def experiment_in(data: Any, source: Path | str, *, trust: bool, named: Iterable[str] = ()) -> Experiment:
    """The experiment of a file's plain data, with what it names imported.

    Raises ConfigError, before anything is imported, where that is code of somebody that is not trusted; `named` are
    modules whose names the user has given in this call.
    """
    demand_trust(data, source, trust=trust, named=named)
    return from_json(data)


def demand_trust(data: Any, source: Path | str, *, trust: bool, named: Iterable[str] = ()) -> None:
    """Raises that ConfigError, and does nothing else."""
    strange = [] if trust else strangers(data, named)
    if strange:
        names = modules_in(data)
        told = " and ".join(f"{module} ({names[module]})" for module in strange)
        raise ConfigError(
            f"{source} would run code of the module {told}, which is neither installed nor known from a run of yours; "
            "if you trust it, add --trust (in Python trust=True)"
        )


def strangers(data: Any, named: Iterable[str] = ()) -> list[str]:
    """The modules that a configuration names and that may not be imported."""
    given = set(named)
    found = [module for module in modules_in(data) if module not in given and not is_installed(module)]
    return [] if not found or _is_known(data) else found


def remember(data: Any) -> None:
    """Notes that this user runs this configuration with the modules that are found now.

    Where the cache cannot be written, the run goes on; it will have to be trusted by a word.
    """
    if not modules_in(data):
        return
    with contextlib.suppress(OSError, RuntimeError):  # as where the user has no home
        path = _note_of(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, " ".join(modules_in(data)) + "\n")


def written_folder() -> Path:
    """Where the configurations that this user has run are noted."""
    return cache_folder() / "written"


def _is_known(data: Any) -> bool:
    try:
        return _note_of(data).is_file()
    except (OSError, RuntimeError):
        return False


def _note_of(data: Any) -> Path:
    """The note of a configuration: its name is a hash of all its values and of where its modules are.

    So neither another configuration with the same module, nor another module of the same name, is taken for it.
    """
    places = {module: locations(top_of(module)) for module in modules_in(data)}
    text = json.dumps([data, places], sort_keys=True)
    return written_folder() / hashlib.sha256(text.encode()).hexdigest()


# -- what is installed


def is_installed(module: str) -> bool:
    """Whether the module that Python would import now belongs to an installed distribution, an editable one included.

    Where it lies decides, and not its name: one in the current directory may hide an installed one.
    """
    top = top_of(module)
    if top == "rollax":
        return True
    found = locations(top)
    folders = installed_folders()
    if found and all(str(Path(place).parent) in folders for place in found):
        return True
    return bool(found) and found == _editable_locations(top)


def top_of(module: str) -> str:
    """The package of a module; finding it runs no code, as finding what is inside of it would."""
    return module.split(".")[0]


def locations(top: str) -> list[str]:
    """The files or folders that a module or package is; none where Python finds none."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a module without a specification, as one that was typed in
        return []
    return _places(spec)


def _places(spec: Any) -> list[str]:
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return sorted(_place(place) for place in spec.submodule_search_locations)
    return [_place(spec.origin)] if spec.origin and spec.has_location else []


def _place(path: str) -> str:
    """A path whose folder is no link; what lies there may be one."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def installed_folders() -> set[str]:
    """The folders into which packages are installed, and those that an editable installation adds to Python's path."""
    sites = site_folders()
    added = {
        os.path.realpath(line.strip())
        for folder in sites
        for path in Path(folder).glob("*.pth")
        for line in _lines(path)
        if line.strip() and not line.startswith(("#", "import ", "import\t")) and os.path.isabs(line.strip())
    }
    return sites | added


def site_folders() -> set[str]:
    folders = {*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return {os.path.realpath(folder) for folder in folders}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _editable_locations(top: str) -> list[str]:
    """Where an editable installation that brings a finder of its own has the package; none where there is none."""
    projects = list(_editable_projects())
    for finder in sys.meta_path:
        home = getattr(sys.modules.get(getattr(finder, "__module__", "")), "__file__", None) or ""
        if "editable" in Path(home).name and os.path.realpath(Path(home).parent) in site_folders():
            found = _places(finder.find_spec(top, None))
            if found and all(any(Path(place).is_relative_to(one) for one in projects) for place in found):
                return found
    return []


def _editable_projects() -> Iterator[str]:
    """The folders of projects that are installed as editable."""
    for distribution in importlib.metadata.distributions(path=list(site_folders())):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(distribution.read_text("direct_url.json") or "{}")
            if told["dir_info"]["editable"]:
                yield os.path.realpath(unquote(urlparse(told["url"]).path))
