"""What git's failures mean, and trying again when the network is at fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from cairn.concurrency import pause
from cairn.errors import CairnError, NetworkError, SourceError, SystemFailureError
from cairn.output import redact

T = TypeVar("T")

_MESSAGE_LIMIT = 400
_LINE_LIMIT = 2_000


class UnknownRefError(SourceError):
    """The origin has no such branch, tag or commit."""


class UnreachableError(SourceError):
    """There is no repository at the origin, or we may not read it; trying again would not help."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often and how fast a network fault is tried again.

    Attributes:
        attempts: tries in all.
        wait: seconds before the second try.
        factor: how much longer each further wait is.
    """

    attempts: int = 4
    wait: float = 1.0
    factor: float = 3.0


# The first that matches wins: a full disk, or a missing repository, ends in the same words as a lost line.
_KINDS: tuple[tuple[type[CairnError], tuple[str, ...], str | None], ...] = (
    (
        SystemFailureError,
        ("no space left on device", "disk quota exceeded"),
        "free some space and run the same command again",
    ),
    (
        UnknownRefError,
        ("couldn't find remote ref", "not our ref", "unadvertised object", "no such remote ref"),
        None,
    ),
    (
        UnreachableError,
        (
            "does not appear to be a git repository",
            "repository .*(not found|does not exist)",
            "authentication failed",
            "could not read (username|password)",
            "invalid credentials",
            r"permission denied \(publickey",
            "host key verification failed",
            r"returned error: 4(?!08|29)\d\d",
            "unsupported protocol",
            "unable to find remote helper",
            "transport '.*' not allowed",
        ),
        "check the origin and your access to it: `git ls-remote ORIGIN` must work for you",
    ),
    (
        SourceError,
        ("possible repository corruption",),
        "the origin is damaged (`git fsck` there says where); --depth 1 may do without that part",
    ),
    (
        NetworkError,
        (
            "could not resolve",
            "couldn't connect",
            "failed to connect",
            "connection (timed out|refused|reset|closed)",
            "operation timed out",
            "network is unreachable",
            "no route to host",
            "early eof",
            "rpc failed",
            "the remote end hung up",
            "unexpected disconnect",
            r"returned error: (408|429|5\d\d)",
            r"ssl_|gnutls|\btls\b",
            "recv failure",
            "empty reply",
            "could not read from remote",
            "transfer closed",
            "unable to access",
            "kex_exchange_identification",
            "expected flush",
            "invalid index-pack output",
        ),
        "check the network and the origin, then run the same command again",
    ),
    (
        SystemFailureError,
        ("permission denied", "read-only file system", "operation not permitted"),
        "see who owns the folder, and whether it may be written",
    ),
    (
        SystemFailureError,
        # Several workers say no more than that (git's parallel-checkout.c).
        ("unable to (write|create) file",),
        "see whether the disk is full and the folder may be written, and run the same command again",
    ),
)


def of(args: Sequence[str], stderr: str, *, returncode: int) -> CairnError:
    """The error that a failed run of git means.

    Args:
        args: what followed `git`.
        stderr: what it wrote.
        returncode: its exit status.
    """
    reason = _reason(stderr) or f"exit code {returncode}"
    message = f"git {_verb(args)}: {reason}"
    # The server may have written some of it; what is sought stands near the beginning of a line.
    said = "\n".join(line[:_LINE_LIMIT] for line in stderr.splitlines())
    for kind, patterns, tip in _KINDS:
        if re.search("|".join(patterns), said, re.IGNORECASE):
            return kind(message, tip=tip)
    return SourceError(message)


def again(what: Callable[[], T], *, patience: Patience, say: Callable[[str], None]) -> T:
    """Do `what`, and again after a while when the network is at fault.

    Raises:
        NetworkError: the last try failed too.
    """
    for failures in range(1, patience.attempts):
        try:
            return what()
        except NetworkError as error:
            wait_after(error, failures, patience=patience, say=say)
    return what()


def wait_after(error: NetworkError, failures: int, *, patience: Patience, say: Callable[[str], None]) -> None:
    """Say what failed, for the `failures`-th time in a row, and wait: longer each time."""
    wait = patience.wait * patience.factor ** (failures - 1)
    say(f"{error}; trying again in {wait:g} s ({failures} of {patience.attempts - 1})")
    pause(wait)


def _verb(args: Sequence[str]) -> str:
    return PurePath(next((a for a in args if not a.startswith("-")), "")).name


def _reason(stderr: str) -> str:
    """Git's own words, without hints and progress, in one line."""
    # What a server says may end in a zero byte.
    text = redact.mask(stderr).replace("\r", "\n").replace("\0", "")
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if re.match(r"(fatal|error|remote|ssh|warning: unable)", line)]
    told = [re.sub(r"^(fatal|error): ", "", line) for line in said or lines if line]
    return "; ".join(dict.fromkeys(told))[:_MESSAGE_LIMIT]
