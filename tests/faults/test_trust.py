"""Whose code a file may run: a run folder or a configuration that names modules of somebody."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from fault_tools import TINY, ask, copied, judge, recast

import rollax
from rollax.envs.gymnasium import GymnasiumWorld
from rollax.errors import CheckpointError, ConfigError
from rollax.experiment.experiment import from_json, make_experiment
from rollax.experiment.looking import looked_at, modules_in
from rollax.experiment.tree import leaves, parts_of, to_json
from rollax.reports.runs import groups_of, read_runs
from rollax.runs import trust
from rollax.runs.resuming import check_origin
from rollax.runs.seals import sealed

# What a stranger could have written: it tells when it is imported.
MODULE = """
from pathlib import Path
import gymnax
from rollax.agents.names import AGENTS
from rollax.networks.torsos import MLP
Path(__file__).with_name("imported").touch()
RECIPE = AGENTS["double"]
class Torso(MLP): pass
def make():
    return gymnax.make("CartPole-v1")
"""


class Module:
    """A module of somebody, on Python's path but installed by nobody."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        (folder / "stranger.py").write_text(MODULE)

    @property
    def imported(self) -> bool:
        return (self.folder / "imported").exists()

    def forget(self) -> None:
        (self.folder / "imported").unlink(missing_ok=True)
        sys.modules.pop("stranger", None)


@pytest.fixture(autouse=True)
def notes(tmp_path, monkeypatch):
    """A user who has run nothing yet."""
    monkeypatch.setattr(trust, "written_folder", lambda: tmp_path / "written")
    return tmp_path / "written"


@pytest.fixture(scope="session")
def only_module(tmp_path_factory):
    return Module(tmp_path_factory.mktemp("module") / "theirs")


@pytest.fixture
def module(only_module, monkeypatch):
    monkeypatch.syspath_prepend(only_module.folder)
    only_module.forget()
    yield only_module
    only_module.forget()


@pytest.fixture(scope="session")
def first_run(only_module, tmp_path_factory):
    """A run with an agent, an environment and a part of the user's own, named on the command line; and its note."""
    base = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(only_module.folder)
        patch.setattr(trust, "written_folder", lambda: base / "written")
        words = ["stranger:RECIPE", "--env", "stranger:make", "--torso", "stranger:Torso", *TINY[1:]]
        answer = ask("train", *words, "--run-dir", base / "run", "--quiet")
        assert answer.code == 0, answer
    return base


@pytest.fixture
def own_run(first_run, module, notes, tmp_path):
    """A copy of it, on the machine of the user who ran it."""
    shutil.copytree(first_run / "written", notes)
    return copied(first_run / "run", tmp_path)


def elsewhere(notes):
    """Another machine: nothing is known of any run."""
    shutil.rmtree(notes)


def named_at(config, place):
    """The configuration with the module named at that place."""
    config = json.loads(json.dumps(config))
    match place:
        case "nothing":
            pass
        case "env" | "env of Gymnasium":
            config["env"] = "stranger:make" if place == "env" else "gymnasium:stranger:Theirs-v0"
            config["world"] = {} if place == "env" else to_json(GymnasiumWorld())
        case "agent":
            config["agent"] = "stranger:RECIPE"
        case "agent that is a list":
            config["agent"] = ["stranger:RECIPE"]
        case slot:
            branch = config
            for name in slot.split("."):
                branch = branch[name]
            branch["part"] = "stranger:Torso"
    return config


PARTS = ["choices.torso", "choices.replay", "choices.head", "choices.backup", "hparams.exploration", "hparams.target"]
PLACES = ["env", "env of Gymnasium", "agent", *PARTS]
RUNNING = {
    "resume": ["resume", "RUN"],
    "resume further": ["resume", "RUN", "--steps", "9000"],
    "eval": ["eval", "RUN", "--episodes", "2"],
    "watch": ["watch", "RUN", "--quiet"],
    "export": ["export", "RUN"],
    "train --config": ["train", "--config", "RUN/config.json", "--run-dir", "NEW"],
    "sweep --config": ["sweep", "--config", "RUN/config.json", "--out", "NEW"],
    "tune --config": ["tune", "--config", "RUN/config.json", "--out", "NEW"],
    "plan --config": ["plan", "--config", "RUN/config.json"],
    "inspect --config": ["inspect", "--config", "RUN/config.json"],
    "profile --config": ["profile", "--config", "RUN/config.json"],
}
LOOKING = {"plot": ["plot", "RUN"], "report": ["report", "RUN"]}


def words(command, run):
    return [word.replace("RUN", str(run)).replace("NEW", str(run.parent / "new")) for word in command]


def strange_run(finished_run, tmp_path, place):
    run = copied(finished_run, tmp_path)
    recast(run, named_at(json.loads((run / "config.json").read_text()), place))
    return run


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", RUNNING)
def test_what_runs_code_asks_first(request, finished_run, tmp_path, module, command, place):
    run = strange_run(finished_run, tmp_path, place)
    judge(request, ask(*words(RUNNING[command], run)), 2, "module stranger ", "--trust", most=1)
    assert not module.imported
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", LOOKING)
def test_what_looks_runs_no_code(request, finished_run, tmp_path, module, command, place):
    run = strange_run(finished_run, tmp_path, place)
    answer = ask(*words(LOOKING[command], run))
    judge(request, answer, 0, *(["shown without a film", "module stranger"] if command == "report" else []), most=1)
    assert not module.imported
    assert (run / {"plot": "curve.png", "report": "report.html"}[command]).exists()


@pytest.mark.parametrize("place", ["agent that is a list", "loop", "world", "record", "hparams"])
def test_a_name_at_a_wrong_place_runs_no_code(request, finished_run, tmp_path, module, place):
    run = strange_run(finished_run, tmp_path, place)
    judge(request, ask("eval", run), 2, "stranger", most=1)
    judge(request, ask("plot", run), 3, "config.json", most=2)
    assert not module.imported


def test_load_asks_first(finished_run, tmp_path, module):
    run = strange_run(finished_run, tmp_path, "env")
    for call in (rollax.load, rollax.resume, lambda folder: rollax.Result(folder).experiment):
        with pytest.raises(ConfigError, match=r"module stranger .*trust=True"):
            call(run)
    assert not module.imported
    assert rollax.load(run, trust=True)(np.zeros(4)) in (0, 1)
    assert module.imported


def test_an_exported_policy_asks_before_it_plays(request, finished_run, tmp_path, module):
    folder = tmp_path / "exported"
    assert ask("export", copied(finished_run, tmp_path), "--out", folder).code == 0
    config = named_at(json.loads((folder / "config.json").read_text()), "env")
    (folder / "config.json").write_text(json.dumps(config))
    card = json.loads((folder / "export.json").read_text())
    card["files"]["config.json"] = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    (folder / "export.json").write_text(sealed({name: value for name, value in card.items() if name != "sha256"}))
    judge(request, ask("eval", folder, "--episodes", "2"), 2, "module stranger ", "--trust", most=1)
    assert not module.imported
    assert ask("eval", folder, "--episodes", "2", "--trust").code == 0


def test_weights_of_a_strange_run_run_no_code(finished_run, tmp_path, module):
    """What is taken from another run are arrays; how many members it has stands in its file."""
    run = strange_run(finished_run, tmp_path, "env")
    answer = ask("train", *TINY, "--init-from", run, "--run-dir", tmp_path / "new", "--quiet")
    assert answer.code == 0, answer
    assert not module.imported


def test_a_checkpoint_that_names_a_module_of_its_own_is_foreign(own_run, module):
    config = json.loads((own_run / "config.json").read_text())
    strange = json.loads(json.dumps(config).replace("stranger:Torso", "stranger.below:Torso"))
    with pytest.raises(CheckpointError, match=r"another experiment.*module stranger\.below"):
        check_origin(own_run, {"config": strange}, config)
    assert not module.imported


# -- what is trusted


def test_a_run_of_this_user_is_trusted(own_run, tmp_path, notes):
    """A copy of its folder too, and however often it is continued."""
    assert len(list(notes.iterdir())) == 1
    assert ask("eval", own_run, "--episodes", "2").code == 0
    assert ask("resume", own_run, "--steps", "960", "--quiet").code == 0
    answer = ask("report", own_run)
    assert answer.code == 0
    assert (own_run / "watch.gif").exists(), answer
    assert ask("train", "--config", own_run / "config.json", "--run-dir", tmp_path / "again", "--quiet").code == 0


def test_another_module_of_the_same_name_is_not_trusted(request, tmp_path, own_run, monkeypatch):
    run = own_run
    other = Module(tmp_path / "other")
    monkeypatch.syspath_prepend(other.folder)
    judge(request, ask("eval", run), 2, "module stranger ", "--trust", most=1)
    assert not other.imported


def test_other_users_say_it(request, own_run, module, notes):
    run = own_run
    elsewhere(notes)
    judge(request, ask("eval", run), 2, "stranger (agent='stranger:RECIPE')", "--trust", most=1)
    assert not module.imported
    assert ask("eval", run, "--episodes", "2", "--trust").code == 0
    assert module.imported
    assert ask("eval", run, "--episodes", "2").code == 2, "to eval is not to run it as one's own"
    assert ask("resume", run, "--steps", "960", "--trust", "--quiet").code == 0
    assert ask("eval", run, "--episodes", "2").code == 0, "resumed here, it is this user's"


def test_what_is_named_on_the_command_line_is_trusted(request, tmp_path, own_run, module, notes):
    config = own_run / "config.json"
    elsewhere(notes)
    new = tmp_path / "new"
    judge(request, ask("train", "--config", config, "--run-dir", new, "--quiet"), 2, "--trust", most=1)
    assert not module.imported
    assert ask("train", "stranger:RECIPE", "--config", config, "--run-dir", new, "--quiet").code == 0


@pytest.mark.parametrize("how", ["site", "editable"])
def test_what_is_installed_is_trusted(tmp_path, own_run, module, notes, monkeypatch, how):
    elsewhere(notes)
    site = module.folder
    if how == "editable":
        site = tmp_path / "site"
        site.mkdir()
        (site / "_their_project.pth").write_text(f"{module.folder}\n")
    monkeypatch.setattr(trust, "site_folders", lambda: {str(site.resolve())})
    assert ask("eval", own_run, "--episodes", "2").code == 0


def test_an_editable_installation_may_bring_a_finder(tmp_path, monkeypatch):
    """As setuptools makes one: a module in site-packages that knows where a package is."""
    site, project = tmp_path / "site", tmp_path / "project"
    (project / "src" / "theirs").mkdir(parents=True)
    (project / "src" / "theirs" / "__init__.py").touch()
    told = site / "theirs-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (told / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    (site / "__editable___theirs_finder.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        f"        return PathFinder.find_spec(name, [{str(project / 'src')!r}]) if name == 'theirs' else None\n"
    )
    monkeypatch.setattr(trust, "site_folders", lambda: {str(site.resolve())})
    monkeypatch.syspath_prepend(site)
    import __editable___theirs_finder as finder  # ty: ignore[import-not-found]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder.Finder])
    assert trust.is_installed("theirs.below")
    assert not trust.is_installed("others")
    hiding = tmp_path / "here" / "theirs"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()
    monkeypatch.syspath_prepend(hiding.parent)
    assert not trust.is_installed("theirs.below"), "another package hides it"


def test_neither_the_standard_library_nor_a_module_that_hides_an_installed_one_is_installed(tmp_path, monkeypatch):
    assert trust.is_installed("gymnax.environments")
    assert trust.is_installed("rollax.agents.dqn")
    for name in ("os", "subprocess", "__main__", "nowhere", "", ".", "a b"):
        assert not trust.is_installed(name), name
    (tmp_path / "safetensors.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "safetensors", raising=False)
    assert not trust.is_installed("safetensors")


def test_a_cache_that_cannot_be_written_stops_no_run(tmp_path, module, notes):
    notes.write_text("a file where a folder should be")
    experiment = make_experiment("stranger:RECIPE", steps=160, num_envs=8, hidden=(8,), preset="none")
    result = rollax.train(experiment, tmp_path / "run", quiet=True)
    assert result.experiment.agent == "stranger:RECIPE", "what a call has just run is trusted"
    module.forget()
    assert ask("eval", tmp_path / "run").code == 2
    assert not module.imported


# -- how it is looked at


@pytest.mark.parametrize("place", ["nothing", *PLACES])
def test_a_description_has_every_setting(module, place):
    made = make_experiment("rainbow", seeds=2, learning_rate=(0.1, 0.2), replay="prioritized")
    config = named_at(to_json(made), place)
    own = "stranger" in json.dumps(config)
    described = looked_at(config)
    assert not module.imported
    assert modules_in(config) == ({} if not own else {"stranger": next(iter(modules_in(config).values()))})
    again = to_json(described)
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(config))
    if place in ("nothing", "env", "agent"):
        theirs = from_json(config)
        assert parts_of(described) == parts_of(theirs)
        facts = [[(one.name, one.value, one.traced) for one in leaves(tree)] for tree in (described, theirs)]
        assert facts[0] == facts[1]


def test_reports_tell_methods_of_somebody_apart(tmp_path, own_run, module):
    config = json.loads((own_run / "config.json").read_text())
    other = json.loads(json.dumps(config).replace("stranger:Torso", "mlp"))
    several = config | {"hparams": config["hparams"] | {"learning_rate": [0.1, 0.2]}}
    runs = []
    for number, one in enumerate((config, other, several)):
        runs.append(Path(shutil.copytree(own_run, tmp_path / f"run{number}")))
        (runs[-1] / "config.json").write_text(json.dumps(one))
    found = [group.method for group in groups_of(read_runs(runs))]
    assert not module.imported
    assert [name.removeprefix("stranger:RECIPE, ") for name in found] == [
        "torso=stranger:Torso, learning_rate=0.0005",
        "torso=mlp, learning_rate=0.0005",
        "torso=stranger:Torso, learning_rate=0.1",
        "torso=stranger:Torso, learning_rate=0.2",
    ]


def test_only_one_place_reads_what_a_file_names():
    """`from_json` imports whatever it is told to: what stands in a file is asked about before."""
    root = Path(rollax.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and "from_json" in {alias.name for alias in node.names}
    }
    # An actor's and a comparison's configuration come from the process that began them, which was asked.  What
    # `runs/sources.py` reads so are entries of the zoo, which are installed with the package.
    asked = {"runs/trust.py", "experiment/looking.py", "programs/actors.py", "tools/comparison/mode.py"}
    assert users == asked | {"runs/sources.py"}
