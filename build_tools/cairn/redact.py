"""Secrets kept out of whatever is shown, logged or recorded."""

from __future__ import annotations

import re

# user:password@ or token@ in a URL of any scheme, up to the last @, since a password may hold one; the host
# that follows stays readable.
_USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)


def mask(text: str) -> str:
    """`text` with the user information of every URL in it replaced by `***`."""
    return _USERINFO.sub(r"\g<scheme>***@", text)
