"""What the board costs: how long many runs take to open, how soon a new row is shown, how much a watched run is slowed.

    python benchmarks/board.py --turns 5
    python benchmarks/board.py --reading runs/mine     # processor seconds of reading copies of that run

Runs are trained in processes of their own, and watched in headless Chromium on the same machine.  The processor time of
the board and of the browser is told beside the wall clock, which other work on the machine disturbs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SETTINGS = (
    "--preset",
    "none",
    "--eval-episodes",
    "5",
    "--eval-steps",
    "1000000000",
    "--log-steps",
    "5000",
    "--seeds",
    "2",
)
OBSERVER = """
() => {
  window.seen = [];
  const look = () => window.seen.push([Date.now(), document.querySelector('.run .about')?.innerText ?? '']);
  new MutationObserver(look).observe(document.querySelector('#runs'), {childList: true, subtree: true});
}
"""


def rollax(*words: Any) -> list[str]:
    return [sys.executable, "-m", "rollax", *map(str, words)]


@contextmanager
def board(folder: Path) -> Generator[tuple[str, psutil.Process]]:
    """A board's address and its process, niced as it nices itself."""
    process = subprocess.Popen(rollax("board", folder, "--port", 0), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def processor_seconds(process: psutil.Process) -> float:
    """Of a process and of those below it."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def train(folder: Path, steps: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        rollax("train", "double", *SETTINGS, "--steps", steps, "--run-dir", folder, "--quiet"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def opening(browser: Any, root: Path, count: int) -> dict[str, Any]:
    """Seconds until all runs are on the list, and until the first curve is drawn: as the board starts, and later."""
    first = root / "run-0"
    train(first, 100_000).wait()
    for index in range(1, count):
        shutil.copytree(first, root / f"run-{index}", ignore=shutil.ignore_patterns("checkpoints", "*.png"))
    found: dict[str, Any] = {}
    with board(root) as (address, _):
        for visit in ("as the board starts", "second visit", "third visit"):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(address)
            page.locator(".run").nth(count - 1).wait_for(state="attached")
            listed = time.perf_counter() - began
            page.wait_for_selector("#cards path.mean")
            found[visit] = {"listed": round(listed, 2), "curve": round(time.perf_counter() - began, 2)}
            page.close()
    return found


def reading(run: Path, count: int) -> dict[str, float]:
    """Processor seconds, which depend less on other work: of looks at so many runs, and of one run's figures."""
    from rollax.board.comparing import Readings, curves
    from rollax.board.watching import Watch

    def spent(work: Any) -> float:
        began = time.process_time()
        work()
        return round(time.process_time() - began, 4)

    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            shutil.copytree(run, Path(folder) / f"run-{index}", ignore=shutil.ignore_patterns("checkpoints", "*.png"))
        watch, readings = Watch(Path(folder)), Readings()
        first = spent(lambda: watch.look(seconds=3_600))
        assert len(watch.runs) == count
        later = spent(lambda: [watch.look() for _ in range(10)]) / 10
        chosen = dict(list(watch.runs.items())[:1])
        curves(readings.all(chosen)[0], "returns")  # imports
        fresh = {key: known._replace(version=2) for key, known in chosen.items()}
        figures = spent(lambda: curves(readings.all(fresh)[0], "returns"))
    return {"runs": count, "first look": first, "each later look": later, "figures of one changed run": figures}


def delays(page: Any, metrics: Path, process: subprocess.Popen[str]) -> list[float]:
    """Seconds from each time that the table was written to the moment at which the page showed its last step."""
    page.evaluate(OBSERVER)
    written: dict[str, float] = {}
    while process.poll() is None:
        try:
            moment, step = metrics.stat().st_mtime, metrics.read_text().rstrip().rpartition("\n")[2].split(",")[0]
        except OSError:
            continue
        if step.isdigit():
            written.setdefault(f"{int(step):,}", moment)
        page.wait_for_timeout(20)
    found = []
    for moment, text in page.evaluate("window.seen"):
        for step in [step for step in written if f"· {step} of" in text]:
            found.append(moment / 1_000 - written.pop(step))
    return found


def turn(browser: Any, root: Path, steps: int, *, watched: bool, timed: bool = False) -> dict[str, Any]:
    """One training: the seconds in its programs, and what the board and the browser took meanwhile."""
    folder = root / f"run-{time.time_ns()}"
    if not watched:
        train(folder, steps).wait()
        return {"seconds": json.loads((folder / "summary.json").read_text())["train_seconds"]}
    with board(root) as (address, server):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        process = train(folder, steps)
        page.locator(".badge.running").wait_for(timeout=600_000)
        running = page.locator(".run", has=page.locator(".badge.running"))
        running.hover()
        running.locator(".only").click()
        page.get_by_label("Filter the runs").fill(folder.name)
        watchers = [server, *(one for one in psutil.Process().children() if "node" in one.name())]
        before, began = [processor_seconds(one) for one in watchers], time.perf_counter()
        found = delays(page, folder / "metrics.csv", process) if timed else []
        while process.poll() is None:
            page.wait_for_timeout(1_000)  # what looks closer would take time itself
        spent = time.perf_counter() - began
        used = [processor_seconds(one) - start for one, start in zip(watchers, before, strict=True)]
        page.close()
    seconds = json.loads((folder / "summary.json").read_text())["train_seconds"]
    share = [round(100 * one / spent, 2) for one in used]
    return {"seconds": seconds, "delays": found, "board %": share[0], "browser %": sum(share[1:]), "watched": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="trainings of each kind, one after the other")
    parser.add_argument("--steps", type=int, default=1_000_000, help="environment steps of each")
    parser.add_argument("--runs", type=int, default=200, help="runs that are opened")
    parser.add_argument("--reading", type=Path, help="a run folder: measure reading alone")
    options = parser.parse_args()
    if options.reading:
        print(json.dumps(reading(options.reading, options.runs)))
        return
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        many, few = Path(folder) / "many", Path(folder) / "few"
        many.mkdir()
        few.mkdir()
        print(
            json.dumps({"machine load": os.getloadavg(), "opening": opening(browser, many, options.runs)}), flush=True
        )
        turn(browser, few, options.steps, watched=False)  # compiles
        waited = sorted(turn(browser, few, options.steps, watched=True, timed=True)["delays"])
        print(f"delay of {len(waited)} rows: median {statistics.median(waited):.2f} s, longest {waited[-1]:.2f} s")
        results: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for number in range(options.turns):
            for watched in (False, True) if number % 2 else (True, False):
                result = turn(browser, few, options.steps, watched=watched)
                results[watched].append(result)
                print(json.dumps({"watched": watched, "load": os.getloadavg()[0]} | result), flush=True)
        alone, together = ([one["seconds"] for one in results[watched]] for watched in (False, True))
        print(
            f"seconds of training, median of {options.turns}: alone {statistics.median(alone):.2f}, "
            f"watched {statistics.median(together):.2f} "
            f"({100 * statistics.median(together) / statistics.median(alone) - 100:+.1f} %)"
        )
        browser.close()


if __name__ == "__main__":
    main()
