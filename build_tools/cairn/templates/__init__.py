"""Render the HTML pages for people: Jinja2 templates with one layout, one style sheet and one script.

A caller gives values to `page`; whatever they hold is shown as text. A page is one file that loads
nothing. The pages of `simple/` alone are not made here (`release.index.render` says why).
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import functools
import hashlib
import importlib.resources
import os
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.output import console, safe_text

if TYPE_CHECKING:
    import jinja2
    from jinja2.bccache import Bucket
    from markupsafe import Markup

# The words of a test record's verdict, of a demand's outcome and of a stage's mark; others have no colour.
_GOOD = ("passed", "released", "met")
_BAD = ("failed", "error", "invalid", "not met")
_SIGNS = {"met": "✓", "not met": "✗", "bypassed": "!", "failed": "✗", "kept": "="}
_SCHEMES = ("", "http", "https")  # of links: a path, or the web


def page(name: str, /, **values: object) -> str:
    """Render a template of this folder.

    Args:
        name: the template's name, without `.html.j2`.
        values: what it shows; functions among them can be called there.
    """
    return _environment().get_template(f"{name}.html.j2").render(**values)


@functools.cache
def source(name: str) -> str:
    """The text of a file of this folder, such as `page.js`."""
    return importlib.resources.files("cairn.templates").joinpath(name).read_text(encoding="utf-8")


def web_address(target: str) -> str:
    """The target of a link, if it is an address of the web, otherwise empty."""
    return _address(target, "http", "https")


def script_source(script: str) -> str:
    """The source expression of a Content Security Policy that allows this one script (CSP level 2)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@functools.cache
def _environment() -> jinja2.Environment:
    """The shared Jinja2 environment; each template is compiled when it is first used."""
    import jinja2  # noqa: PLC0415 - 25 ms, and few commands make a page

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cairn.templates", ""),
        autoescape=True,
        auto_reload=False,
        bytecode_cache=_bytecode_cache(),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    environment.filters.update(
        clock=console.clock,
        size=console.size,
        moment=_moment,
        tone=_tone,
        sign=lambda word: _SIGNS.get(word, ""),
        address=_address,
        lines=_lines,
        log=_log,
    )
    environment.globals.update(source=source, script_source=script_source)
    return environment


def _bytecode_cache() -> jinja2.BytecodeCache | None:
    """The cache of compiled templates: beside Python's own bytecode, with the same trust.

    None if Python writes no bytecode, or the user may not write there; each process then compiles for about
    45 ms.
    """
    import jinja2  # noqa: PLC0415

    class BytecodeCache(jinja2.FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Bucket) -> None:
            with contextlib.suppress(OSError):  # a full disk does not keep a page from being made
                super().dump_bytecode(bucket)

    folder = Path(__file__).parent / "__pycache__"
    if sys.dont_write_bytecode or not os.access(folder, os.W_OK):
        return None
    # The cache knows whether a template changed, but neither these options nor the version of the compiler.
    made = max(Path(file).stat().st_mtime_ns for file in (__file__, jinja2.__file__))
    return BytecodeCache(str(folder), f"%s.{made:x}.template")


def _visible(value: object) -> object:
    """A value on one line with invisible characters shown; our own markup stays as it is."""
    return safe_text.visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _lines(text: str) -> Markup:
    """A text that may have several lines, with invisible characters shown."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - comes with Jinja2

    return Markup("\n").join(escape(safe_text.visible(line)) for line in text.split("\n"))


def _log(text: str) -> Markup:
    """The output of a program, without terminal colours."""
    return _lines("\n".join(map(safe_text.without_moves, text.rstrip().split("\n"))))


def _tone(word: str) -> str:
    """The colour class for a verdict."""
    return "good" if word in _GOOD else "bad" if word in _BAD else "plain"


def _moment(text: str) -> str:
    """A time in a form that is easy to read; a text that is not a time stays as it is."""
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return text


def _address(target: str, *schemes: str) -> str:
    """A link's target if its scheme is one of these (by default a path or the web), otherwise empty."""
    try:
        scheme = urllib.parse.urlsplit(target).scheme
    except ValueError:
        return ""
    return target if scheme in (schemes or _SCHEMES) else ""
