"""The site of the documentation: it builds without a warning, leads somewhere, and works from disk."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, which has cost no warning."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Links(HTMLParser):
    """Where a page of the site leads to, what it loads, and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.leads, self.loads, self.places = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.places.add(named.get("id") or "")
        if tag == "a" and named.get("href"):
            self.leads.append(named["href"])
        elif tag in ("link", "script", "img", "iframe"):
            self.loads += [named[name] for name in ("href", "src") if named.get(name)]


def test_links_of_the_site_lead_somewhere(site):
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > len([*(ROOT / "docs").rglob("*.md")])
    for path, page in pages.items():
        if path.name == "404.html":  # it is shown at any depth, so its links begin at the root
            continue
        for url in page.leads + page.loads:
            parts = urlsplit(url)
            if parts.scheme == "data":  # it is in the page
                continue
            if parts.scheme or parts.netloc:
                assert url not in page.loads, f"{path.name} loads {url} from elsewhere"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} -> {url}"
            if target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{path.name} -> {url}"


def test_internal_names_of_requirements_are_not_in_the_navigation(site):
    leads = Links((site / "index.html").read_text()).leads
    assert "getting-started.html" in leads
    assert not [url for url in leads if "requirements" in url or "plain-words" in url]


def test_the_site_is_searched_from_disk(page, site):
    page.goto((site / "index.html").as_uri())
    query = page.locator("input[name=query]")
    query.focus()
    query.press_sequentially("overestimation")
    found = page.locator(".md-search-result__item a").first
    found.wait_for()
    assert "overestimation" in found.get_attribute("href")


# What is wider than its frame, and cannot be seen without scrolling.
CUT_OFF = """() => [...document.querySelectorAll('.md-content pre code')]
    .filter(code => code.scrollWidth > code.clientWidth + 1).map(code => code.innerText.slice(0, 200))"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_line_of_code_is_cut_off(page, site, width):
    page.set_viewport_size({"width": width, "height": 900})
    for path in sorted(site.rglob("*.html")):
        if "<pre" in path.read_text() and "repository" not in path.parts and "reports" not in path.parts:
            page.goto(path.as_uri())
            assert page.evaluate(CUT_OFF) == [], path.name


def test_formulas_are_drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    hooks = importlib.import_module("mkdocs_hooks")
    shown = hooks.on_page_content('<p><span class="arithmatex">\\(\\tfrac12 Q_\\theta\\)</span></p>')
    assert "arithmatex" not in shown
    assert shown.count("<svg") == 1
    assert "currentcolor" in shown
    marks, names = set(re.findall(r"#([\w-]+)", shown)), set(re.findall(r'id="([\w-]+)"', shown))
    assert marks <= names, "a formula in the text's colour, on no ground of its own"
