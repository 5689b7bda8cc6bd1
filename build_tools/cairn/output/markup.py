"""HTML made of values: whatever is not markup of ours already is escaped, so no text becomes markup."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import urllib.parse
from collections.abc import Iterable

from cairn.output import safe_text

_VOID = frozenset({"br", "input", "link", "meta"})  # elements without content (HTML, 13.1.2)


class Markup(str):
    """Text that is HTML already: what `tag` gives, and fixed pieces; never a value of anyone's."""

    __slots__ = ()


LINE = Markup("\n")
"""The end of a line of markup; in a text it would be shown as an escape."""


def text(value: str) -> Markup:
    """A text as HTML shows it, nothing of it hidden; markup stays what it is."""
    return value if isinstance(value, Markup) else _escaped(value)


@functools.lru_cache(maxsize=4096)  # a page has the same few words a thousand times
def _escaped(value: str) -> Markup:
    # Never called with markup, which is equal to a text of the same letters.
    return Markup(html.escape(safe_text.visible(value)))


def tag(name: str, /, *content: str, **attributes: str | bool | None) -> Markup:
    """An element with its content.

    Args:
        name: of the element.
        content: texts, which are escaped, and elements.
        attributes: `class_` stands for `class`, `data_copy` for `data-copy`; False and None leave one out.
    """
    written = "".join(
        f" {key.strip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID else f"</{name}>"
    return Markup(f"<{name}{written}>{''.join(map(text, content))}{end}")


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Texts and elements one after another, with a text between them."""
    return Markup(text(between).join(map(text, parts)))


def link(target: str, *content: str) -> Markup:
    """A link where its target is a web address or a path; the bare content where it would run something."""
    try:
        safe = urllib.parse.urlsplit(target).scheme in ("", "http", "https")
    except ValueError:
        safe = False
    return tag("a", *content, href=target) if safe else tag("span", *content)


def document(title: str, *body: str, style: str, script: str) -> bytes:
    """A page that loads nothing from anywhere, and runs this script and no other.

    Args:
        title: of the page.
        body: its content.
        style: its style sheet.
        script: what makes it more convenient; it must do without.
    """
    # The browser runs this one text and no other (Content Security Policy, level 2).
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # `http-equiv` is not a name that a keyword argument can have.
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),  # else a browser asks the server for /favicon.ico
        tag("title", title),
        Markup(f"<style>{style}</style>"),
    )
    page = tag(
        "html",
        tag("head", join(head, LINE)),
        tag("body", *body, Markup(f"<script>{script}</script>")),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n".encode()
