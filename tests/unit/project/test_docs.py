"""What the pages point at is there."""

import re
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
