"""Where installers put the members of a wheel, and which of them no installed program uses."""

from __future__ import annotations

import re

# The binary distribution format, "The .data directory": these two are the folder that all else goes to.
_SITE = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
_TESTS = frozenset(("test", "tests", "testing", "selftest", "testdata", "test_data", "fixtures"))


def installed(path: str) -> str:
    """The place of a member, counted from site-packages where it goes there: pip merges these folders."""
    return _SITE.sub("", path, count=1) if _SITE.match(path) else path


def is_of_tests(path: str) -> bool:
    """Whether a member lies among tests, whose data may be wrong on purpose."""
    return not _TESTS.isdisjoint(map(str.lower, path.split("/")[:-1]))
