"""Find the first bad set between a good one and a bad one by running a command.

Each set is installed from its own immutable index into a temporary environment. The command's exit code has
the meaning that it has for `git bisect run`: 0 is good, 125 is to be skipped, anything else is bad. The log
is written after each run, and an interrupted search continues from it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile, files, isolation, process, venv
from cairn.errors import ProcessError, StoreError, UsageError
from cairn.output import Progress, wording
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet, now
from cairn.release.index.snapshot import MANIFEST_FILE, Index, missing, read_set, whole_id
from cairn.release.serve import serving
from cairn.sources.manifest import changelog
from cairn.sources.manifest.changelog import Changelog
from cairn.sources.manifest.manifest import Manifest
from cairn.store.protocol import Store

LOG = "bisect.json"
"""The name of the log in the output folder."""

SKIP = 125
"""What a command exits with where it cannot tell; git's own number (git-bisect(1))."""

Verdict = Literal["good", "bad", "skip"]
_TIMEOUT = 3600.0  # seconds for installing; a torch wheel of gigabytes on a slow disk takes minutes
_DAY = len("2026-11-20")


class Try(datafile.Value):
    """A set that was tried.

    Attributes:
        set_id: the set.
        verdict: `skip` where the command could not tell, or the set could not be installed.
        exit_code: what the command exited with; None where it was not run.
        when: when the command ended, RFC 3339 in UTC.
        seconds: how long it took, installing included.
        log: the file with its output, seen from the output folder.
    """

    set_id: str
    verdict: Verdict
    exit_code: int | None
    when: str
    seconds: float
    log: str


class Search(datafile.Value, tag_field="schema", tag="cairn.bisect/1"):
    """A search, and the sets that were tried so far.

    Attributes:
        store: the store's URL.
        index: the index whose sets are searched.
        sets: the ids of the sets from the good one to the bad one, oldest first.
        command: the command that tells good from bad.
        python: the interpreter that environments are made from.
        tries: what was tried, in order.
    """

    store: str
    index: str
    sets: tuple[str, ...]
    command: tuple[str, ...]
    python: str
    tries: tuple[Try, ...] = ()

    @property
    def good(self) -> int:
        """The index of the last set that is known to be good, before the first bad one."""
        first_bad = self.bad
        return max(p for p, verdict in self._verdicts().items() if verdict == "good" and p < first_bad)

    @property
    def bad(self) -> int:
        """The index of the first set that is known to be bad."""
        return min(place for place, verdict in self._verdicts().items() if verdict == "bad")

    @property
    def open(self) -> tuple[int, ...]:
        """The indices of the untried sets between the last good and the first bad one."""
        return tuple(place for place in range(self.good + 1, self.bad) if place not in self._verdicts())

    @property
    def suspects(self) -> tuple[str, ...]:
        """The sets that may be the first bad one: several if some were skipped."""
        return self.sets[self.good + 1 : self.bad + 1]

    @property
    def next(self) -> str | None:
        """The set to try next, in the middle of the untried ones, or None if there are none."""
        middle = (self.good + self.bad) / 2
        return self.sets[min(self.open, key=lambda place: abs(place - middle))] if self.open else None

    def _verdicts(self) -> dict[int, Verdict]:
        verdicts: dict[int, Verdict] = {0: "good", len(self.sets) - 1: "bad"}
        return verdicts | {self.sets.index(one.set_id): one.verdict for one in self.tries}


@dataclass(frozen=True, kw_only=True)
class BisectResult:
    """The result of a search.

    Attributes:
        search: all that was tried.
        last_good: the set before the first bad one.
        suspects: the sets that may be the first bad one; only one if it was found.
        changes: what changed between the manifests of the last good and the first bad one.
    """

    search: Search
    last_good: IndexSet
    suspects: tuple[IndexSet, ...]
    changes: Changelog


def prepare(
    store: Store, index: str, *, good: str, bad: str, command: Sequence[str], python: Path
) -> tuple[Search, tuple[IndexSet, ...]]:
    """Prepare the search between two sets; also return all sets between them.

    Args:
        store: where the index lives.
        index: its name.
        good: a set that is good: the beginning of its id, or a date, for the last set of that day or before.
        bad: a later one that is bad, named likewise.
        command: what tells good from bad.
        python: the interpreter to make environments from.

    Raises:
        StoreError: the index has no such sets.
        UsageError: they are of different kinds, or not in this order.
    """
    snapshot = Index(store, index).load()
    if not snapshot.exists:
        raise missing(store, index)
    every = sorted(snapshot.sets(), key=lambda one: (one.added, one.set_id))
    # A date names no set by itself.
    ends = [
        snapshot.set(whole_id(text, snapshot)) if moment_of(text) is None else None for text in (good, bad)
    ]
    kinds = {kind_of(one) for one in ends if one} or {kind_of(one) for one in every}
    if len(kinds) > 1:
        raise UsageError(
            f"{index} has sets of different lines, families, Pythons or platforms",
            tip=f"name the good and the bad set by their ids: {'; '.join(sorted(map(' '.join, kinds)))}",
        )
    alike = [one for one in every if {kind_of(one)} == kinds]
    first, last = (
        alike.index(one or _by_date(alike, text, index)) for one, text in zip(ends, (good, bad), strict=True)
    )
    if first >= last:
        raise UsageError("the good set must have come before the bad one", tip="see cairn release log")
    sets = tuple(alike[first : last + 1])
    search = Search(
        store=store.url,
        index=index,
        sets=tuple(one.set_id for one in sets),
        command=tuple(command),
        python=str(python),
    )
    return search, sets


def resume(search: Search, output_dir: Path) -> Search:
    """Continue a search where an earlier run of it stopped.

    Raises:
        UsageError: the folder has the log of a different search.
    """
    path = output_dir / LOG
    if not path.is_file():
        return search
    earlier = datafile.read(path, Search)
    if (earlier.store, earlier.index, earlier.command, earlier.python) != (
        search.store,
        search.index,
        search.command,
        search.python,
    ) or (earlier.sets[0], earlier.sets[-1]) != (search.sets[0], search.sets[-1]):
        raise UsageError(
            f"{path} is the log of a different search", tip="give a different --output-dir, or remove it"
        )
    return earlier


def run(
    store: Store, search: Search, output_dir: Path, *, on_try: Progress, on_line: Progress | None = None
) -> Search:
    """Try sets until the first bad one is found; the log is written after each.

    Args:
        store: what the search is in.
        search: as `resume` gives it.
        output_dir: gets the log, and the output of each run.
        on_try: told which set is tried, and the result.
        on_line: called with each line of installers and of the command.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    with serving(store) as server:
        while (set_id := search.next) is not None:
            count = wording.count(search.open, "set")
            on_try(f"{short_id(set_id)}: trying; of {count} nothing is known yet")
            index_url = keys.set_url(server.url, set_id)
            attempt = _try(store, search, set_id, index_url, output_dir, on_line)
            on_try(f"{short_id(set_id)}: {attempt.verdict}")
            search = msgspec.structs.replace(search, tries=(*search.tries, attempt))
            datafile.write(output_dir / LOG, search)
    return search


def result(store: Store, search: Search, *, commits: bool, say: Progress) -> BisectResult:
    """Return the result of a finished search.

    Args:
        store: what the search was in.
        search: it.
        commits: name the commits too, which needs their origins.
        say: progress callback.
    """
    snapshot = Index(store, search.index).load()
    last_good = search.sets[search.good]
    manifests = []
    for set_id in (last_good, search.suspects[-1]):
        key = keys.set_key(set_id, MANIFEST_FILE)
        manifests.append(datafile.loads(store.read(key).data, Manifest, name=f"{store.url}/{key}"))
    before, after = manifests
    return BisectResult(
        search=search,
        last_good=snapshot.set(last_good),
        suspects=tuple(snapshot.set(set_id) for set_id in search.suspects),
        changes=changelog.between(before, after, commits=commits, say=say),
    )


def _by_date(sets: Sequence[IndexSet], text: str, index: str) -> IndexSet:
    moment = moment_of(text)
    candidates = [one for one in sets if moment is not None and added_before(one, moment)]
    if not candidates:
        raise StoreError(f"{index} has no set of {text} or before", tip="see cairn release log")
    return candidates[-1]


def added_before(one: IndexSet, moment: datetime) -> bool:
    """Whether an index took a set before a moment."""
    return datetime.fromisoformat(one.added) < moment


def moment_of(text: str) -> datetime | None:
    """Parse a date, as the end of that day, or a time; None for other texts."""
    if text.count("-") < len("--"):
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment + (timedelta(days=1) if len(text) == _DAY else timedelta(microseconds=1))
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text[:60]!r} is not a date", tip="write 2026-11-20, or the id of a set"
        ) from error


def kind_of(one: IndexSet) -> tuple[str, ...]:
    """What two sets have in common that can be compared."""
    return one.stack, one.line, one.family, one.python, one.platform


def _try(
    store: Store, search: Search, set_id: str, index_url: str, output_dir: Path, on_line: Progress | None
) -> Try:
    log = output_dir / "logs" / f"{set_id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    begun = datetime.now(UTC)
    wheels = read_set(store, set_id).wheels
    exit_code: int | None = None
    with (
        tempfile.TemporaryDirectory(prefix="cairn-bisect-") as folder,
        isolation.own_home(index_url) as home,
    ):
        env = isolation.variables(isolation.Isolation.INSTALLER, home)
        try:
            environment = venv.create(Path(folder, "venv"), python=Path(search.python), environ=env)
            command = [venv.uv_program(), "pip", "install", "--no-config"]
            command += ["--python", str(environment.python), "--index-url", index_url]
            command += [f"{one.distribution}=={one.version}" for one in wheels]
            hidden = isolation.credential_files()
            process.run(command, env=env, log=log, on_line=on_line, timeout=_TIMEOUT, hidden=hidden)
        except ProcessError as error:
            files.write_text(log, f"{log.read_text() if log.is_file() else ''}not installed: {error}\n")
        else:
            inside = isolation.variables(isolation.Isolation.TEST, home) | {
                "PATH": os.pathsep.join((str(environment.bin), env.get("PATH", os.defpath))),
                "VIRTUAL_ENV": str(environment.path),
                "CAIRN_SET": set_id,
            }
            result = process.run(
                search.command,
                env=inside,
                log=log,
                on_line=on_line,
                check=False,
                hidden=isolation.credential_files(),
            )
            exit_code = result.returncode
    return Try(
        set_id=set_id,
        verdict="skip" if exit_code in (None, SKIP) else "bad" if exit_code else "good",
        exit_code=exit_code,
        when=now(),
        seconds=round((datetime.now(UTC) - begun).total_seconds(), 1),
        log=str(log.relative_to(output_dir)),
    )
