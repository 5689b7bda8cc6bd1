"""Which object of a store an address means, by its text alone."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from http import HTTPStatus

from packaging.utils import canonicalize_name

from cairn.release.index import keys
from cairn.release.serve.request import RefusedError

PAGES = ("index.html", "index.json")
"""What stands for a folder."""

_NAME = 255  # bytes; no file system has longer names
_ABSOLUTE = re.compile(r"\Ahttps?://[^/?#]*", re.IGNORECASE)  # the form for proxies: RFC 9112, section 3.2.2
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What an address names.

    Attributes:
        key: an object; None where the address can only be that of a folder.
        pages: the keys of the pages that may stand for it as a folder, by their names.
        add_slash: where the links on such a page hold, relative to the address; None for one with a slash at
            its end.
    """

    key: str | None
    pages: dict[str, str]
    add_slash: str | None


def find(target: str) -> Place:
    """What the target of a request names among all that a store may have.

    A folder with a store may have other files too, and the folder of a store may be named by mistake: what
    `keys.is_own` does not know is not there.

    Raises:
        RefusedError: it is malformed (400), is nothing of a store (404), or has the name of a project not in
            its normal form (301, PEP 503).
    """
    *folders, last = parts = _parts(target)
    if "" in folders[1:] or any(part.startswith(".") or "/" in part or "\\" in part for part in parts):
        raise RefusedError(HTTPStatus.NOT_FOUND)
    if any(len(part.encode()) > _NAME for part in parts):
        raise RefusedError(HTTPStatus.NOT_FOUND)
    if canonical := _canonical(parts):
        raise RefusedError(HTTPStatus.MOVED_PERMANENTLY, {"Location": canonical})
    key = "/".join(part for part in parts if part)
    pages = {name: page for name in PAGES if keys.is_own(page := f"{key}/{name}" if key else name)}
    own = keys.is_own(key)
    if not own and not pages:
        raise RefusedError(HTTPStatus.NOT_FOUND)
    # Relative, so that it holds behind any proxy; a name alone cannot lead to a different host.
    add_slash = f"./{urllib.parse.quote(last)}/" if last else None
    return Place(key=key if own and last else None, pages=pages, add_slash=add_slash)


def _parts(target: str) -> list[str]:
    """The decoded names between the slashes of an address; the first is empty, the last too for a folder."""
    path = _ABSOLUTE.sub("", target).partition("?")[0]
    if not path.startswith("/") or "#" in path or _BAD_ESCAPE.search(path):
        raise RefusedError(HTTPStatus.BAD_REQUEST)
    try:
        # Each by itself, so that `%2f` does not become a slash. A `+` is a plus, encoded or not.
        parts = [urllib.parse.unquote(part, errors="strict") for part in path.split("/")]
    except UnicodeDecodeError:
        raise RefusedError(HTTPStatus.BAD_REQUEST) from None
    if any(_CONTROL.search(part) for part in parts):
        raise RefusedError(HTTPStatus.BAD_REQUEST)
    return parts


def _canonical(parts: list[str]) -> str | None:
    """The page of a project whose name is not in its normal form (PEP 503), as a relative address."""
    try:
        place = parts.index("simple", 1)
        name, *rest = parts[place + 1 :]
    except ValueError:
        return None
    if name in PAGES or rest not in ([], [""], *([page] for page in PAGES)):
        return None
    found = str(canonicalize_name(name))
    if found == name or not keys.is_own("/".join([*parts[1 : place + 1], found])):
        return None
    return f"../{found}/{rest[0]}" if rest else f"./{found}/"
