"""Compare, resolve and mask the URLs and paths of origins."""

from __future__ import annotations

import hashlib
import os
import re

from cairn import files
from cairn.errors import SourceError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCP_LIKE = re.compile(r"(?:[^/@\s]+@)?(?P<host>[^/:\s]{2,}):(?!//)(?P<path>.*)")
# Up to the last @ before the path, as git's HTTP reads it: a password may hold one.
_HTTP_USER = re.compile(r"^(?P<scheme>https?://)[^/\s]+@", re.IGNORECASE)
_PASSWORD = re.compile(r"^(?P<user>[a-z][a-z0-9+.-]*://[^/:@\s]+):[^/\s]*@", re.IGNORECASE)


def absolute(origin: str) -> str:
    """Return an origin that is valid from any folder: a path becomes absolute, a URL stays.

    Raises:
        SourceError: it is empty, not UTF-8, or would be read as an option.
        UsageError: it is below a home folder that is not known.
    """
    # Bytes that are not UTF-8 (PEP 383) could not be written into a manifest.
    if not origin.strip() or origin.startswith("-") or re.search("[\ud800-\udfff]", origin):
        raise SourceError(
            f"{origin!r} is not a valid origin", tip="give a git URL or the path of a repository"
        )
    if is_local(origin):
        return os.path.abspath(files.expanded(origin))  # noqa: PTH100 - links stay as the user wrote them
    return origin


def is_local(origin: str) -> bool:
    """Whether an origin is a path on this machine: no scheme, and no `host:` before a slash (git-clone)."""
    return not _SCHEME.match(origin) and not _SCP_LIKE.fullmatch(origin)


def without_credentials(origin: str) -> str:
    """The origin as it may be written down. The user of an ssh URL is part of the address and stays."""
    return _PASSWORD.sub(r"\g<user>@", _HTTP_USER.sub(r"\g<scheme>", origin))


def identity(origin: str) -> str:
    """Normalize an origin for comparison: no credentials, no `.git`, no trailing slash."""
    plain = without_credentials(origin).rstrip("/")
    return plain if is_local(origin) else plain.removesuffix(".git")


def slug(origin: str) -> str:
    """Return a readable file name that is unique to an origin."""
    same = identity(origin)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(re.split(r"[/:\\]+", same)[-2:])).strip("-.")
    return f"{readable[-60:]}-{hashlib.sha256(same.encode()).hexdigest()[:12]}"


def is_relative(origin: str) -> bool:
    """Whether an origin is relative to that of the repository that names it."""
    return origin.startswith(("./", "../"))


def resolve(base: str, relative: str) -> str:
    """Resolve the origin `relative` against `base`, the origin of the repository that names it.

    The rule is that of submodule URLs (gitmodules(5)): only what starts with `./` or `../` is relative; each
    `../` takes one component off `base`, and a component may be what follows a colon.

    Raises:
        SourceError: there are more `../` than `base` has components.
    """
    if not is_relative(relative):
        return relative
    result, rest, separator = base.rstrip("/"), relative, "/"
    while True:
        if rest.startswith("../"):
            result, separator = _parent(result, relative)
            rest = rest[3:]
        elif rest.startswith("./"):
            rest = rest[2:]
        else:
            return f"{result}{separator}{rest}".rstrip("/")


def _parent(base: str, relative: str) -> tuple[str, str]:
    scheme = match.end() if (match := _SCHEME.match(base)) else 0
    for separator in "/:":
        cut = base.rfind(separator, scheme)
        if cut > 0 or (cut == 0 and separator == "/"):
            return base[:cut], separator
    raise SourceError(f"{relative} leads out of {without_credentials(base)}")
