"""A plugin of pytest-xdist: all tests of a file in one worker, and files in their order.

What the fixtures of a module, or of the session, have made is then made once, and not by each worker. Marks
`xdist_group` join tests of several files. Of the files, those of `e2e` come first, and of these each takes
minutes; the quick ones of `unit` come last, so that no worker has much left when another one has nothing.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]


class ByFile(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """The scheduler of `--dist loadgroup`, for which a file is a group where no mark names one."""

    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else str(group)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Say which scheduler gives out the tests."""
    config.option.loadscopereorder = False  # which would begin with the files of most tests, not the dearest
    return ByFile(config, log)
