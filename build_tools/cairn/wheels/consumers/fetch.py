"""The wheels of consumers: those that lie here, and those that pip fetches from an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn import package_index, process
from cairn.errors import NetworkError, ProcessError, UsageError
from cairn.stack import Consumer

_TIMEOUT = 1800.0  # seconds for one wheel
_LONGEST = 300  # characters of what pip says
_NEWEST_GLIBC = 45  # 2.45; manylinux_2_5 is the first
_LEGACY = ("manylinux1", "manylinux2010", "manylinux2014")  # PEP 513, 571, 599


def wheels_of(consumer: Consumer, folder: Path, *, python: str, platform: str) -> tuple[Path, ...]:
    """The wheels of a consumer.

    Args:
        consumer: it.
        folder: what is fetched goes there.
        python: that they are for, such as `3.11`.
        platform: likewise, such as `linux_x86_64`.

    Raises:
        UsageError: a file that the stack names is not there.
        NetworkError: pip cannot fetch a wheel for there.
    """
    if consumer.wheels:
        return tuple(_here(consumer))
    target = folder / consumer.name
    words = ["--no-deps", "--only-binary", ":all:", "--dest", str(target), "--python-version", python]
    words += ["--implementation", "cp", "--ignore-requires-python"]
    words += [word for tag in _tags(platform) for word in ("--platform", tag)]
    words += ["--index-url", consumer.index_url] if consumer.index_url else []
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--disable-pip-version-check"]
    env = package_index.read_pip_settings().pip_environment()
    try:
        process.run(
            [*command, "--quiet", *words, consumer.requirement or consumer.name],
            env=env,
            timeout=_TIMEOUT,
            confined=False,
        )
    except ProcessError as error:
        lines = [line for line in error.output.splitlines() if line.startswith("ERROR: ")]
        reason = " ".join(line.removeprefix("ERROR: ") for line in lines)[:_LONGEST] or str(error)
        raise NetworkError(
            f"no wheel of the consumer {consumer.name} for Python {python} on {platform}: {reason}",
            tip="name a version that has one (requirement), or its wheels (wheels), under [[consumers]]",
        ) from error
    return tuple(sorted(target.glob("*.whl")))


def _here(consumer: Consumer) -> Iterator[Path]:
    for text in consumer.wheels:
        path = Path(text)
        matches = sorted(path.parent.glob(re.sub(r"\*+", "*", path.name))) if not path.is_file() else [path]
        if not matches:
            raise UsageError(
                f"there is no wheel {text} of the consumer {consumer.name}", tip="correct its `wheels`"
            )
        yield from matches


def _tags(platform: str) -> Sequence[str]:
    """The platform tags of wheels that can be installed there, as pip wants them listed."""
    system, _, machine = platform.partition("_")
    if system != "linux":
        return (platform,)
    numbered = (f"manylinux_2_{minor}_{machine}" for minor in range(5, _NEWEST_GLIBC))
    return (*numbered, *(f"{name}_{machine}" for name in _LEGACY), platform)
