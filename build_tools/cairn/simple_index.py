"""Reading the pages of a package index: which projects it has, and which files a project has.

They are of HTML (PEP 503), or of JSON (PEP 691) where a server gives nothing else.

The pages need not lie where they are asked for: the root of AMD's index only routes. Links count from the
`<base href>` of a page, else from where redirections end. A hash, a sidecar with the metadata (PEP 658, 714),
and the `data-` attributes may be there or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import msgspec
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from cairn import package_index, web
from cairn.errors import NetworkError
from cairn.output import Progress, silent, wording
from cairn.package_index import TIP

# The end of a tag is optional, so that nothing is looked at twice: a page is as long as its server likes.
_TAG = re.compile(r"<(a|base)(?=\s)((?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+)(>?)", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"([a-z][a-z0-9-]*+)(?:\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'>]++)))?", re.IGNORECASE
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})", re.IGNORECASE)
_PAGE = 1 << 24  # bytes of a page or of a METADATA; a larger one is refused
_SECONDS = 60.0
_SHOWN = 3  # versions that are named


class IndexFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the page of a project.

    Attributes:
        name: its file name.
        url: where it is, without a fragment.
        sha256: of its bytes; None where the page does not say.
        requires_python: the Pythons it is for, or None.
        has_metadata: its METADATA can be had by itself, at `url` and `.metadata`.
        yanked: only who asks for exactly this version should get it (PEP 592).
    """

    name: str
    url: str
    sha256: str | None
    requires_python: str | None = None
    has_metadata: bool = False
    yanked: bool = False


def root(index_url: str) -> str:
    """Return the address of an index, which may be a path, with a slash at its end."""
    place = index_url if "://" in index_url else Path(index_url).absolute().as_uri()
    return f"{place.rstrip('/')}/"


def projects(index_url: str) -> tuple[str, ...]:
    """Return the names of the projects that an index lists; none where its root is no page (404).

    Raises:
        NetworkError: it does not answer.
    """
    links = _links(root(index_url), may_lack=True)
    return tuple(dict.fromkeys(_last(link) for link, _ in links))


def files(index_url: str, project: str, *, may_lack: bool = True) -> tuple[IndexFile, ...]:
    """Return the files of a project; none where the index has no page of it and `may_lack` one (404).

    Raises:
        NetworkError: the index does not answer, or gives one file name two hashes.
    """
    page = f"{root(index_url)}{project}/"
    by_name: dict[str, IndexFile] = {}
    for link, values in _links(page, may_lack=may_lack):
        file = IndexFile(
            name=_last(link),
            url=urldefrag(link).url,
            sha256=match[1].lower() if (match := _SHA256.fullmatch(urldefrag(link).fragment)) else None,
            requires_python=values.get("data-requires-python") or None,
            has_metadata=any(
                values.get(name, "false") != "false"
                for name in ("data-core-metadata", "data-dist-info-metadata")
            ),
            yanked="data-yanked" in values,
        )
        if by_name.setdefault(file.name, file).sha256 != file.sha256:
            raise NetworkError(f"{page} has two files named {file.name}, with different hashes", tip=TIP)
    return tuple(by_name.values())


def versions(index_url: str, project: str) -> tuple[Version, ...]:
    """Return the versions of a project that an index has, the newest first.

    Raises:
        NetworkError: the index does not answer, or is none.
    """
    distinct = set[Version]()
    for file in files(index_url, project):
        parse = parse_wheel_filename if file.name.endswith(".whl") else parse_sdist_filename
        with contextlib.suppress(ValueError):  # no file of a distribution, or a number too long to read
            distinct.add(parse(file.name)[1])
    if not distinct and (problem := package_index.index_problem(index_url, project)):
        raise NetworkError(problem, tip=TIP)
    return tuple(sorted(distinct, reverse=True))


def instead(index_url: str, project: str) -> str:
    """Return which versions an index has, in words, for who misses a different one."""
    newest = [str(version) for version in versions(index_url, project)]
    return f"it has {project} {wording.some(newest, shown=_SHOWN)}" if newest else f"it has no {project}"


def metadata(file: IndexFile) -> bytes | None:
    """Return a wheel's METADATA by the sidecar of its page; None where there is none.

    Raises:
        NetworkError: the index does not answer.
    """
    url = f"{file.url}.metadata"
    return web.whole(url, most=_PAGE, timeout=_SECONDS, tip=TIP) if file.has_metadata else None


class _Hashed:
    """Writes to a file, hashes what is written, and says how much that is."""

    def __init__(self, out: IO[bytes], say: Progress) -> None:
        self.sha256 = hashlib.sha256()
        self._out, self._say, self._count = out, say, 0

    def write(self, data: bytes, /) -> int:
        self.sha256.update(data)
        self._count += len(data)
        self._say(f"{self._count / 1e6:.0f} MB")
        return self._out.write(data)


def download(file: IndexFile, path: Path, *, say: Progress = silent) -> str:
    """Write a file of an index to a path, and return its sha256; it is not compared with any.

    Raises:
        NetworkError: it is not there, or has more bytes than `web.most_of` allows.
    """
    most = web.most_of(path.parent)
    with path.open("wb") as raw:
        out = _Hashed(raw, say)
        if not web.read(file.url, out=out, most=most + 1, timeout=_SECONDS, tip=TIP):
            raise NetworkError(f"there is no {web.shown(file.url)}", tip=TIP)
    if path.stat().st_size > most:
        path.unlink()
        raise NetworkError(
            web.too_large(file.url, most),
            tip="free disk space, or ask whoever runs the index what it sends",
        )
    return out.sha256.hexdigest()


def _links(page: str, *, may_lack: bool) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The links of a page with the attributes of each.

    Left out are links that are no address, and those that lead from a server to a file of this machine.
    """
    out = io.BytesIO()
    whole = f"{page}index.html" if page.startswith("file:") else page
    base = web.read(whole, out=out, most=_PAGE + 1, timeout=_SECONDS, tip=TIP)
    if out.tell() > _PAGE:
        raise NetworkError(f"{whole} is larger than {_PAGE >> 20} MiB, and was not read", tip=TIP)
    if not base:
        if may_lack:
            return
        raise NetworkError(f"there is no {page}", tip=TIP)
    text = out.getvalue().decode("utf-8", "replace")
    links = _json_links(text, base) if text.lstrip().startswith("{") else _html_links(text, base)
    schemes = {"file"} if page.startswith("file:") else set()
    for link, values in links:
        if urlsplit(link).scheme in {"http", "https", *schemes}:
            yield web.with_credentials(link, base), values


def _html_links(text: str, page: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    text = _COMMENT.sub("", text)
    tags = [(match[1].lower(), _attributes(match[2])) for match in _TAG.finditer(text) if match[3]]
    href = next((values["href"] for tag, values in tags if tag == "base" and "href" in values), "")
    try:
        base = urljoin(page, href)
    except ValueError as error:
        raise NetworkError(f"{page} names a base that is no address: {href[:80]!r}", tip=TIP) from error
    for tag, values in tags:
        if tag == "a" and "href" in values:
            with contextlib.suppress(ValueError):
                yield urljoin(base, values["href"]), values


def _json_links(text: str, page: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The same of a page in JSON (PEP 691), with the attributes that it would have in HTML."""
    try:
        content = json.loads(text)
        for project in content.get("projects", ()):
            yield urljoin(page, f"{quote(project['name'])}/"), {}
        for file in content.get("files", ()):
            sha256 = file["hashes"].get("sha256")
            beside = file.get("core-metadata", file.get("dist-info-metadata"))
            values = {
                "data-requires-python": file.get("requires-python") or "",
                "data-core-metadata": "true" if beside else "false",
            } | ({"data-yanked": ""} if file.get("yanked") else {})
            link = urldefrag(urljoin(page, file["url"])).url
            yield f"{link}{f'#sha256={sha256}' if sha256 else ''}", values
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NetworkError(f"{web.shown(page)} is no page of a package index", tip=TIP) from error


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a tag; of two of one name the first counts, as in HTML."""
    values: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        values.setdefault(match[1].lower(), html.unescape(match[2] or match[3] or match[4] or ""))
    return values


def _last(link: str) -> str:
    return unquote(urlsplit(link).path.rstrip("/").rpartition("/")[2])
