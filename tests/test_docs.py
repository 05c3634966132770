"""What the documentation says runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rollax.agents.names import AGENTS

ROOT = Path(__file__).parent.parent


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def run(arguments, folder):
    environment = os.environ | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_in_python(tmp_path):
    """As it stands, but for a shorter run."""
    (code,) = python_blocks("README.md")
    assert len(code.strip().splitlines()) <= 10
    shorter = code.replace("seeds=3,", "seeds=2, steps=20_000, eval_episodes=5,")
    assert shorter != code
    output = run(["-c", shorter + "\nprint(curve.shape, action)"], tmp_path)
    assert "(4, " in output


def test_an_environment_of_ones_own(tmp_path):
    (code,) = python_blocks("docs/environments.md")
    (tmp_path / "corridor.py").write_text(code)
    assert run(["-m", "rollax", "check-env", "corridor:Corridor"], tmp_path).splitlines()[-1] == "ok"
    train = "-m rollax train double --env corridor:Corridor --seeds 2 --steps 20000 --eval-episodes 10 --run-dir run"
    output = run(train.split(), tmp_path)
    returns = [float(line.split()[2]) for line in output.splitlines() if line.strip().endswith("finished")]
    assert returns == [1.0, 1.0]


def test_a_game_from_plain_data(tmp_path):
    (code,) = python_blocks("docs/hackmatrix.md")
    output = run(["-c", code], tmp_path)
    assert "'type': 'virus'" in output
    assert "(6, 6, 42)" in output


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_tests_that_the_docs_name_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, name


def test_every_agent_has_a_page_with_a_curve():
    for name in AGENTS:
        page = (ROOT / "docs" / "agents" / f"{name}.md").read_text()
        assert f"rollax train {name}" in page
        assert (ROOT / "docs" / "images" / "agents" / f"{name}.png").exists()
