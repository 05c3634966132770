"""What the documentation says runs, parses, and leads somewhere.

Every Python block of README.md and of the pages below docs runs, page by page, in one namespace from top to bottom.  A
block whose first line is `# name.py` is a module: it is written to that file, from which later blocks import.  Every
command in a console block is parsed.  All other blocks are output, and must say so by their language.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
import tyro

from rollax.agents.names import AGENTS
from rollax.commands.cli import COMMANDS, run_command
from rollax.commands.words import canonical
from rollax.errors import ConfigError, RollaxError

ROOT = Path(__file__).parent.parent
PAGES = {str(path.relative_to(ROOT)): path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
LANGUAGES = {
    "python",
    "console",
    "text",
    "json",
    "toml",
    "csv",
    "yaml",
    "html",
}  # no `bash`: its commands would not be read
# What makes a page's code as it stands short enough for a test.
SHORTER = {
    "README.md": {"seeds=3,": "seeds=2, steps=20_000, eval_episodes=5,"},
}
# Pages that need a process of their own: they choose their devices before JAX starts.
MORE = {"README.md", "docs/environments.md", "docs/hackmatrix.md"}  # a test of their own runs these, and asks more
ALONE = {"docs/course/05-devices-and-hosts.md"}
SLOW = {  # further cases
    *("docs/api.md", "docs/coming-from.md", "docs/debugging.md", "docs/export.md", "docs/report.md"),
    *("docs/getting-started.md", "docs/memory.md", "docs/troubleshooting.md", "docs/write-a-network.md"),
    *("docs/write-an-agent.md", "docs/change-the-update-rule.md"),
}


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(text):
    """The fenced blocks of a page."""
    found = re.finditer(r"^(```+)([^\n`]*)\n(.*?)^\1$", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(match[2].strip(), match[3], text[: match.start()].count("\n") + 1) for match in found]


def python_code(page):
    """The page's Python blocks as a test runs them."""
    for block in blocks(PAGES[page].read_text()):
        if block.language == "python":
            code = block.code
            for long, short in SHORTER.get(page, {}).items():
                code = code.replace(long, short)
            yield block._replace(code=code)


def commands(text):
    """What is typed after `rollax` in console blocks, lines that go on joined, each with the line below it."""
    for block in blocks(text):
        if block.language == "console":
            lines = [*block.code.replace("\\\n", " ").splitlines(), ""]
            for line, answer in itertools.pairwise(lines):
                if typed := re.match(r"\$ (?:\w+=\S+ |srun )*rollax (.*)", line):
                    yield typed[1], answer


def run_page(page, folder, monkeypatch):
    """Runs the page's code in a folder of its own, and returns its names."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    name = "page_" + re.sub(r"\W", "_", page)
    module = types.ModuleType(name)
    module.__file__ = str(folder / f"{name}.py")
    sys.modules[name] = module
    # One file, so that classes have a source, with every line where the page has it.
    lines = [""] * PAGES[page].read_text().count("\n")
    for block in python_code(page):
        heading = re.match(r"# (\w+)\.py\n", block.code)
        if heading:
            (folder / f"{heading[1]}.py").write_text(block.code)
            importlib.invalidate_caches()
            assert heading[1] not in before, f"{page}: there is a module {heading[1]} already"
            importlib.import_module(heading[1])
            continue
        lines[block.line : block.line + block.code.count("\n")] = block.code.splitlines()
        Path(module.__file__).write_text("\n".join(lines))
        exec(compile("\n" * block.line + block.code, module.__file__, "exec"), module.__dict__)
    return module.__dict__


def run(arguments, folder):
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{folder}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def same_modules(tmp_path):
    """Modules that a page made are gone after it."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_every_block_names_its_language():
    for page, path in PAGES.items():
        for block in blocks(path.read_text()):
            assert block.language in LANGUAGES, f"{page}:{block.line}: ```{block.language}"


def with_code():
    """The pages whose code runs beside others'."""
    for page in PAGES:
        if page not in ALONE | MORE and [*python_code(page)]:
            yield pytest.param(page, marks=pytest.mark.thorough if page in SLOW else ())


@pytest.mark.parametrize("page", list(with_code()))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", sorted(ALONE))
def test_the_code_of_a_page_runs_alone(page, tmp_path):
    run(["-c", "\n".join(block.code for block in python_code(page))], tmp_path)


class Parsed(Exception):
    """A command got as far as its flags."""


@pytest.mark.parametrize("page", [page for page, path in PAGES.items() if [*commands(path.read_text())]])
def test_the_commands_of_a_page_parse(page, tmp_path, monkeypatch):
    """As far as their flags: the command, every flag and every choice is known."""
    parse = tyro.cli

    def parse_only(*arguments, **options):
        parse(*arguments, **options)
        raise Parsed

    def right_words(*arguments):
        good, problems = canonical(*arguments)
        if problems:
            raise ConfigError(problems)
        return good, problems

    monkeypatch.setattr(tyro, "cli", parse_only)

    def right_parts(agent, flags, error):
        raise error

    monkeypatch.setattr("rollax.commands.flags.canonical", right_words)
    monkeypatch.setattr("rollax.commands.flags.without_parts", right_parts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in python_code(page):
        if heading := re.match(r"# (\w+)\.py\n", block.code):
            (tmp_path / f"{heading[1]}.py").write_text(block.code)
    importlib.invalidate_caches()
    for command, answer in commands(PAGES[page].read_text()):
        name, *arguments = shlex.split(command, comments=True)
        if name.startswith("-"):
            continue
        if answer.startswith("rollax: "):  # a page may show a mistake, and what it is answered with
            with pytest.raises(RollaxError, match=f"^{re.escape(answer.removeprefix('rollax: '))}$"):
                COMMANDS[name](arguments)
            continue
        assert name in COMMANDS, command
        write_configuration(arguments)
        with pytest.raises(SystemExit if "--help" in arguments else Parsed):
            assert COMMANDS[name](arguments) is None, command


def write_configuration(arguments):
    """A file for `--config`, where a command names one."""
    from rollax.experiment.experiment import make_experiment
    from rollax.experiment.tree import to_json

    if "--config" in arguments:
        path = Path(arguments[arguments.index("--config") + 1])
        assert not path.is_absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(to_json(make_experiment())))


def test_a_flag_that_is_not_there_is_noticed(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setitem(PAGES, "page.md", page)
    for wrong in ("train double --such 3", "train double --torso big", "train --no-seeds", "eval --such", "trian"):
        page.write_text(f"```console\n$ rollax {wrong}\n```\n")
        with pytest.raises((AssertionError, RollaxError, SystemExit)):
            test_the_commands_of_a_page_parse("page.md", tmp_path, monkeypatch)
        monkeypatch.undo()
        monkeypatch.setitem(PAGES, "page.md", page)


def test_the_readme_in_python(tmp_path, monkeypatch):
    """As it stands, but for a shorter run."""
    (block,) = (block for block in blocks(PAGES["README.md"].read_text()) if block.language == "python")
    assert len(block.code.strip().splitlines()) <= 10
    assert all(long in block.code for long in SHORTER["README.md"])
    names = run_page("README.md", tmp_path, monkeypatch)
    assert names["curve"].shape[0] == 4
    assert names["action"] in (0, 1)


def test_help_is_shown_as_it_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    (excerpt,) = (block for block in blocks(PAGES["docs/getting-started.md"].read_text()) if block.language == "text")
    with pytest.raises(SystemExit):
        run_command("train", ["double", "--help"])
    assert f"\n{excerpt.code}\n" in capsys.readouterr().out


def test_an_environment_of_ones_own(tmp_path, monkeypatch, capsys):
    run_page("docs/environments.md", tmp_path, monkeypatch)
    assert run_command("check-env", ["corridor:Corridor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"
    train = "double --env corridor:Corridor --seeds 2 --steps 20000 --eval-episodes 10 --run-dir run"
    assert run_command("train", [*train.split()]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [float(line.split()[2]) for line in rows if line.strip().endswith("finished")] == [1.0, 1.0]


def test_a_game_from_plain_data(tmp_path, monkeypatch, capsys):
    run_page("docs/hackmatrix.md", tmp_path, monkeypatch)
    output = capsys.readouterr().out
    assert "'type': 'virus'" in output
    assert "(6, 6, 42)" in output


def test_links_lead_somewhere():
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_tests_that_the_docs_name_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, name


def test_every_public_name_is_documented():
    import rollax

    text = PAGES["docs/api.md"].read_text()
    for name in rollax.__all__:
        assert re.search(rf"^- `{name}[(,:`].*\n  [A-Z]", text, flags=re.MULTILINE), name


def test_every_public_name_has_an_example_that_runs():
    """On the page of examples, whose code runs as that of every page does: names, and what they offer."""
    import rollax

    code = "\n".join(block.code for block in python_code("docs/api-examples.md"))
    for name in rollax.__all__:
        assert re.search(rf"\brollax\.{name}\b", code), name
    used = set(re.findall(r"\b[A-Za-z]\w*\b", code))
    names = re.findall(r"^(?:    )?- `\.?(\w+)", PAGES["docs/api.md"].read_text(), flags=re.MULTILINE)
    assert len(names) > 120
    assert [name for name in dict.fromkeys(names) if name not in used] == []


def test_what_pages_import_is_on_the_page_of_names(monkeypatch):
    """By its name, or by its module among those that may move."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    api_page = importlib.import_module("api_page")
    listed = {f"{module}.{name}" for part in api_page.CONTENTS.values() for module in part for name in part[module]}
    _, _, table = PAGES["docs/api.md"].read_text().partition("## Also used in these pages")
    movable = tuple(re.findall(r"`(rollax\.[\w.]+)`", table))
    imported = re.compile(r"^\s*from (rollax\.[\w.]+) import (?:\(([^)]*)\)|(.*))$", flags=re.MULTILINE)
    for page, path in PAGES.items():
        for module, several, one in imported.findall(path.read_text()):
            for name in re.findall(r"\w+", several or one):
                assert f"{module}.{name}" in listed or module.startswith(movable), f"{page}: {module}.{name}"


def test_the_page_of_names_is_what_the_code_gives(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    api_page = importlib.import_module("api_page")
    text = PAGES["docs/api.md"].read_text()
    assert api_page.rewritten(text) == text, "make api"
    assert api_page.rewritten(text.replace("seed: int", "sed: int")) == text
    kept, lists = api_page.SECTION.sub("", text), api_page.SECTION.findall(text)
    assert len(lists) == len(api_page.CONTENTS)
    assert "rollax.train(experiment" in kept
    assert not re.search(r"<br>\n\s*(\n|-)", text), "a public name without a docstring"


def test_every_module_has_its_place_in_the_architecture():
    page = PAGES["docs/architecture.md"].read_text()
    (house,) = (block.code for block in blocks(page) if block.code.startswith("src/rollax/"))
    texts = re.split(r"^  (?=\S)", house, flags=re.MULTILINE)[1:]
    places = {re.split(r"[/\s]", text)[0]: text for text in texts}
    source = ROOT / "src" / "rollax"
    modules = {path.relative_to(source) for path in source.rglob("*.py")}
    for module in modules:
        if module.name != "__init__.py" or module.parent == Path("."):
            assert re.search(rf"\b{re.escape(module.name)}", places.get(module.parts[0], house)), module
    for place, text in places.items():
        there = {path.name for path in modules if path.parts[0] == place or len(path.parts) == 1}
        assert set(re.findall(r"\w+\.py", text)) <= there, place


def test_every_agent_has_a_page_with_a_curve():
    for name in AGENTS:
        page = (ROOT / "docs" / "agents" / f"{name}.md").read_text()
        assert f"rollax train {name}" in page
        assert (ROOT / "docs" / "images" / "agents" / f"{name}.png").exists()
