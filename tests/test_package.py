"""The package as it is shipped: its wheel, its imports, its layers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rollax

ROOT = Path(__file__).parent.parent
SOURCE = Path(rollax.__file__).parent

# Packages are floors: one imports only from those before it.  Floors of one line do not import each other.
FLOORS = [
    ["types", "errors", "settings", "tracing"],
    ["rules"],
    ["networks"],
    ["memory"],
    ["envs"],
    ["agents"],
    ["experiment"],
    ["programs"],
    ["runs"],
    ["search", "reports", "tools"],
    ["board"],
    ["commands"],
]
TOP = {"types", "errors", "settings", "tracing", "__init__", "__main__"}


def modules():
    """Every module of the package by its name without `rollax.`, and its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


def imported(path, known):
    """Modules of the package that a file imports, at any place in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rollax":
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("rollax.") in known else node.module for name in whole]
        yield from (name.removeprefix("rollax.") for name in names if name.startswith("rollax."))


def test_the_top_level_holds_only_what_everyone_passes_around():
    assert {path.stem for path in SOURCE.glob("*.py")} == TOP


def test_imports_point_up():
    known = {name for name, _ in modules()}
    floor_of = {package: number for number, packages in enumerate(FLOORS) for package in packages}
    assert {name.split(".")[0] for name in known} - {"__init__", "__main__"} == set(floor_of)
    for name, path in modules():
        if name in ("__init__", "__main__"):
            continue
        own = name.split(".")[0]
        for other in imported(path, known):
            theirs = other.split(".")[0]
            if theirs == own:
                continue
            if floor_of[own] == 0:  # the first floor's modules, whose cycles the next test would find
                assert floor_of[theirs] == 0, f"{name} imports {other}"
            else:
                assert floor_of[theirs] < floor_of[own], f"{name} imports {other}"


def test_no_floor_has_a_cycle():
    known = dict(modules())
    needs = {name: {other for other in imported(path, known) if other in known} for name, path in known.items()}
    done: set[str] = set()

    def visit(name, above):
        assert name not in above, f"a cycle: {' -> '.join([*above, name])}"
        if name not in done:
            for other in sorted(needs[name]):
                visit(other, [*above, name])
            done.add(name)

    for name in sorted(set(known) - {"__init__"}):
        visit(name, [])


def test_oracles_stay_in_the_tests():
    for path in SOURCE.rglob("*.py"):
        for word in ("rlax", "distrax", "flashbax", "tensorflow"):
            assert f"import {word}" not in path.read_text()


def test_no_file_names_a_registry():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("this is no git checkout")
    for name in tracked:
        path = ROOT / name
        if (
            path.suffix in {".toml", ".txt", ".lock", ".cfg", ".cff", ".yml", ".yaml", ""}
            and path.name != "LICENSE"
            and path.exists()
        ):
            assert "://" not in path.read_text(), name


def test_git_sees_every_module():
    """No pattern of .gitignore, as the one for run folders, hides a part of the package."""
    sources = [str(path.relative_to(ROOT)) for path in SOURCE.rglob("*") if path.suffix in {".py", ".typed"}]
    asked = subprocess.run(["git", "check-ignore", *sources], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode == 128:
        pytest.skip("this is no git checkout")
    assert asked.stdout == ""


def test_the_version_is_the_same_everywhere():
    assert f"\nversion: {rollax.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {rollax.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.thorough
def test_the_wheel_works_outside_the_clone(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("rollax-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
        pages = {f"rollax/board/{name}" for name in ("page.html", "board.css", "board.js", "list.js", "thinking.js")}
        pages |= {"rollax/reports/page.css", "rollax/reports/page.js", "rollax/py.typed"}
        assert pages <= set(archive.namelist())
    code = (
        "import rollax, sys; assert 'site' in rollax.__file__, rollax.__file__;"
        "e = rollax.make_experiment('dqn', preset='none', steps=400, warm_up_steps=100, capacity=800, num_envs=4,"
        " hidden=(8,), eval_episodes=2); r = rollax.train(e, 'run', quiet=True); print(r.summary['status'])"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "finished", done.stderr
