"""Where everything lies in a store; the only module that spells keys.

    files/<sha256[:2]>/<sha256>/<file name>             written once; all channels share them
    files/…/<file name>.metadata                        METADATA or PKG-INFO of the file (PEP 658)
    <index>/state.json                                  the one mutable object: what the index holds
    <index>/state/<sha256[:2]>/<sha256>.json            a project or a set of the state; immutable
    <index>/journal/<entry>.json, journal/open/…        changes that have ended, and those under way
    <index>/simple/…/index.html and index.json          pages, which can be made again from the state
    <index>/sets/<set id>/set.json, gate.json, records/ the set, and what let it in
    <index>/sets/<set id>/simple/…                      an index of exactly that set

`<index>` is a channel (`release`), or a channel and a family (`release/gfx110X-all`).
"""

from __future__ import annotations

import re
import urllib.parse

from cairn import targets
from cairn.errors import UsageError
from cairn.output import wording

CHANNELS = ("staging", "release", "dev", "nightly", "prerelease")
"""Every channel that there can be, so that a mistyped name never begins a new one."""

GATED = frozenset({"release", "prerelease", "nightly"})
"""Those that users install from: sets come into them through the gate alone."""

FOLDERS = frozenset({"files", ".locks", *CHANNELS})
"""What is in the folder of a store, also of one whose first change did not get to its end."""

# What a store consists of, and so all that may be served of the folder it is in. A name has no `/`, so that
# no key leaves its place; `gate.json` is for audits and is not served.
_PAGES = r"simple(/[a-z0-9-]+)?(/index\.(html|json))?"
_OWN = re.compile(
    r"files/[0-9a-f]{2}/[0-9a-f]{64}/[^/]+"
    rf"|({'|'.join(CHANNELS)})(/[A-Za-z0-9-]+)?/"
    rf"(state\.json|state/[0-9a-f]{{2}}/[0-9a-f]{{64}}\.json|journal/(open/)?[^/]+\.json|{_PAGES}"
    rf"|sets/[0-9a-f]{{64}}/({_PAGES}|set\.json|records/[0-9a-f]{{64}}\.json))"
)


def checked_channel(name: str) -> str:
    """`name`, if it is that of an index: a channel, or a channel and a family (`release/gfx110X-all`).

    Raises:
        UsageError: there is no such channel, or no such family.
    """
    channel, slash, family = name.partition("/")
    if channel not in CHANNELS:
        tip = wording.did_you_mean(channel, CHANNELS, what="the channels are")
        raise UsageError(f"{channel!r} is not a channel", tip=tip)
    known = (*targets.families(), *targets.known_targets()) if slash else ()
    if slash and family not in known:
        near = wording.nearest(family, known)
        tip = wording.did_you_mean(family, near or targets.index_families(), what="the families are")
        raise UsageError(f"{name!r} is not an index: there is no family {family!r}", tip=tip)
    return name


def is_gated(index: str) -> bool:
    """Whether sets come into an index through the gate alone."""
    return index.partition("/")[0] in GATED


def possible_indexes() -> tuple[str, ...]:
    """The name of every index that a store may have."""
    families = dict.fromkeys((*targets.families(), *targets.known_targets()))
    return (*CHANNELS, *(f"{channel}/{family}" for channel in CHANNELS for family in families))


def is_own(key: str) -> bool:
    """Whether a store may have something under `key`, a folder of pages included."""
    return _OWN.fullmatch(key) is not None


def file_key(sha256: str, filename: str) -> str:
    """A published file; its digest is in its key, so the key never stands for other bytes."""
    return f"files/{sha256[:2]}/{sha256}/{filename}"


def sidecar_key(sha256: str, filename: str) -> str:
    """The metadata of a published file (PEP 658: the file's own address and `.metadata`)."""
    return f"{file_key(sha256, filename)}.metadata"


def state_key(channel: str) -> str:
    """The one mutable object that decides what a channel holds."""
    return f"{channel}/state.json"


def object_key(channel: str, digest: str) -> str:
    """A part of the state, under the digest of its bytes."""
    return f"{channel}/state/{digest[:2]}/{digest}.json"


def journal_key(channel: str, entry_id: str) -> str:
    """The record of a change that has ended."""
    return f"{channel}/journal/{entry_id}.json"


def open_journal_prefix(channel: str) -> str:
    """Where changes under way are recorded."""
    return f"{channel}/journal/open/"


def open_journal_key(channel: str, entry_id: str) -> str:
    """The record of a change under way."""
    return f"{open_journal_prefix(channel)}{entry_id}.json"


def set_key(channel: str, set_id: str, name: str) -> str:
    """Something kept beside a set's index, such as its `set.json`."""
    return f"{channel}/sets/{set_id}/{name}"


def simple_prefix(channel: str, set_id: str | None = None) -> str:
    """The index of a channel, or of one set in it."""
    return f"{channel}/simple/" if set_id is None else f"{channel}/sets/{set_id}/simple/"


def index_url(base: str, channel: str, set_id: str | None = None) -> str:
    """What to give to `--index-url` for a store that is served (or lies) at `base`."""
    return f"{base.rstrip('/')}/{simple_prefix(channel, set_id)}"


def relative_file_url(sha256: str, filename: str, *, prefix: str) -> str:
    """The link to a file from a project's page below `prefix`.

    Every character that means something in a URL is encoded, first of all the `+` of a local version,
    which some servers read as a space.
    """
    # Relative, so that the same pages serve below any address; the page lies one folder below its prefix.
    up = "../" * (prefix.count("/") + 1)
    return up + "/".join(urllib.parse.quote(part, safe="") for part in file_key(sha256, filename).split("/"))
