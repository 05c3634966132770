"""Reports: what they are made of by hand, and what they look like in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import numpy as np
import pytest

import rollax
from rollax.commands.cli import run_command
from rollax.errors import ConfigError
from rollax.reports.axes import extent, labels, ticks
from rollax.reports.drawing import TICKS, height_of, plot_figures
from rollax.reports.figures import Chart, all_figures, figures_of, interquartile_means
from rollax.reports.page import MOST_POINTS, kept, write_report
from rollax.reports.runs import groups_of, read_runs
from rollax.rules.aggregates import mean_band, moving_average, performance_profile
from rollax.runs.folder import RunFolder

ROWS, SEEDS = 20, 3
TICKS_SHOWN = """
([env, kind]) => {
  const figure = report.figures.find((one) => one.name === kind && one.env === env);
  const view = views.find((one) => one.figure.id === figure.id);
  return view && [...view.svg.querySelectorAll(figure.bars ? ".x-tick" : ".y-tick")].map((tick) => tick.textContent);
}"""


def small(agent: str, env: str, **values):
    common = {"steps": 2_000, "log_steps": 100, "eval_steps": 1_000, "eval_episodes": 3, "num_envs": 4, "hidden": (8,)}
    replay = {} if agent == "ppo" else {"warm_up_steps": 100, "capacity": 1_000, "batch_size": 8}
    return rollax.make_experiment(agent, env=env, preset="none", seeds=SEEDS, **(common | replay | values))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two agents on two environments: one pair trained, the others the same folders under other names."""
    folder = tmp_path_factory.mktemp("runs")
    rollax.train(small("double", "CartPole-v1"), folder / "double_cartpole", quiet=True)
    rng = np.random.default_rng(0)
    for agent, env in (("dqn", "CartPole-v1"), ("double", "Acrobot-v1"), ("dqn", "Acrobot-v1")):
        copy = folder / f"{agent}_{env}"
        shutil.copytree(folder / "double_cartpole", copy, ignore=shutil.ignore_patterns("checkpoints"))
        config: dict[str, Any] = RunFolder(copy).read_config() | {"agent": agent, "env": env}
        config["choices"]["double"] = agent == "double"
        written = RunFolder(copy)
        written.write_config(config)
        written.write_summary(written.read_summary() | {"agent": agent, "env": env})
        header, *rows = (copy / "evaluations.csv").read_text().splitlines()
        column = header.split(",").index("return_mean")
        cells = [row.split(",") for row in rows]
        for row in cells:
            row[column] = str(rng.normal(-200 if env == "Acrobot-v1" else 300, 50))
        written.seals.write(written.evaluations, "\n".join([header, *(",".join(row) for row in cells)]) + "\n")
    return folder


def test_the_mean_and_its_interval_by_hand():
    mean, low, high = mean_band(np.array([[1.0, np.nan, 5.0], [2.0, np.nan, np.nan], [3.0, np.nan, np.nan]]))
    assert mean[0] == 2.0
    # Student's t with two degrees of freedom: 4.3027 standard errors of 1 / sqrt(3).
    np.testing.assert_allclose([low[0], high[0]], [2 - 4.302653 / np.sqrt(3), 2 + 4.302653 / np.sqrt(3)], rtol=1e-6)
    assert np.isnan(mean[1])
    assert mean[2] == 5.0
    assert np.isnan(low[2])


def test_a_moving_average_is_over_episodes():
    means = np.array([[np.nan, 1.0, 3.0, np.nan, 8.0]])
    one_each = moving_average(means, np.array([[0, 1, 1, 0, 1]]), 2)
    np.testing.assert_array_equal(one_each, [[np.nan, 1.0, 2.0, 2.0, 5.5]])
    # Of the last four episodes two lie in the row of two, and two of the three in the row before.
    several = moving_average(np.array([[10.0, 2.0, 6.0]]), np.array([[9, 3, 2]]), 4)
    np.testing.assert_allclose(several, [[10.0, (10.0 + 3 * 2.0) / 4, (2 * 2.0 + 2 * 6.0) / 4]])
    stopped = moving_average(np.array([[2.0, 4.0, np.nan, np.nan]]), np.array([[1, 1, 0, 0]]), 3)
    np.testing.assert_array_equal(stopped, [[2.0, 3.0, np.nan, np.nan]])


def test_a_moving_average_of_single_episodes_is_the_plain_one():
    values = np.random.default_rng(0).normal(size=(2, 120))
    found = moving_average(values, np.ones((2, 120)), 50)
    plain = [[row[max(0, end - 50) : end].mean() for end in range(1, 121)] for row in values]
    np.testing.assert_allclose(found, plain)


def test_a_profile_counts_tasks_alike():
    share, low, high = performance_profile([np.array([0.0, 2.0]), np.full(8, 2.0)], np.array([-1.0, 1.0, 2.0]))
    np.testing.assert_allclose(share, [1.0, (0.5 + 1.0) / 2, 0.0])
    assert np.all(low <= share)
    assert np.all(share <= high)
    assert low[1] < high[1]


def test_settings_are_named_by_what_tells_them_apart(runs, tmp_path):
    paths = sorted(runs.iterdir())
    assert {group.method for group in groups_of(read_runs(paths))} == {"double", "dqn"}
    shutil.copytree(runs / "double_cartpole", tmp_path / "again")
    again = groups_of(read_runs([runs / "double_cartpole", tmp_path / "again"]))
    assert [group.method for group in again] == ["double (double_cartpole)", "double (again)"]
    config = RunFolder(tmp_path / "again").read_config()
    config["seed"], config["record"]["log_to"] = 100, ["jsonl"]
    (tmp_path / "again" / "config.json").write_text(json.dumps(config))
    seeds = groups_of(read_runs([runs / "double_cartpole", tmp_path / "again"]))
    assert [group.method for group in seeds] == ["double (double_cartpole)", "double (again)"]
    config["hparams"]["learning_rate"] = 0.25
    (tmp_path / "again" / "config.json").write_text(json.dumps(config))
    apart = groups_of(read_runs([runs / "double_cartpole", tmp_path / "again"]))
    assert [group.method for group in apart] == ["double, learning_rate=0.0005", "double, learning_rate=0.25"]


def test_a_population_is_a_setting_for_each_of_its_numbers(runs, tmp_path):
    shutil.copytree(runs / "double_cartpole", tmp_path / "run")
    config = RunFolder(tmp_path / "run").read_config()
    config["hparams"]["learning_rate"] = [0.1, 0.2, 0.3]
    config["seeds"] = 1
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    groups = groups_of(read_runs([tmp_path / "run"]))
    assert [group.method for group in groups] == [f"double, learning_rate=0.{digit}" for digit in (1, 2, 3)]
    assert [group.members for group in groups] == [(0,), (1,), (2,)]


def test_scores_of_several_environments_meet_on_one_scale(runs):
    groups = groups_of(read_runs(sorted(runs.iterdir())))
    bars = interquartile_means(groups, None).bars
    scores = {group.env: group.scores for group in groups if group.method == "dqn"}
    scaled = np.concatenate([(scores["CartPole-v1"] - 22) / 478, (scores["Acrobot-v1"] + 500) / 421.5])
    (bar,) = [bar for bar in bars if bar.method == "dqn"]
    # Six scores: the line from 1.5 to 4.5, so half of the second and fifth.
    ordered = np.sort(scaled)
    np.testing.assert_allclose(bar.value, (ordered[1] / 2 + ordered[2] + ordered[3] + ordered[4] / 2) / 3, rtol=1e-9)
    assert bar.low <= bar.value <= bar.high
    assert bar.seeds == 2 * SEEDS


def test_success_is_the_share_of_seeds_at_the_level(runs):
    chart: Any = figures_of("success", groups_of(read_runs([runs / "double_cartpole"])))[0]
    returns = rollax.Result(runs / "double_cartpole").evaluations["return_mean"]
    np.testing.assert_array_equal(chart.lines[0].mean, (returns >= 475).mean(axis=0))


def test_what_is_no_run_is_left_out_and_said(runs, tmp_path, capsys):
    (tmp_path / "other").mkdir()
    assert len(read_runs([tmp_path / "other", runs / "double_cartpole"])) == 1
    assert "other is no run folder: it has no config.json; it is left out" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="is no run folder"):
        read_runs([tmp_path / "other"])


def test_a_run_without_scores_stands_beside_one_with(runs, tmp_path):
    """It is still running, so it has rows and no evaluation yet."""
    shutil.copytree(runs / "dqn_Acrobot-v1", tmp_path / "young")
    path = tmp_path / "young" / "evaluations.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    groups = groups_of(read_runs([runs / "double_cartpole", tmp_path / "young"]))
    assert [figure.env for figure in figures_of("profile", groups)] == ["CartPole-v1"]
    assert "Acrobot-v1" in write_report([runs / "double_cartpole", tmp_path / "young"], tmp_path / "a.html").read_text()


def test_pictures_of_every_kind(runs, tmp_path):
    paths = plot_figures(sorted(runs.iterdir()), [], tmp_path, "svg")
    names = {path.stem for path in paths}
    assert {
        "returns",
        "smoothed",
        "evaluations",
        "success",
        "lengths",
        "loss",
        "grad_norm",
        "epsilon",
        "iqm",
        "profile",
    } == names
    assert all(path.read_text().startswith("<?xml") for path in paths)
    with pytest.raises(ConfigError, match="figures='los' is no figure of these runs; did you mean loss"):
        plot_figures(sorted(runs.iterdir()), ["los"], tmp_path)


def test_the_commands(runs, tmp_path, capsys):
    one = str(runs / "double_cartpole")
    assert run_command("plot", [one, "--figures", "iqm", "loss", "--format", "svg", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "iqm.svg").exists()
    assert (tmp_path / "loss.svg").exists()
    assert run_command("report", [one, "--out", str(tmp_path / "page.html"), "--no-film"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "page.html")
    assert run_command("report", [str(tmp_path / "nothing")]) == 2
    assert "nothing is no run folder" in capsys.readouterr().err
    assert run_command("report", []) == 2
    assert "rollax report runs/mine" in capsys.readouterr().err


def test_long_curves_are_thinned_out_and_keep_their_end():
    values = np.arange(3 * MOST_POINTS + 1.0)
    assert len(kept(values)) <= MOST_POINTS
    assert kept(values)[-1] == values[-1]
    np.testing.assert_array_equal(kept(values[:50]), values[:50])


def test_a_page_needs_nothing_else(runs, tmp_path):
    page = write_report(sorted(runs.iterdir()), tmp_path / "page.html", film=False).read_text()
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "url(#" not in page.split("<script>")[0]
    assert page.count("://") == page.count("http://www.w3.org/2000/svg")  # a name, which nobody fetches
    (text,) = re.findall(r'id="report-data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert len(data["figures"]) == len(all_figures(groups_of(read_runs(sorted(runs.iterdir())))))


def test_names_cannot_break_out_of_the_page(runs, tmp_path):
    shutil.copytree(runs / "double_cartpole", tmp_path / "a<b>&")
    page = write_report([tmp_path / "a<b>&"], tmp_path / "page.html", film=False).read_text()
    assert "a<b>" not in page
    assert "a&lt;b&gt;&amp;" in page


def test_in_a_browser_a_run_has_its_curves_and_its_film(page, runs, tmp_path):
    path = write_report([runs / "double_cartpole"], tmp_path / "page.html")
    page.goto(path.as_uri())
    returns = rollax.Result(runs / "double_cartpole").curves["episode_return_mean"]
    seeds = page.eval_on_selector_all(
        "[data-curves] path.seed", "paths => paths.map(path => path.getAttribute('d').match(/[ML]/g).length)"
    )
    assert seeds == [int(np.sum(~np.isnan(own))) for own in returns]
    (mean,) = page.eval_on_selector_all(
        "[data-curves] path.mean", "paths => paths.map(path => path.getAttribute('d').match(/[ML]/g).length)"
    )
    assert mean == int(np.sum(np.any(~np.isnan(returns), axis=0)))
    assert page.locator("[data-curves] polygon.band").count() == 1
    film = page.locator(".films img")
    assert film.evaluate("image => image.complete && image.naturalWidth > 0")
    assert page.locator("h1").inner_text() == "double on CartPole-v1"
    for title in ("Evaluation", "Throughput and memory", "Versions", "Hyper-parameters"):
        assert page.get_by_role("heading", name=title, exact=True).is_visible()


def test_in_a_browser_curves_are_zoomed_hidden_and_read(page, runs, tmp_path):
    path = write_report(sorted(runs.iterdir()), tmp_path / "page.html", film=False)
    page.goto(path.as_uri())
    chart = page.locator("[data-curves='CartPole-v1']")
    assert chart.locator("path.mean").count() == 2
    assert chart.locator("path.seed").count() == 2 * SEEDS
    box = chart.locator("svg").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    shown = chart.locator(".tip").inner_text()
    assert "double" in shown
    assert "dqn" in shown
    before = chart.locator("text.x-tick").all_text_contents()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=4)
    page.mouse.up()
    assert chart.locator("text.x-tick").all_text_contents() != before
    page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    assert chart.locator("text.x-tick").all_text_contents() == before
    page.locator(".legend button[data-method='dqn']").click()
    assert chart.locator("path.mean").count() == 1
    page.select_option("#kind", "loss")
    assert chart.locator("path.mean").count() == 1
    page.select_option("#clock", "seconds")
    assert "seconds" in chart.locator("svg text").all_text_contents()
    assert page.locator("circle.value").count() == 3  # CartPole, Acrobot, both: one method is hidden


def test_in_a_browser_axes_are_those_of_the_pictures(page, runs, tmp_path):
    """The page's script and `axes.py` have the same rules: ends, ticks and what these say."""
    path = write_report(sorted(runs.iterdir()), tmp_path / "page.html", film=False)
    page.goto(path.as_uri())
    for figure in all_figures(groups_of(read_runs(sorted(runs.iterdir())))):
        told = page.evaluate(
            TICKS_SHOWN,
            [figure.env, figure.name],
        )
        if told is None:  # a curve that is not chosen
            continue
        if isinstance(figure, Chart):
            ends = height_of(figure)
        else:
            ends = extent((end for bar in figure.bars for end in (bar.low, bar.high)), figure.bounds)
        assert told == labels(ticks(*ends, TICKS)), figure.name
    values = [0.0, 1.0, 12.5, 999.0, 9_999.0, 10_000.0, 123_456.0, 2.5e6, -3.0, 0.00025]
    for value in values:
        assert page.evaluate("(value) => labels([value])", value) == labels([value])
        assert page.evaluate("(value) => extent([value, 0.3 * value], [null, null])", value) == pytest.approx(
            extent([value, 0.3 * value])
        )
        assert page.evaluate("(v) => ticks(v - 1, v + 2, 5)", value) == pytest.approx(ticks(value - 1, value + 2, 5))
