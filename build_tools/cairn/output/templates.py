"""Templates of HTML pages: whatever the values hold is shown as text, all of it; a page loads nothing."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Callable, Mapping
from types import MappingProxyType

import jinja2

from cairn.output import console, safe_text

# The words of a test record's verdict, of a demand's outcome and of a stage's mark; others have no colour.
_GOOD = ("passed", "released", "met")
_BAD = ("failed", "error", "invalid", "not met")
_SIGNS = {"met": "✓", "not met": "✗", "bypassed": "!", "failed": "✗", "kept": "="}
_SCHEMES = ("", "file", "http", "https")


def render(
    package: str,
    name: str,
    /,
    *,
    filters: Mapping[str, Callable[..., object]] = MappingProxyType({}),
    **values: object,
) -> str:
    """The page that a template makes of values.

    Args:
        package: where the template lies.
        name: its file name. It may include `page.css`, which our reports have in common.
        filters: functions that it may use, beside `clock`, `size`, `moment`, `tone`, `sign` and `address`.
        values: what it shows.
    """
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package, "."), jinja2.PackageLoader("cairn.output", ".")]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_seen,
    )
    environment.filters.update(clock=console.clock, size=console.size, moment=_moment)
    environment.filters.update(tone=_tone, sign=_sign, address=_address)
    environment.filters.update(filters)
    return environment.get_template(name).render(**values)


def _seen(value: object) -> object:
    """A value as the page shows it: without characters that turn or hide the text around them."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # the latter: markup of ours (MarkupSafe)
        return value
    return "\n".join(map(safe_text.visible, value.split("\n")))


def _tone(word: str) -> str:
    """The colour of a verdict."""
    return "good" if word in _GOOD else "bad" if word in _BAD else "plain"


def _sign(word: str) -> str:
    """The sign before a verdict, for readers who do not see colours."""
    return _SIGNS.get(word, "")


def _moment(text: str) -> str:
    """A time in a form that is easy to read; a text that is not a time stays as it is."""
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return text


def _address(target: str) -> str:
    """A link's target, if it leads to a file or a page and runs nothing."""
    try:
        parts = urllib.parse.urlsplit(target)
    except ValueError:
        return "#"
    return target if parts.scheme in _SCHEMES else "#"
