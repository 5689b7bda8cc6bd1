"""How often, and for how long, anything is tried again after a network fault: backoff, jitter, patience."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import msgspec

from cairn.concurrency import pause
from cairn.errors import NetworkError
from cairn.output import Progress

T = TypeVar("T")

_MINUTE = 60.0  # seconds
_MOST_DOUBLINGS = 64  # of a wait: no number is too large then, however long an outage lasts


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how soon something is done again after a network fault.

    Attributes:
        attempts: tries in all.
        wait: seconds before the second try.
        factor: how much longer each further wait is.
        longest: seconds that no wait is longer than.
        jitter: by how much of its length a wait is made shorter or longer, at random. Clients that a server
            has turned away together come back one after the other.
    """

    attempts: int = 4
    wait: float = 1.0
    factor: float = 3.0
    longest: float = 30.0
    jitter: float = 0.25

    @classmethod
    def lasting(cls, seconds: float) -> RetryPolicy:
        """Return a policy that tries again until an outage has lasted so long, at least once a minute."""
        attempts, waited = 1, 0.0
        while waited < seconds:
            waited += min(_MINUTE, 2.0 ** min(attempts - 1, _MOST_DOUBLINGS))
            attempts += 1
        return cls(attempts=attempts, wait=1.0, factor=2.0, longest=_MINUTE)

    def seconds(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        wait = min(self.longest, self.wait * self.factor ** min(failures - 1, _MOST_DOUBLINGS))
        return wait * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - nothing secret


def retrying(call: Callable[[], T], *, retry: RetryPolicy, say: Progress) -> T:
    """Call `call`, again after each network fault, as often as `retry` says.

    Raises:
        NetworkError: the last try failed too.
    """
    for failures in range(1, retry.attempts):
        try:
            return call()
        except NetworkError as error:
            wait_after(error, failures, retry=retry, say=say)
    return call()


def wait_after(error: NetworkError, failures: int, *, retry: RetryPolicy, say: Progress) -> None:
    """Report what failed, for the `failures`-th time in a row, and wait: longer each time."""
    wait = retry.seconds(failures)
    say(f"{error}; trying again in {wait:.1f} s ({failures} of {retry.attempts - 1})")
    pause(wait)
