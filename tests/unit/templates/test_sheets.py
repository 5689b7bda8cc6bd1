"""Our pages can be read: by their colours, 4.5 to 1 (WCAG 2.2, 1.4.3), and where they are 390 pixels wide."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "build_tools" / "cairn"
SHEETS = sorted(path for path in PACKAGE.rglob("*.css") if "--page" in path.read_text(encoding="utf-8"))
# Texts in these colours stand on these grounds; a badge's colour on its own.
ON = {
    "ink": ("page", "card", "code", "good-page", "bad-page", "plain-page", "note"),
    "soft": ("page", "card", "code"),
    "link": ("page", "card"),
    "good": ("page", "card", "good-page", "bad-page"),
    "bad": ("page", "card", "bad-page", "good-page"),
    "plain": ("page", "card", "plain-page", "good-page", "bad-page", "note"),
}


def colours(sheet: Path) -> list[dict[str, str]]:
    """The variables of a sheet: in light, and in dark."""
    found = re.findall(r":root ?\{([^}]*)\}", sheet.read_text(encoding="utf-8"))
    light, dark = (dict(re.findall(r"--([a-z-]+): ?(#[0-9a-f]{3,6})", text)) for text in found)
    return [light, light | dark]


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, "relative luminance")."""
    digits = colour.removeprefix("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_every_text_can_be_read_on_its_ground(sheet: Path) -> None:
    pairs = [(ink, ground) for ink, grounds in ON.items() for ground in grounds]
    seen = 0
    for variables, (ink, ground) in itertools.product(colours(sheet), pairs):
        if ink in variables and ground in variables:
            seen += 1
            ratio = contrast(variables[ink], variables[ground])
            assert ratio >= 4.5, f"{ink} on {ground}: {ratio:.2f}"
    assert seen >= 10


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_nothing_is_wider_than_a_telephone(sheet: Path) -> None:
    text = sheet.read_text(encoding="utf-8")
    # `1fr` alone is as wide as the longest word (CSS Grid Layout 1, 7.2.3), whatever room there is.
    columns = "".join(re.findall(r"grid-template-columns: ?([^;}]*)", text))
    assert not re.search(r"[0-9.]+fr", re.sub(r"minmax\(0, ?[0-9.]+fr\)", "", columns)), columns
    # A name, a path or a sha256 has no place to break at.
    breaking = re.findall(r"([^{}]*)\{[^{}]*overflow-wrap: ?anywhere", text)
    names = {name.strip() for found in breaking for name in found.split(",")}
    assert "body" in names or {"h1", "h2", "li", "p"} <= names


def test_all_sheets_are_looked_at() -> None:
    assert {"page.css", "simple.css"} == {sheet.name for sheet in SHEETS}
    assert contrast("#000", "#ffffff") == pytest.approx(21)
