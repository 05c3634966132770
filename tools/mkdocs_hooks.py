"""What the documentation site needs beyond Markdown: files outside `docs`, formulas without a script, wide listings.

Pages link to the repository's other files by relative paths, which work wherever the repository is shown.  For the site
each file that is linked becomes a page below `repository/`, and links are turned to it.  Formulas are drawn while the
site is built.
"""

from __future__ import annotations

import html
import io
import posixpath
import re
import zlib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(\]\()(\.\./[^)#\s]+)(#[^)\s]*)?(\))")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)
LISTING = re.compile(r'<div class="[^"]*highlight">.*?</div>', flags=re.DOTALL)
WIDE = 100  # characters of a listing's line at the usual size
INK = "#010203"  # stands for the text's own colour until the picture is drawn
# TeX that mathtext does not know, in words that it does.
SPELLINGS = [
    (r"\\[bB]igg?(?=[^a-z])", ""),
    (r"\\qquad", r"\\quad\\quad"),
    (r"\\tfrac12", r"\\frac{1}{2}"),
    (r"\\tfrac", r"\\frac"),
    (r"\\(mathcal|mathbf) (\w)", r"\\\1{\2}"),
    (r"\\!", ""),
    (r"\s+", " "),
]


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each file outside `docs` that a page links to."""
    wanted = {target for file in files.documentation_pages() for target in outside(file.src_uri, file.content_string)}
    for path in sorted(wanted):
        files.append(
            File.generated(config, page_of(path), content=as_page(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV)
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files outside `docs` to their pages."""
    here = posixpath.dirname(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        path = repository_path(page.file.src_uri, match[2])
        site = path.removeprefix("docs/") if path.startswith("docs/") else page_of(path)
        return match[1] + posixpath.relpath(site, here or ".") + (match[3] or "") + match[4]

    return LINK.sub(turned, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Draws the formulas, and marks listings whose lines are too long for the usual size."""
    content = FORMULA.sub(lambda match: drawn(html.unescape(match[2]), block=match[1] == "div"), content)
    return LISTING.sub(lambda match: widened(match[0]), content)


def widened(listing: str) -> str:
    """A listing that the site's style sets in small type where a line is long and the lines are columns of a table."""
    lines = html.unescape(re.sub(r"<[^>]*>", "", listing)).splitlines()
    wide = max(map(len, lines)) > WIDE and any("----  ----" in line for line in lines)
    return listing.replace('class="', 'class="wide ', 1) if wide else listing


def outside(source: str, markdown: str) -> list[str]:
    """The files outside `docs` that a page links to, by their paths in the repository."""
    paths = (repository_path(source, match[2]) for match in LINK.finditer(markdown))
    return [path for path in paths if not path.startswith("docs/")]


def repository_path(source: str, target: str) -> str:
    """Where a link from a page leads in the repository."""
    own = source.removeprefix("repository/") if source.startswith("repository/") else f"docs/{source}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(own), target))


def page_of(path: str) -> str:
    return f"repository/{path if path.endswith('.md') else path + '.md'}"


def as_page(path: Path) -> str:
    """A file of the repository as a page: Markdown as it is, code as a listing."""
    text = path.read_text()
    if path.suffix == ".md":
        return text
    return f"# {path.relative_to(ROOT)}\n\n````{'python' if path.suffix == '.py' else 'text'}\n{text}````\n"


def drawn(formula: str, block: bool) -> str:
    """A formula as a picture in the line, in the text's colour and size."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser, math_to_image

    tex = formula.strip()
    for pattern, spelling in SPELLINGS:
        tex = re.sub(pattern, spelling, tex)
    if block:
        tex = tex.replace(r"\frac", r"\dfrac")
    buffer, font = io.StringIO(), FontProperties(size=10)
    with rc_context({"mathtext.fontset": "cm", "svg.hashsalt": tex, "savefig.transparent": True}):
        math_to_image(f"${tex}$", buffer, prop=font, format="svg", color=INK)
        parsed = MathTextParser("path").parse(f"${tex}$", dpi=72, prop=font)
    svg = buffer.getvalue()[buffer.getvalue().index("<svg") :].replace(INK, "currentcolor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    mark = f"f{zlib.crc32(tex.encode()):08x}"
    svg = re.sub(r'(id="|href="#|url\(#)([\w-]+)', rf"\g<1>{mark}-\2", svg)  # no two pictures share a name
    width, height = (float(number) / 10 for number in re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2])
    drop = parsed.depth / 10
    size = f'style="width:{width:.2f}em;height:{height:.2f}em;vertical-align:-{drop:.2f}em;max-width:100%"'
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(formula.strip(), quote=True)}" {size}', 1)
    return f'<div class="formula">{svg}</div>' if block else svg
