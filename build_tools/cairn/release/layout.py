"""Where everything lies in a store; the only module that spells keys."""

from __future__ import annotations

import re
import urllib.parse

from cairn.errors import UsageError

_CHANNEL = re.compile(r"[a-z0-9][a-z0-9_-]*")
_RESERVED = frozenset({"files"})


def checked_channel(name: str) -> str:
    """`name`, if a channel can be called that.

    Raises:
        UsageError: it is not one path segment of lowercase letters, digits, `-` and `_`, or it is reserved.
    """
    if not _CHANNEL.fullmatch(name) or name in _RESERVED:
        raise UsageError(
            f"{name!r} cannot name a channel",
            tip="use lowercase letters and digits, such as staging or release",
        )
    return name


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
    up = "../" * (prefix.count("/") + 1)
    return up + "/".join(urllib.parse.quote(part, safe="") for part in file_key(sha256, filename).split("/"))
