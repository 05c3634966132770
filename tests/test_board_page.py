"""The board in a real browser: rows that arrive, a run that is killed, an agent that thinks; and what hands can do."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager

import pytest
from board_tools import board
from process_tools import HANGING, launch
from test_board import run, runs  # noqa: F401 - fixtures

from rollax.runs.folder import RunFolder

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
TABS = ("curves", "evaluation", "settings", "machine", "films", "console", "agent")


@pytest.fixture
def open_board(browser):
    """Opens the page of a folder's board; nothing may be fetched from elsewhere, and nothing complained of."""

    @contextmanager
    def opened(folder, **how):
        complaints = []
        with board(folder) as address:
            page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | how))
            page.set_default_timeout(HANGING * 1_000)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            own = (address.url, "data:")
            page.on("request", lambda one: None if one.url.startswith(own) else complaints.append(one.url))
            page.goto(address.url)
            page.wait_for_selector("#live.on")
            yield page
            page.close()
        assert complaints == []

    return opened


def until(page, expression):
    """Waits until that is true on the page, which itself may not compile what is sent to it."""
    end = time.monotonic() + HANGING
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never: {expression}"
        page.wait_for_timeout(20)


def points(page):
    """How many points the mean curve has."""
    return page.evaluate("Number(document.querySelector('#cards path.mean')?.dataset.points ?? 0)")


def test_rows_arrive_while_a_run_trains_and_a_killed_one_is_shown_so(open_board, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    with open_board(folder) as page:
        page.get_by_text("There is no run in this folder yet").wait_for()
        sizes = ["--hidden", 8, "--num-envs", 4, "--warm-up-steps", 100, "--capacity", 1_000, "--eval-episodes", 2]
        steps = ["--steps", 10**8, "--log-steps", 1_000, "--eval-steps", 10**8, "--preset", "none"]
        training = launch("train", "double", *sizes, *steps, "--run-dir", folder / "mine", "--quiet")
        try:
            page.wait_for_selector(".run")
            page.wait_for_selector(".badge.running")
            until(page, "document.querySelector('#cards path.mean')?.dataset.points > 2")
            before, said = points(page), page.locator(".run .about").inner_text()
            until(page, f"document.querySelector('#cards path.mean').dataset.points > {before}")
            until(page, f"document.querySelector('.run .about').innerText !== {json.dumps(said)}")
            assert "of 100,000,000 · " in said
            assert "steps/s" in said
            assert "left" in said
            assert page.locator(".run input").is_checked()
            page.click("#tab-console")
            until(page, "document.querySelector('#lines').innerText.includes('steps/s')")
            assert page.locator(".badge.running").count() == 1
        finally:
            training.kill()
        training.wait()
        page.wait_for_selector(".badge.killed")
        assert page.locator(".badge.running").count() == 0
        assert "left" not in page.locator(".run .about").inner_text()
        shutil.rmtree(folder / "mine")
        page.wait_for_selector(".run", state="detached")


def test_runs_are_ticked_grouped_and_compared(open_board, runs):  # noqa: F811
    for name in ("double", "other"):
        shutil.copytree(runs / "c51", runs / name)
        written = RunFolder(runs / name)
        config = written.read_config() | ({"env": "Acrobot-v1"} if name == "other" else {})
        config["hparams"]["learning_rate"] = 0.25
        written.write_config(config)
    with open_board(runs) as page:
        page.wait_for_selector("#cards svg")
        assert page.locator(".run").count() == 3
        page.get_by_label("Group by").select_option("env")
        page.locator("h2 input").first.check()  # of CartPole
        until(page, "document.querySelectorAll('#cards path.mean').length === 2")
        assert page.locator("#methods button").all_inner_texts() == [
            "c51, learning_rate=0.0005", "c51, learning_rate=0.25",
        ]  # fmt: skip
        page.locator("#methods button").first.click()
        assert page.locator("#cards path.mean").count() == 1
        page.locator("#methods button").first.click()
        page.locator("h2 input").last.check()
        until(page, "document.querySelectorAll('#cards svg').length === 2")
        box = page.locator("#cards svg").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert page.locator("#cards .tip").first.is_visible()
        ticks = page.locator("#cards .card").first.locator("text.x-tick")
        before = ticks.all_text_contents()
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        assert ticks.all_text_contents() != before
        page.select_option("#figure", "loss")
        until(page, "document.querySelector('#cards figcaption').innerText === 'loss'")
        page.click("#tab-evaluation")
        page.locator("#evaluation").get_by_role("heading", name="Evaluation").wait_for()
        page.click("#tab-settings")
        page.locator("#settings").get_by_text("What differed between the runs").wait_for()
        page.get_by_label("Filter the runs").fill("acrobot")
        assert page.locator(".run").count() == 1
        assert page.locator("#counts").inner_text() == "1 of 3 runs: 3 finished"


def test_stepping_changes_the_picture_and_the_bars(open_board, runs):  # noqa: F811
    with open_board(runs) as page:
        page.click("#tab-agent")
        page.wait_for_selector("#step:not([disabled])")
        look = "[document.querySelector('#picture').src, document.querySelector('#bars').innerText]"
        shown = [page.evaluate(look)]
        for step in (1, 2, 3):
            page.keyboard.press("Space")
            until(page, f"document.querySelector('#at-step').innerText === '{step}'")
            shown.append(page.evaluate(look))
        pictures, bars = zip(*shown, strict=True)
        assert pictures[0] != pictures[-1]
        assert len(set(bars)) == 4
        assert page.locator(".action.chosen").count() == 1
        assert page.locator("#value-chart path.mean").get_attribute("data-points") == "4"
        assert page.locator("#spread-chart path.mean").count() == 2
        page.get_by_label("Steps in a second").fill("30")
        page.click("#run")
        until(page, "Number(document.querySelector('#at-step').innerText) > 6")
        page.click("#run")
        page.click("#new-seed")
        until(page, "document.querySelector('#at-step').innerText === '0'")
        assert page.locator("#seed").input_value() != "0"
        page.get_by_label("You play").check()
        assert page.locator("#legend kbd").all_inner_texts() == ["a", "d"]
        page.keyboard.press("ArrowLeft")
        until(page, "document.querySelector('#at-step').innerText === '1'")
        for step in range(2, 30):  # to the left until the pole falls
            page.keyboard.press("a")
            until(page, f"document.querySelector('#at-step').innerText === '{step}'")
            if page.locator("#ending").is_visible():
                break
        assert "The episode ended after" in page.locator("#ending").inner_text()
        page.keyboard.press("Enter")  # the next one
        until(page, "document.querySelector('#at-step').innerText === '0'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_by_day_and_night(open_board, runs, scheme):  # noqa: F811
    shutil.copytree(runs / "c51", runs / ("a_run_with_a_long_name_" * 5))
    (runs / "c51" / "summary.json").write_text("{}")
    with open_board(runs, color_scheme=scheme, **PHONE) as page:
        page.locator(".run input").last.check()
        for tab in TABS:
            page.click(f"#tab-{tab}")
            if tab == "agent":
                page.wait_for_selector("#step:not([disabled])")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        red = int(colour.split("(")[1].split(",")[0])
        assert (red < 60) == (scheme == "dark")


def test_the_keyboard_is_enough(open_board, runs):  # noqa: F811
    shutil.copytree(runs / "c51", runs / "other")
    with open_board(runs) as page:
        page.wait_for_selector(".run.on")

        def focus(selector):
            """Presses Tab until that has the focus."""
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                    return
            raise AssertionError(f"{selector} cannot be reached")

        focus("#filter")
        page.keyboard.type("other")
        focus(".run input")
        page.keyboard.press("Space")
        until(page, "document.querySelectorAll('#methods button').length === 2")
        focus("[role=tab]")
        for tab in TABS[1:]:
            page.keyboard.press("ArrowRight")
            page.wait_for_selector(f"#tab-{tab}[aria-selected=true]")
        page.wait_for_selector("#step:not([disabled])")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Space")
        until(page, "document.querySelector('#at-step').innerText === '1'")
        page.keyboard.press("n")
        until(page, "document.querySelector('#at-step').innerText === '0'")
        focus("#step")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#at-step').innerText === '1'")


def test_the_page_says_when_the_server_is_gone(browser, runs):  # noqa: F811
    with board(runs) as address:
        page = browser.new_page()
        page.goto(address.url)
        page.wait_for_selector("#live.on")
    page.wait_for_selector("#live.off")
    assert page.locator("#live").inner_text() == "not connected"
    assert page.locator(".run").count() == 1
    page.close()
