"""The wheels of a stack's consumers: files, what pip fetches, the last set of another stack."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cairn import package_index, process
from cairn.errors import CairnError, NetworkError, ProcessError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, missing, read_set
from cairn.release.publish.compatibility import Platform
from cairn.stack import Consumer
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels.metadata import wheel_info

_TIMEOUT = 1800.0  # seconds for one wheel
_LONGEST = 300  # characters of what pip says
_NEWEST_GLIBC = 45  # 2.45; manylinux_2_5 is the first
_LEGACY = ("manylinux1", "manylinux2010", "manylinux2014")  # PEP 513, 571, 599


@contextlib.contextmanager
def fetched(
    consumers: Iterable[Consumer],
    *,
    place: Platform,
    store: Store | None = None,
    family: str | None = None,
) -> Iterator[tuple[list[Path], dict[str, str]]]:
    """Give the wheels of consumers until the block ends, and why there are none, by name of the consumer.

    Args:
        consumers: who depends on a set.
        place: where they are installed; wheels for another Python or platform are left out.
        store: where the indexes are that consumers name.
        family: of the set: of the sets of a consumer, one of the same family comes first.
    """
    unknown: dict[str, str] = {}
    suitable: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-consumers-")))
        for consumer in consumers:
            try:
                if consumer.index is None:
                    paths = _wheels_of(consumer, folder, python=place.python, platform=place.tag)
                elif store is None:
                    raise UsageError(f"no store is named in which {consumer.index} is", tip="give --store")
                else:
                    wheels = _last_set(store, consumer, place, family)
                    paths = tuple(stack.enter_context(transfer.as_files(store, wheels)).values())
                for path in paths:
                    wheel_info.read(path)
            except CairnError as error:  # all else is judged all the same
                unknown[consumer.name] = f"{error} ({error.tip})" if error.tip else str(error)
            else:
                suitable |= {path.name: path for path in paths if place.takes(path.name, None)}
        yield list(suitable.values()), unknown


def _wheels_of(consumer: Consumer, folder: Path, *, python: str, platform: str) -> tuple[Path, ...]:
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


def _last_set(store: Store, consumer: Consumer, place: Platform, family: str | None) -> tuple[str, ...]:
    """The keys of the wheels that were built for a consumer's last set for a place."""
    index = consumer.index or ""
    snapshot = read_current(Index(store, index))
    if not snapshot.exists:
        raise missing(store, index)
    sets = [
        wheel_set
        for wheel_set in snapshot.sets()
        if (wheel_set.stack, wheel_set.python, wheel_set.yanked) == (consumer.name, place.python, None)
        and place.is_same_machine(Platform(python=wheel_set.python, tag=wheel_set.platform))
    ]
    if not sets:
        raise StoreError(f"{index} has no set of {consumer.name} for {place}")
    last = max(sets, key=lambda wheel_set: (wheel_set.family == family, wheel_set.added, wheel_set.set_id))
    wheels = read_set(store, last.set_id).wheels
    return tuple(keys.file_key(wheel.sha256, wheel.file_name) for wheel in wheels)
