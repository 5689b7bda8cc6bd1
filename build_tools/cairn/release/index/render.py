"""Render index pages from state: HTML (PEP 503) and JSON (PEP 691) with the same content.

Also carried: yanked files (PEP 592), metadata sidecars (PEP 658 with the names of PEP 714), versions,
sizes and upload times (PEP 700), the status of a project (PEP 792). What HTML has no agreed attribute
for is in `data-` attributes of our own and in readable text. The same state gives the same bytes.

The HTML is for people too. Its only links are the files: pip and uv take every link of a page for a file, so
whatever else leads somewhere is a button. Files of one version stand together, the newest first, and what all
of them have in common stands there once.

A page of 5,000 files is made whenever one more of them comes. So most lines are copied from the page before
(`project_page`), and the others are put together from strings, each escaped where it comes in: a whole page
takes 75 ms, and by a template 165 ms (and 20 ms for importing Jinja2). Its bytes must not change without
need: the pages of a set are written once and compared for ever (`write.create`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cairn.output import safe_text
from cairn.output.console import size as readable_size
from cairn.release.index import keys
from cairn.release.index.generation import (
    FileEntry,
    ProjectState,
    VariantsFile,
    comparable,
    variants_of,
)
from cairn.store.protocol import etag_of
from cairn.templates import script_source, source
from cairn.wheels.metadata import tag_words

L = TypeVar("L")
_Version = tuple[str, list[FileEntry], bool]  # with its files, and whether it is unfolded
_File = tuple[FileEntry, bool]  # with whether it is the first of its page
Pieces = tuple[bytes | slice, ...]
_Section = tuple[bytes, Sequence[L], Sequence[L]]  # a frame, its lines, and the next line, if any
API_VERSION = "1.4"  # of the simple API: the first with project status (PEP 792)
_PLAIN = re.compile("[A-Za-z0-9 .,:;+_=/!-]*").fullmatch  # neither escaped in HTML nor unseen
_RENDERING = 1  # raised with every change of a page's bytes: lines are copied within one rendering alone
_OPEN = 3  # versions that are unfolded from the beginning
_LINES = b"<\0>"  # where the lines of a page stand in its frame: neither HTML nor JSON of ours has it
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page in both formats.

    Attributes:
        html, json: its bytes.
        pieces: the JSON and the HTML in pieces, where most of them are slices of the page before.
    """

    html: bytes
    json: bytes
    pieces: tuple[Pieces, Pieces] = field(default=((), ()), compare=False)

    @functools.cached_property
    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(etag_of(self.html), etag_of(self.json))


def digest_of(html_sha256: str, json_sha256: str) -> str:
    """The digest of a page in both formats in this rendering (`_RENDERING`), by the sha256 of each.

    Every part of a project has one, so it is written as short as in a wheel's RECORD.
    """
    digest = hashlib.sha256(f"rendering {_RENDERING} {html_sha256} {json_sha256}".encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def project_page(
    project: ProjectState, *, prefix: str, over: tuple[ProjectState, Page] | None = None
) -> Page:
    """Render the page of a project in the index at `prefix`.

    Args:
        project: what is offered.
        prefix: of the index.
        over: an earlier state and its page in this rendering (`_RENDERING`): the lines at the beginning
            and the end that both states have are copied. The page has the same bytes with it and without.
    """
    old, page = over or (None, None)
    ends = _shared(old.files, project.files) if old else (0, 0)
    new_html, new_json = _sections(project, prefix, ends, old)
    old_html, old_json = _sections(old, prefix, ends, project) if old else (None, None)
    html = _with_lines(
        new_html,
        (page.html, old_html) if page and old_html else None,
        start=lambda version: _version_start(version[0], is_open=version[2]).encode(),
        line=lambda version: _version(project.name, prefix, version).encode(),
    )
    json = _with_lines(
        new_json,
        (page.json, old_json) if page and old_json else None,
        start=_json_start,
        line=lambda file: b"," * (not file[1]) + msgspec.json.encode(_file_json(file[0], prefix)),
    )
    if not (html and json):  # `page` is not that of the earlier state
        return project_page(project, prefix=prefix)
    before = page or Page(html=b"", json=b"")
    return Page(html=joined(html, before.html), json=joined(json, before.json), pieces=(json, html))


def joined(pieces: Pieces, page: bytes) -> bytes:
    """The bytes of a page in pieces, some of which are slices of the page before."""
    view = memoryview(page)  # megabytes, which are copied once
    return b"".join(view[piece] if isinstance(piece, slice) else piece for piece in pieces)


def _with_lines(
    new: _Section[L],
    over: tuple[bytes, _Section[L]] | None,
    *,
    start: Callable[[L], bytes],
    line: Callable[[L], bytes],
) -> Pieces | None:
    """Put the lines of a page into its frame; those around them are copied from the page before.

    Args:
        new: the frame, with `_LINES`, and what each line between those that are copied is of.
        over: the page before, and the same of it, with what the next line that is copied is of, if any; None
            where `new` has all lines.
        start: the bytes that a line begins with, which stand nowhere else in a page.
        line: renders a line.

    Returns:
        None where the page before has other bytes than its state gives.
    """
    head, _, tail = new[0].partition(_LINES)
    rendered = map(line, new[1])
    if over is None:
        return (b"".join((head, *rendered, tail)),)
    page, (old_frame, old_lines, below) = over
    old_head, _, old_tail = old_frame.partition(_LINES)
    begin, end = len(old_head), len(page) - len(old_tail)
    changed = [begin]
    for lines in ((*old_lines, *below), below):
        changed.append(page.find(start(lines[0]), max(changed[-1], 0), end) if lines else end)
    if not (page.startswith(old_head) and page.endswith(old_tail) and begin <= changed[1] <= changed[2]):
        return None
    return head, slice(begin, changed[1]), b"".join(rendered), slice(changed[2], end), tail


def _sections(
    project: ProjectState, prefix: str, ends: tuple[int, int], beside: ProjectState | None
) -> tuple[_Section[_Version], _Section[_File]]:
    """The frames and lines of the pages of a state, without the lines that another state shares.

    Args:
        project: the state.
        prefix: of the index.
        ends: how many files it has in common with `beside` at the beginning, and at the end.
        beside: the state whose page has the lines of these.
    """
    files, versions, (begin, end) = project.files, project.versions, ends
    numbered = [(file, number == 0) for number, file in enumerate(files[begin : len(files) - end + 1], begin)]
    count = len(files) - end - begin
    json = _json_frame(project, prefix, versions), numbered[:count], numbered[count:]
    begin, end, newer = _of_whole_versions((files, beside.files if beside else ()), begin, end)
    changed = _versions(files[begin : len(files) - end], newer)
    below = _versions(files[_whole(files, max(begin - 1, 0)) : begin], newer + len(changed))
    return (_html_frame(project, prefix, versions), changed, below), json


def _shared(old: Sequence[FileEntry], new: Sequence[FileEntry]) -> tuple[int, int]:
    """The number of files that two states have in common at the beginning, and at the end."""
    least = min(len(old), len(new))
    begin = min(_alike(old, new), least)
    least = max(least - max(begin, 1), 0)  # the first line of a JSON page is unlike all others
    return begin, min(_alike(reversed(old), reversed(new)), least)


def _alike(old: Iterable[FileEntry], new: Iterable[FileEntry]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a is not b and a != b), sys.maxsize)


def _of_whole_versions(states: Sequence[Sequence[FileEntry]], begin: int, end: int) -> tuple[int, int, int]:
    """Of files that states share at both ends, those whose versions have the same lines.

    Returns:
        The number of the oldest, that of the newest, and the number of versions that these are of.
    """
    for files in states:
        begin, end = _whole(files, begin), _whole(files[::-1], end)
    files = states[0]
    newer = len({file.version for file in files[len(files) - end :]})
    for _ in range(newer, _OPEN):  # they may be unfolded in the page of one state alone
        begin = _whole(files, max(begin - 1, 0))
    return begin, end, newer


def _whole(files: Sequence[FileEntry], count: int) -> int:
    """The number of files, at most `count`, after which another version begins."""
    while 0 < count < len(files) and comparable(files[count - 1].version) == comparable(files[count].version):
        count -= 1
    return count


def root_page(names: Iterable[str], *, serial: int = 0) -> Page:
    """Render the page that lists every project; `serial` is the generation that last changed the list."""
    ordered = sorted(names)
    plain = {"meta": _api(serial), "projects": [{"name": name} for name in ordered]}
    return Page(html=html_of_root(ordered, serial=serial), json=_json(plain))


def _json_frame(project: ProjectState, prefix: str, versions: Sequence[str]) -> bytes:
    """The JSON page of a project, with `_LINES` for its files."""
    status: dict[str, str] = {"status": project.status}
    if project.status_reason:
        status["reason"] = project.status_reason
    plain = {
        "meta": _api(project.serial),
        "name": project.name,
        "project-status": status,
        "versions": versions,
        "files": [],
    }
    variants = (b"," + msgspec.json.encode(_described(file, prefix)) for file in variants_of(project.files))
    return _json(plain).replace(b"]}\n", b"".join((_LINES, *variants, b"]}\n")))


def _json_start(file: _File) -> bytes:
    return b"," * (not file[1]) + b'{"filename":' + msgspec.json.encode(file[0].filename)


def _file_json(file: FileEntry, prefix: str) -> dict[str, Any]:
    plain: dict[str, Any] = {
        **_described(file, prefix),
        "core-metadata": {"sha256": file.metadata_sha256} if file.metadata_sha256 else False,
        # PEP 691: the reason, or true where none was given.
        "yanked": file.yanked or file.yanked is not None,
    }
    if file.upload_time is not None:
        plain["upload-time"] = file.upload_time
    if file.provenance is not None:
        name = "provenance" if file.provenance_kind == "pep740" else "_key-provenance"
        plain[name] = provenance_url(file, prefix)
    if file.requires_python is not None:
        plain["requires-python"] = file.requires_python
    if file.untested is not None:
        # PEP 691 leaves names that begin with an underscore to the index.
        plain["_untested"] = file.untested
    if file.failed is not None:
        plain["_failed"] = file.failed
    return plain


def _described(file: FileEntry | VariantsFile, prefix: str) -> dict[str, Any]:
    return {
        "filename": file.filename,
        "url": file_url(file, prefix),
        "hashes": {"sha256": file.sha256},
        "size": file.size,
    }


def _api(serial: int) -> dict[str, Any]:
    return {"_last-serial": serial, "api-version": API_VERSION} if serial else {"api-version": API_VERSION}


def _json(plain: dict[str, Any]) -> bytes:
    # Short, since the pages of large projects have thousands of files; the same state gives the same bytes.
    return msgspec.json.encode(plain) + b"\n"


def _html_frame(project: ProjectState, prefix: str, versions: Sequence[str]) -> bytes:
    """The HTML page of a project, with `_LINES` for its versions."""
    count = f"{len(versions)} version{_s(versions)}, {len(project.files)} file{_s(project.files)}"
    status: list[str] = [] if project.status == "active" else [project.status]
    head = _serial(project.serial) + _meta("pypi:project-status", project.status)
    if project.status_reason:
        status.append(project.status_reason)
        head += _meta("pypi:project-status-reason", project.status_reason)
    return document(
        f"Links for {project.name}",
        f"<h1>{_text(project.name)}</h1>\n<p>{count}</p>\n{_note(': '.join(status))}"
        f"{_install_line('pip', prefix, project.name)}{_install_line('uv pip', prefix, project.name)}"
        f"<form>\n<p>{_ways_up(prefix)}</p>\n{_LINES.decode()}</form>\n",
        head=head,
    )


def _versions(files: Iterable[FileEntry], newer: int) -> list[_Version]:
    """The versions of files, newest first, each with its files; `newer` others stand above them."""
    versions: dict[str, list[FileEntry]] = {}
    for file in files:
        versions.setdefault(file.version, []).append(file)
    newest_first = enumerate(reversed(versions.items()), newer)
    return [(version, files, number < _OPEN) for number, (version, files) in newest_first]


def _version_start(version: str, *, is_open: bool) -> str:
    return f"<details{' open' * is_open}><summary><b>{_text(version)}</b>"


def html_of_root(names: Sequence[str], *, serial: int) -> bytes:
    """Render the HTML page that lists every project, with one link to each; `serial` is the page's."""
    # A name that PEP 503 has normalised consists of characters that need no escape; one that was not is a
    # mistake further up, and still must not become markup.
    links = "".join(f'<li><a href="{_attribute(name)}/">{_text(name)}</a></li>\n' for name in names)
    count = f"{len(names)} package{_s(names)}"
    body = f"<h1>Packages</h1>\n<p>{count}</p>\n<ul class=names>\n{links}</ul>\n"
    return document("Projects", body, head=_serial(serial))


def document(title: str, body: str, *, head: str = "") -> bytes:
    """A complete HTML document in the style of simple pages; it loads nothing."""
    style, script = source("simple.css"), source("simple.js")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{_meta('pypi:repository-version', API_VERSION)}{head}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    ).encode()


def _install_line(program: str, prefix: str, name: str) -> str:
    # The script puts the address of the page in the place of URL, which this text cannot know.
    url = f'<span data-url="../">URL/{_text(prefix)}</span>'
    return f"<pre class=line><code>{program} install --index-url {url} {_text(name)}</code></pre>\n"


def _ways_up(prefix: str) -> str:
    pages = {"all packages": "../index.html"}
    if keys.is_own(f"{prefix.removesuffix('simple/')}index.html"):  # the index of a set has none
        pages["how to install"] = "../../index.html"
    return "".join(f'<button formaction="{address}">{name}</button>' for name, address in pages.items())


def _version(name: str, prefix: str, of_version: _Version) -> str:
    """Render a version: what all its files have in common, then each file."""
    version, files, is_open = of_version
    marks, notes, alone = "", "", (False, False, False)
    if any((file.untested, file.failed, file.yanked) != (None, None, None) for file in files):
        marks, notes, alone = _marks(files)
    items = "".join(_file_item(file, prefix, alone=alone) for file in files)
    items += "".join(_variants_item(file, prefix) for file in variants_of(files))
    day = max((file.upload_time or "" for file in files), default="")[:10]
    requirement = f"{name}=={version}"
    text = str if _PLAIN(f"{requirement}{day}") else _text
    return (
        f"{_version_start(version, is_open=is_open)}{marks} <i>{text(day)}</i></summary>\n"
        f"<p class=copy><code>{text(requirement)}</code></p>\n{notes}<ul>\n{items}</ul></details>\n"
    )


def _marks(files: Sequence[FileEntry]) -> tuple[str, str, tuple[bool, bool, bool]]:
    """The marks of a version, the notes that all its files share, and which of them only some have."""
    untested, yanked = {file.untested for file in files}, {file.yanked for file in files}
    failed = {file.failed for file in files}
    marks = " <b class=plain>! untested</b>" if untested != {None} else ""
    if yanked != {None}:
        marks += " <b class=bad>✗ yanked</b>" if None not in yanked else " <b class=bad>✗ partly yanked</b>"
    marks += " <b class=bad>✗ failed a test</b>" if failed != {None} else ""
    notes = _note(files[0].untested) if len(untested) == 1 else ""
    notes += _note(files[0].failed) if len(failed) == 1 else ""
    notes += _yank_note(files[0].yanked) if len(yanked) == 1 else ""
    return marks, notes, (len(untested) > 1, len(yanked) > 1, len(failed) > 1)


def _file_item(file: FileEntry, prefix: str, *, alone: tuple[bool, bool, bool]) -> str:
    """Render one file; `alone` says which marks (untested, yanked, failed) not all of its version have."""
    # Of thousands of names and digests hardly any needs an escape: to look once is faster than each time.
    unique = f"{file.filename}{file.sha256}{file.metadata_sha256}{file.upload_time}"
    text, attribute = (str, str) if _PLAIN(unique) else (_text, _attribute)
    facts = f"{_words(file.filename.split('-', 2)[-1])} · {_readable_size(file.size)}"
    if file.requires_python:
        facts += f" · Python {_repeated_text(file.requires_python)}"
    if file.upload_time:
        facts += f" · {text(file.upload_time[:16].replace('T', ' '))}"
    if file.provenance is not None:
        facts += f" · signed by a {'workflow' if file.provenance_kind == 'pep740' else 'local key'}"
    notes = _note(file.untested) if alone[0] else ""
    notes += _yank_note(file.yanked) if alone[1] else ""
    notes += _note(file.failed) if alone[2] else ""
    return (
        f"<li><a {_attributes(file, prefix, attribute)}>{text(file.filename)}</a>\n<p>{facts}</p>"
        f"<p class=copy>sha256 <code>{text(file.sha256)}</code></p>{notes}</li>\n"
    )


def _variants_item(file: VariantsFile, prefix: str) -> str:
    """Render the link to the description of a version's variants, which PEP 825 wants among the files."""
    url = file_url(file, prefix)
    return (
        f'<li><a href="{url}#sha256={_attribute(file.sha256)}" data-size="{file.size}">'
        f"{_text(file.filename)}</a>\n<p>what the wheel variants are for</p></li>\n"
    )


def _attributes(file: FileEntry, prefix: str, attribute: Callable[[str], str]) -> str:
    """The attributes that installers read: those that the JSON page has, and no more."""
    # A URL of ours has none of HTML's characters: it is encoded down to letters, digits and "%./-_~".
    attributes = f'href="{file_url(file, prefix)}#sha256={attribute(file.sha256)}"'
    if file.requires_python is not None:
        attributes += f' data-requires-python="{_repeated_attribute(file.requires_python)}"'
    if file.metadata_sha256:
        # PEP 714 has the new name, and for HTML allows the old one of PEP 658 beside it, with the same value.
        digest = attribute(file.metadata_sha256)
        attributes += f' data-core-metadata="sha256={digest}" data-dist-info-metadata="sha256={digest}"'
    if file.provenance is not None:
        # Clients of PEP 740 read what this leads to; what a key of one's own signed is not for them.
        kind = "data-provenance" if file.provenance_kind == "pep740" else "data-key-provenance"
        attributes += f' {kind}="{provenance_url(file, prefix)}"'
    if file.yanked is not None:
        attributes += f' data-yanked="{_attribute(file.yanked)}"'
    attributes += f' data-size="{file.size}"'
    if file.upload_time is not None:
        attributes += f' data-upload-time="{attribute(file.upload_time)}"'
    if file.untested is not None:
        attributes += f' data-untested="{_attribute(file.untested)}"'
    if file.failed is not None:
        attributes += f' data-failed="{_attribute(file.failed)}"'
    return attributes


def file_url(file: FileEntry | VariantsFile, prefix: str) -> str:
    """The URL of a file, relative to a page of the index at `prefix`."""
    return keys.relative_url(keys.file_key(file.sha256, file.filename), prefix=prefix)


def provenance_url(file: FileEntry, prefix: str) -> str:
    """The URL of a file's provenance, relative to a page of the index at `prefix`."""
    digest = file.provenance or ""
    return keys.relative_url(keys.provenance_key(file.sha256, file.filename, digest), prefix=prefix)


def _note(text: str | None) -> str:
    return f"<p class=note>! {_text(text)}</p>\n" if text else ""


def _yank_note(reason: str | None) -> str:
    return "" if reason is None else _note(f"yanked: {reason}" if reason else "yanked, without a reason")


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def _serial(serial: int) -> str:
    """The serial of the last change, as a comment like the one in PyPI's own pages."""
    return f"<!--SERIAL {serial}-->\n" if serial else ""


def _meta(name: str, content: str) -> str:
    return f'<meta name="{name}" content="{_attribute(content)}">\n'


def _attribute(value: str) -> str:
    """Escape a value for a quoted attribute, exactly, since installers read it."""
    return value if _PLAIN(value) else html.escape(value)


def _text(value: str) -> str:
    """Escape a value for people, with nothing in it hidden."""
    return value if _PLAIN(value) else html.escape(safe_text.visible(value))


# The same for values that many files share.
_repeated_text = functools.lru_cache(maxsize=1024)(_text)
_repeated_attribute = functools.lru_cache(maxsize=1024)(_attribute)
_readable_size = functools.lru_cache(maxsize=1024)(readable_size)


# What a file installs on, by all of its name after the version.
_words = functools.lru_cache(maxsize=1024)(lambda tags: _text(tag_words.of_file(f"x-0-{tags}")))


@functools.cache
def _policy(script: str) -> str:
    """A Content Security Policy, level 2: the browser runs this one script and loads nothing."""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; script-src {script_source(script)}"
    )
