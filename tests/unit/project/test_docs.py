"""What the pages point at is there."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "external-builds").glob("*/*.md")}
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")
_FILE = re.compile(r"`((?:build_tools|external-builds|benchmarks|docs|tests)/[^`\s*{<]+)`")


def pointed_at(page: Path) -> Iterator[Path]:
    text = page.read_text(encoding="utf-8")
    yield from (page.parent / link for link in _LINK.findall(text) if "://" not in link)
    yield from (ROOT / name for name in _FILE.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_points_at_is_there(page: Path) -> None:
    assert [place for place in pointed_at(page) if not place.exists()] == []


def test_pages_are_found() -> None:
    assert len(PAGES) >= 10
    assert sum(1 for page in PAGES for _ in pointed_at(page)) >= 40


def build_site(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder with `mkdocs.yml` and `docs`, into `site`."""
    for path in ROOT.glob("[!.]*"):
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder / "site"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_the_site_is_built_and_each_of_its_links_leads_somewhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)  # its folder is the root
    with (tmp_path / "docs" / "README.md").open("a", encoding="utf-8") as home:
        home.write("\n[no page](lost.md) and [no heading](#at-all)\n")
    done = build_site(tmp_path)
    # Both are found, and nothing else: without them, the site is good.
    assert done.returncode == 1, done.stderr
    assert "'lost.md'" in done.stderr
    assert "'#at-all'" in done.stderr
    assert done.stderr.count("WARNING") == 2, done.stderr
    page = (tmp_path / "site" / "start" / "release" / "index.html").read_text(encoding="utf-8")
    assert 'href="../../how-to/take-a-night-back/"' in page
    start = (tmp_path / "site" / "start" / "install" / "index.html").read_text(encoding="utf-8")
    assert 'href="../../project/RELEASES/"' in start
    # What axe finds in the theme as it is: text outside of landmarks, pale colours, what no key scrolls.
    assert ('<footer role="contentinfo">' in start, "Built with" in start) == (True, False)
    example = (tmp_path / "site" / "tutorial" / "four-nights" / "index.html").read_text(encoding="utf-8")
    assert ("css/site.css" in start, "<pre>" in example) == (True, False)
    assert '<pre tabindex="0">' in example
    assert "yank" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")
