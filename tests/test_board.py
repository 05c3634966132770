"""The board without a browser: who may ask, what is read of any folder, and games step by step."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from board_tools import board, game
from cases import THOROUGH
from probes import Masked

import rollax
from rollax.board.game import NOBODY, InsideGame, Player, game_of
from rollax.board.rows import row_of
from rollax.board.thinking import Games, checked, plain
from rollax.board.watching import Watch
from rollax.commands.cli import run_command
from rollax.errors import ConfigError
from rollax.programs.plan import make_plan
from rollax.reports.films import Ending, episode, player_of
from rollax.runs.folder import RunFolder
from rollax.runs.lock import Lock, has_run_since, is_held
from rollax.runs.result import policy_of

FILES = ("config.json", "metrics.csv", "evaluations.csv", "summary.json", "hashes.json")


def small(agent: str, env: str, **values):
    common = {"steps": 2_000, "log_steps": 100, "eval_steps": 1_000, "eval_episodes": 3, "num_envs": 4, "hidden": (8,)}
    replay = {"warm_up_steps": 100, "capacity": 1_000, "batch_size": 8} if agent in ("double", "c51", "qr") else {}
    return rollax.make_experiment(agent, env=env, preset="none", **(common | replay | values))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has finished: a folder that tests copy."""
    folder = tmp_path_factory.mktemp("run") / "c51"
    rollax.train(small("c51", "CartPole-v1", seeds=2), folder, quiet=True)
    return folder


@pytest.fixture
def runs(run, tmp_path):
    """A folder with that run."""
    shutil.copytree(run, tmp_path / "runs" / "c51")
    return tmp_path / "runs"


def untrained(agent: str, env: str, **values) -> Player:
    """A player whose weights are those of the beginning."""
    plan = make_plan(small(agent, env, **values))
    params = plan.program.agent.init(plan.keys[0], jax.tree.map(lambda leaf: leaf[0], plan.hparams))[0].params
    return Player(policy_of(plan, params, 0), env)


# -- who may ask


def test_other_websites_are_refused(runs):
    with board(runs) as address:
        own = f"127.0.0.1:{address.port}"
        assert address.ask("/").status == 200
        assert address.ask("/", Host=f"localhost:{address.port}").status == 200
        assert address.ask("/", Origin=f"http://{own}", Sec_Fetch_Site="same-origin").status == 200
        foreign = [
            {"Host": "evil.example"},
            {"Host": f"evil.example:{address.port}"},
            {"Host": f"127.0.0.1.evil.example:{address.port}"},
            {"Host": "127.0.0.1:1"},
            {"Host": ""},
            {"Origin": "http://evil.example"},
            {"Origin": f"http://evil.example:{address.port}"},
            {"Origin": f"https://{own}"},
            {"Origin": f"http://localhost:{address.port}"},  # the host was 127.0.0.1
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
        ]
        for headers in foreign:
            for path, sent in (("/", None), ("/events", None), ("/page.js", None), ("/game", game("x"))):
                answer = address.ask(path, sent, **headers)
                assert answer.status == 403, (path, headers)
                assert "c51" not in answer.text
        policy = address.ask("/").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


def test_nobody_else_can_reach_it(runs):
    with board(runs) as address:
        others = {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for other in others - {"127.0.0.1"}:
            with pytest.raises(OSError), socket.create_connection((other, address.port), timeout=5):  # noqa: PT011
                pass


def test_no_request_leads_to_another_file(runs):
    (runs / "c51" / "secret.gif").write_bytes(b"secret")
    (runs / "c51" / "watch.mp4").symlink_to(runs / "c51" / "config.json")
    (runs / "c51" / "watch.gif").write_bytes(b"GIF89a")
    with board(runs) as address:
        key = address.key("c51")
        assert address.ask(f"/film/{key}/watch.gif").text == "GIF89a"
        names = ("secret.gif", "watch.mp4", "config.json", "..%2fconfig.json", "../../config.json", "%2e%2e/x")
        paths = [f"/film/{key}/{name}" for name in names]
        paths += [
            "/film/../watch.gif",
            "/../pyproject.toml",
            "//etc/passwd",
            "/film/c51/watch.gif",
            "/%2e%2e/server.py",
        ]
        paths += ["/server.py", "/page.html", "/board.css/../server.py"]
        for path in paths:
            assert address.ask(path).status == 404, path
        for wrong in ("../c51", "c51", "", "/etc"):
            assert address.ask("/game", game(wrong)).status == 404
            assert address.ask("/film", {"run": wrong, "member": 0}).status == 404
            assert address.ask(f"/curves?run={wrong}").data["shown"]["figures"] == []


def test_what_is_asked_wrongly_is_answered_in_a_line(runs):
    with board(runs) as address:
        key = address.key("c51")
        wrong: list[Any] = [
            [], {}, "x", game(key, seed=-1), game(key, seed="0"), game(key, member=7), game(key, member=-1),
            game(key, action=1.5), game(key, best=1), {"run": key}, game(key) | {"run": None}, "x" * 300_000,
        ]  # fmt: skip
        for sent in wrong:
            answer = address.ask("/game", sent)
            assert answer.status == 422, sent
            assert "\n" not in answer.text
        begun = address.ask("/game", game(key)).data
        for action in (-2, 2, 10**30):
            answer = address.ask("/game", game(key, game=begun["game"], action=action))
            assert (answer.status, "action=" in answer.text) == (422, True)


# -- what is read


def test_a_run_is_shown_as_a_report_shows_it(runs):
    with board(runs) as address:
        (row,) = address.rows().values()
        summary = RunFolder(runs / "c51").read_summary()
        assert (row["status"], row["step"], row["total"], row["members"]) == ("finished", 2_000, 2_000, 2)
        assert row["steps_per_second"] == summary["steps_per_second"]
        assert row["score"] == np.mean([member["eval_return_mean"] for member in summary["members"]])
        shown = address.shown("curves", "c51")["shown"]
        (figure,) = shown["figures"]
        returns = rollax.Result(runs / "c51").curves["episode_return_mean"]
        seen = ~np.all(np.isnan(returns), axis=0)
        assert len(figure["lines"][0]["mean"]) == seen.sum()
        assert {"returns", "evaluations", "loss", "iqm"} <= {name for name, _ in shown["kinds"]}
        assert address.shown("curves", "c51", kind="loss")["shown"]["figures"][0]["name"] == "loss"
        assert address.shown("curves", "c51", kind="nonsense")["shown"]["kind"] == "returns"
        tables = address.shown("tables", "c51")["shown"]
        assert "learning_rate" in tables["settings"]
        assert "c51" in tables["evaluation"]
        (lines,) = address.shown("console", "c51")["shown"].values()
        assert lines[0].startswith("c51 on CartPole-v1, 2 members, 2,000 steps each")
        assert sum("steps/s" in line for line in lines) == 20
        assert sum("evaluation, return" in line for line in lines) == 2
        assert lines[-1] == "Finished at step 2,000."


def test_settings_that_differ_are_told(runs):
    shutil.copytree(runs / "c51", runs / "deeper" / "other")
    written = RunFolder(runs / "deeper" / "other")
    config = written.read_config()
    config["hparams"]["learning_rate"] = 0.25
    written.write_config(config)
    with board(runs) as address:
        assert {row["name"] for row in address.rows().values()} == {"c51", "deeper/other"}
        shown = address.shown("curves", "c51", "deeper/other")["shown"]
        assert list(shown["colours"]) == ["c51, learning_rate=0.0005", "c51, learning_rate=0.25"]
        assert "What differed" in address.shown("tables", "c51", "deeper/other")["shown"]["settings"]


def break_file(path: Path, how: str) -> None:
    """Damages a file of a run folder."""
    content = path.read_bytes()
    path.unlink()
    if how == "link":
        path.symlink_to("/etc/passwd")
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how != "gone":
        wrong = {"empty": b"", "cut": content[: len(content) // 2], "bytes": b"\xff\x00" * 500, "list": b"[1, 2]"}
        path.write_bytes(wrong[how])


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "bytes", "list", "link", "fifo", "folder"])
def test_a_damaged_folder_is_shown_as_one_beside_the_others(runs, how, capsys):
    for name in FILES:
        shutil.copytree(runs / "c51", runs / name)
        break_file(runs / name / name, how)
    with board(runs) as address:
        rows = {row["name"]: row for row in address.rows().values()}
        assert {"c51", *FILES} - set(rows) <= ({"config.json"} if how == "gone" else set())
        assert rows["c51"]["status"] == "finished"
        if how != "gone":
            assert rows["config.json"]["status"] == rows["summary.json"]["status"] == "damaged"
            assert "\n" not in rows["config.json"]["problem"]
        for what in ("curves", "tables"):
            found = address.shown(what, *rows)
            assert "root:" not in json.dumps(found)
            assert found["problems"] or how == "gone"
        for name in rows:
            address.shown("console", name)
        answers = [address.ask("/game", game(address.key(name))) for name in ("c51", "config.json") if name in rows]
        assert [answer.status for answer in answers] == [200, 422][: len(answers)]
    assert "Traceback" not in capsys.readouterr().err


def test_configurations_of_any_shape_are_survived(runs):
    config = RunFolder(runs / "c51").read_config()
    strange: dict[str, Any] = {
        "deep": json.dumps(config)[:-1] + ', "choices": ' + "[" * 60 + "]" * 60 + "}",
        "steps": json.dumps(config | {"steps": "many"}),
        "huge": json.dumps(config | {"steps": 10**400}),
        "loop": json.dumps(config | {"loop": 3}),
        "zero": json.dumps(config | {"loop": {"num_envs": 0, "rollout_length": 0}}),
        "agent": json.dumps(config | {"agent": "<script>alert(1)</script>"}),
        "nan": json.dumps(config | {"steps": float("nan")}),
    }
    for name, text in strange.items():
        shutil.copytree(runs / "c51", runs / name)
        (runs / name / "config.json").write_text(text)
    os.makedirs(os.fsencode(runs) + b"/\xff\xfe")
    shutil.copy(runs / "c51" / "config.json", os.fsencode(runs) + b"/\xff\xfe/config.json")
    with board(runs) as address:
        rows = address.rows()
        assert len(rows) == len(strange) + 2
        query = "&".join(f"run={key}" for key in rows)
        for what in ("curves", "tables"):
            answer = address.ask(f"/{what}?{query}")
            assert answer.status == 200
            assert "<script>alert" not in json.dumps(answer.data["shown"])
            assert answer.data["problems"]


def test_runs_appear_change_and_vanish(runs, run):
    watch = Watch(runs)
    (key,) = watch.look().changed
    assert watch.look() == ([], [], True)
    shutil.copytree(run, runs / "new")
    (new,) = watch.look().changed
    assert watch.runs[new].row.name == "new"
    RunFolder(runs / "new").write_summary(RunFolder(runs / "new").read_summary() | {"status": "interrupted"})
    assert watch.look().changed == [new]
    assert (watch.runs[new].row.status, watch.runs[new].version) == ("interrupted", 2)
    shutil.rmtree(runs / "c51")
    assert watch.look().gone == [key]
    shutil.rmtree(runs)
    assert watch.look().gone == [new]
    assert watch.look() == ([], [], True)
    runs.mkdir()
    runs.chmod(0)
    assert watch.look() == ([], [], True)
    runs.chmod(0o700)


def test_links_are_not_followed_and_hidden_folders_are_left_alone(runs, tmp_path):
    (runs / "loop").symlink_to(runs)
    (runs / "link").symlink_to(runs / "c51")
    shutil.copytree(runs / "c51", runs / ".hidden")
    watch = Watch(runs)
    assert len(watch.look().changed) == 1
    assert [known.row.name for known in Watch(runs / "c51").runs.values()] == []
    alone = Watch(runs / "c51")
    alone.look()
    assert [known.row.name for known in alone.runs.values()] == ["c51"]


def test_two_hundred_runs_are_listed_and_then_only_looked_at(runs, monkeypatch):
    for index in range(199):
        shutil.copytree(runs / "c51", runs / f"run-{index}", ignore=shutil.ignore_patterns("checkpoints", "*.png"))
    watch, looks = Watch(runs), 1
    while not watch.look().whole:
        looks += 1
    assert len(watch.runs) == 200
    monkeypatch.setattr("rollax.board.watching.row_of", lambda *_: pytest.fail("it has been read already"))
    assert watch.look() == ([], [], True)
    monkeypatch.undo()
    with board(runs) as address:
        rows = address.rows()
        assert len(rows) == 200
        assert {row["status"] for row in rows.values()} == {"finished"}


def test_a_run_whose_process_is_gone_was_killed(runs):
    folder = RunFolder(runs / "c51")
    folder.write_summary(folder.read_summary() | {"status": "running"})
    assert row_of(folder.path, "c51").status == "killed"
    with Lock(folder):
        assert row_of(folder.path, "c51").status == "running"
        row = row_of(folder.path, "c51")
        assert row.seconds_left == 0.0
    assert row_of(folder.path, "c51").status == "killed"
    folder.summary.unlink()
    folder.seals.path.unlink()
    with Lock(folder):
        assert row_of(folder.path, "c51").status == "starting"


def test_numbers_of_any_size_are_survived(runs):
    written = RunFolder(runs / "c51")
    summary = written.read_summary()
    written.write_summary(summary | {"status": "running", "steps_per_second": float("nan")})
    written.write_config(written.read_config() | {"steps": 10**400})
    with Lock(written), board(runs) as address:
        (row,) = address.rows().values()
        assert (row["status"], row["name"]) == ("damaged", "c51")
    written.write_config(written.read_config() | {"steps": 2_000})
    with board(runs) as address:
        (row,) = address.rows().values()
        assert (row["status"], row["steps_per_second"]) == ("killed", None)


def test_whether_a_folder_is_held(runs):
    folder = RunFolder(runs / "c51")
    folder.lock.write_text(f"process {os.getpid()}\n")
    assert is_held(folder)
    folder.lock.write_text(f"process {os.getpid()} on another.machine")
    assert is_held(folder) is None
    for text in ("", "process", "process 99999999999999", "somebody", f"process {2**31 - 7}", "process 0x1"):
        folder.lock.write_text(text)
        assert is_held(folder) is False, text
    assert not has_run_since(os.getpid(), 0.0)  # this one began later, so it is another of the same number
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    folder.lock.write_text(f"process {ended.pid}")
    assert is_held(folder) is False  # though nobody has asked how it ended
    ended.wait()
    folder.lock.unlink()
    os.mkfifo(folder.lock)
    assert is_held(folder) is False


# -- what it may not do


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with when it was written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_nothing_is_written_but_films(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = contents(tmp_path)
    with board(runs) as address:
        key = address.key("c51")
        for what in ("curves", "tables", "console"):
            address.shown(what, "c51")
        begun = address.ask("/game", game(key)).data
        assert address.ask("/game", game(key, game=begun["game"], action=NOBODY)).data["step"] == 1
        assert contents(tmp_path) == before
        recorded = address.ask("/film", {"run": key, "member": 1})
        assert recorded.data == {"film": "watch.gif"}
        rows = address.listen(lambda rows, _: any(row["films"] for row in rows.values()))
        assert rows[key]["films"] == ["watch.gif"]
        assert address.ask(f"/film/{key}/watch.gif").headers["content-type"] == "image/gif"
    after = contents(tmp_path)
    assert set(after) - set(before) == {str(runs / "c51" / "watch.gif")}
    assert {path: after[path] for path in before} == before


def test_no_module_is_imported_that_a_run_names(runs, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    written = RunFolder(runs / "c51")
    written.write_config(written.read_config() | {"env": "stranger:Env"})
    with board(runs) as address:
        (row,) = address.rows().values()
        assert (row["env"], row["status"]) == ("stranger:Env", "finished")
        assert address.shown("curves", "c51")["shown"]["figures"]
        for what in ("tables", "console"):
            address.shown(what, "c51")
        for path, sent in (("/game", game(address.key("c51"))), ("/film", {"run": address.key("c51"), "member": 0})):
            answer = address.ask(path, sent)
            assert answer.status == 422
            assert "code of the module stranger" in answer.text
            assert "start the board with --trust" in answer.text
    assert "stranger" not in sys.modules
    assert not (tmp_path / "ran").exists()
    with pytest.raises(rollax.RollaxError, match="is of another experiment"):  # no longer a question of trust
        Games(trust=True).answer(runs / "c51", game(""))


def test_the_command_says_what_is_wrong(tmp_path, capsys, monkeypatch):
    assert run_command("board", [str(tmp_path / "nothing")]) == 2
    assert "is no folder; name the one in which your runs are" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command("board", [str(tmp_path), "--port", str(port)]) == 2
        assert f"port={port} is not free" in capsys.readouterr().err
    monkeypatch.setattr("rollax.errors.installed", lambda module: module != "starlette")
    assert run_command("board", [str(tmp_path)]) == 2
    assert "rollax board needs Starlette: pip install 'rollax[board]'" in capsys.readouterr().err


# -- the agent, thinking


def test_the_same_seed_is_the_episode_that_watch_films(run):
    policy = rollax.load(run)
    endings = []
    for seed in (0, 5):
        *_, ending = episode(policy.task, player_of(policy, seed), seed, 500)
        assert isinstance(ending, Ending)
        endings.append((ending.total, ending.steps))
    own = InsideGame(Player(policy, "CartPole-v1"))
    for seed, (total, steps) in zip((0, 5), endings, strict=True):
        moment = own.begin(seed)
        while not moment.over:
            moment = own.step(NOBODY)
        assert (moment.total, moment.steps) == (total, steps)
        assert own.step(NOBODY).steps == 0  # the next episode
        assert own.seed == seed + 1


def test_bars_are_the_agents_own_values(run):
    player = Player(rollax.load(run), "CartPole-v1")
    own = InsideGame(player)
    moment = own.begin(3)
    told = plain("a", player, moment)["players"][0]
    policy = player.policy
    values: Any = policy.agent.scores(
        policy.learner, policy.start(), jax.tree.map(lambda leaf: leaf[None], own.obs), jnp.ones(1, bool)
    )
    np.testing.assert_allclose([bar["value"] for bar in told["bars"]], np.asarray(values)[0], rtol=1e-5)
    assert [bar["name"] for bar in told["bars"]] == ["left", "right"]
    assert told["chosen"] == int(np.argmax(values))
    assert told["value"] == max(bar["value"] for bar in told["bars"])
    for spread, value in zip(told["spreads"], np.asarray(values)[0], strict=True):
        np.testing.assert_allclose(sum(spread["y"]), 1.0, rtol=1e-4)
        np.testing.assert_allclose(np.dot(spread["x"], spread["y"]), value, rtol=1e-3)
    assert own.step(1 - told["chosen"]).steps == 1  # a person's action instead
    later = [own.step(0) for _ in range(5)][-1]
    assert plain("a", player, later)["picture"] != plain("a", player, moment)["picture"]


def test_quantiles_are_shown_as_chances_below_a_return():
    player = untrained("qr", "CartPole-v1")
    told = plain("a", player, game_of(player).begin(0))["players"][0]
    for spread in told["spreads"]:
        assert spread["x"] == sorted(spread["x"])
        assert spread["y"] == sorted(spread["y"])
        assert 0 < spread["y"][0] < spread["y"][-1] < 1


def test_a_policy_is_shown_as_chances_with_its_critics_value():
    player = untrained("ppo", "CartPole-v1")
    told = plain("a", player, game_of(player).begin(0))["players"][0]
    assert told["kind"] == "chances"
    np.testing.assert_allclose(sum(bar["value"] for bar in told["bars"]), 1.0, rtol=1e-5)
    assert isinstance(told["value"], float)
    assert told["spreads"] == []


def test_illegal_actions_are_told_and_never_chosen(monkeypatch):
    player = untrained("double", "probes:Masked")
    monkeypatch.setattr(Masked, "picture", lambda self, state: np.zeros((4, 4, 3), np.uint8), raising=False)
    own: Any = game_of(player)
    moment = own.begin(0)
    for _ in range(8):
        told = plain("a", player, moment)["players"][0]
        assert not told["bars"][2]["legal"]
        assert told["bars"][told["chosen"]]["legal"]
        assert told["value"] == max(bar["value"] for bar in told["bars"] if bar["legal"])
        moment = own.step(NOBODY)


def test_numbers_are_shown_as_what_they_are():
    player = untrained("sac", "Pendulum-v1")
    player.policy.task.env.__class__.picture = lambda self, state: np.zeros((4, 4, 3), np.uint8)
    try:
        told = plain("a", player, game_of(player).begin(0))
    finally:
        del player.policy.task.env.__class__.picture
    assert told["players"][0]["kind"] == "numbers"
    assert -1 <= told["players"][0]["bars"][0]["value"] <= 1
    assert "keys" not in told
    with pytest.raises(ConfigError, match="is played by its agent alone"):
        checked(player, 0)


@pytest.mark.parametrize("timing", ["simultaneous", *(["sequential"] if THOROUGH else [])])
def test_a_person_plays_one_of_several_players(timing):
    player = untrained("double", "TreasureHunt-v0", agents=2, obs_timing=timing, height=6, width=6, stream_hidden=8)
    own = InsideGame(player)
    told = plain("a", player, own.begin(0))
    assert [len(one["bars"]) for one in told["players"]] == [4, 4]
    assert told["keys"] == ["w", "s", "a", "d"]
    assert told["legend"]
    for wish in range(4):
        own.begin(0)
        assert own.thought(wish).action[0] == wish
        assert own.step(wish).steps == 1


@pytest.mark.thorough
def test_hackmatrix_is_played_with_its_keys():
    player = untrained("ppo", "HackMatrix-v0")
    own: Any = game_of(player)
    moment = own.begin(0)
    for _ in range(5):
        told = plain("a", player, moment)
        bars = told["players"][0]["bars"]
        assert len(bars) == len(told["keys"]) == 28
        assert all(bar["value"] == 0 for bar in bars if not bar["legal"])
        assert any(not bar["legal"] for bar in bars)
        moment = own.step(next(index for index, bar in enumerate(bars) if bar["legal"]))


@pytest.mark.thorough
def test_environments_outside_jax_are_played_with_a_camera():
    pytest.importorskip("pygame", reason="Gymnasium draws with it")
    player = untrained("double", "gymnasium:CartPole-v1")
    own: Any = game_of(player)
    first = own.begin(0)
    seconds = [own.step(NOBODY) for _ in range(3)]
    assert [moment.steps for moment in seconds] == [1, 2, 3]
    assert not np.array_equal(first.picture, seconds[-1].picture)
    assert np.array_equal(own.begin(0).picture, first.picture)
    own.close()
