"""How a night is named: by its id, or by `ID@DIGEST` where others may write to the store."""

from __future__ import annotations

import re

from cairn.errors import UsageError
from cairn.release.trust import anchor
from cairn.store.protocol import Reader

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_id(night: str) -> str:
    """Return `night` if it is a valid id.

    Raises:
        UsageError: it is not.
    """
    if not _ID.fullmatch(night):
        raise UsageError(f"{night[:100]!r} cannot name a night", tip="use letters, digits, dots and dashes")
    return night


def taken_apart(name: str) -> tuple[str, str]:
    """Return the id of a night, and the sha256 of its night.json, or "" where it is named by its id alone."""
    night, _, digest = name.partition("@")
    return night, digest


def refuse_unnamed(reader: Reader, name: str) -> None:
    """Refuse a night by its id alone in a store with a root: nobody signs nights, and others may write there.

    Raises:
        UsageError: it is named so.
    """
    if not taken_apart(name)[1] and anchor.anchor(reader) is not None:
        raise UsageError(
            f"in a store with a root, {name} does not say whose night it is: others may have put it there",
            tip="name it as the log of its freezing does, ID@DIGEST; or freeze another",
        )
