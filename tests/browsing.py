"""Chromium for the tests of pages: a page that complains, or that asks for anything from elsewhere, fails its test."""

from __future__ import annotations

import shutil

import pytest
from process_tools import HANGING

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; `make browser` installs it")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: the extra `test`")
    with sync_api.sync_playwright() as driver:
        # Chromium does not start its sandbox as root, as containers run; the pages are our own.
        patience = HANGING * 1_000  # in milliseconds
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=patience)
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(HANGING * 1_000)
    opened.complaints = []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("request", lambda request: opened.complaints.append(request.url) if "http" in request.url[:5] else None)
    yield opened
    assert opened.complaints == []
    opened.close()
