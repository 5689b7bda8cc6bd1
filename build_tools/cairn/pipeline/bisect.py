"""Find the first bad set between a good one and a bad one by running a command, and the layer to blame.

Each set is installed from its own immutable index into a temporary environment. The command's exit code has
the meaning that it has for `git bisect run`: 0 is good, 125 is to be skipped, anything else is bad. The log
is written after each run, and an interrupted search continues from it.

Two neighbouring sets differ in layers: the wheels that were built (sources), the ROCm SDK, and what else is
installed (dependencies). So the search goes on with mixes: files of the first bad set, some layers of which
are those of the last good one, installed exactly as they are. A mix whose parts do not fit counts as the
command says: let it exit with 125 where they do not load. Where no set was good, the good end is tried too:
if it fails today, the tests or the machine changed, and no set is to blame.
"""

from __future__ import annotations

import functools
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import structs

from cairn import datafile, files, isolation, process, venv
from cairn.errors import ProcessError, StoreError, UsageError
from cairn.output import Progress, wording
from cairn.output.wording import short_id
from cairn.release.index import keys, people
from cairn.release.index.generation import IndexSet, now, project_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import MANIFEST_FILE, Index, missing, read_set, whole_id
from cairn.release.pages.trends import Jump, find_jump
from cairn.release.publish.mirror_lock import is_of_sdk
from cairn.release.serve import serving
from cairn.sources.manifest import changelog
from cairn.sources.manifest.changelog import Changelog
from cairn.sources.manifest.manifest import Manifest
from cairn.store.protocol import Store
from cairn.wheels.interface.changes import Delta, change
from cairn.wheels.wheelset import WheelSet

LOG = "bisect.json"
"""The name of the log in the output folder."""

SKIP = 125
"""What a command exits with where it cannot tell; git's own number (git-bisect(1))."""

Verdict = Literal["good", "bad", "skip"]
Layer = Literal["dependencies", "SDK", "sources", "tests"]
LAYERS: tuple[Layer, ...] = ("dependencies", "SDK", "sources")
"""Those that a set has, in the order in which those of the bad one are put to those of the good one."""
Differing = Callable[[str, str], Sequence[Layer]]
"""Says which layers differ between two sets, by their ids."""
_TIMEOUT = 3600.0  # seconds for installing; a torch wheel of gigabytes on a slow disk takes minutes
_DAY = len("2026-11-20")


class Halving(msgspec.Struct, frozen=True, kw_only=True):
    """States in a row, of which the first is good and the last is bad.

    Attributes:
        last: the index of the last one.
        verdicts: what is known of those between.
    """

    last: int
    verdicts: Mapping[int, Verdict]

    @property
    def good(self) -> int:
        """The index of the last state that is known to be good, before the first bad one."""
        first_bad = self.bad
        return max((p for p, v in self.verdicts.items() if v == "good" and p < first_bad), default=0)

    @property
    def bad(self) -> int:
        """The index of the first state that is known to be bad."""
        return min((p for p, v in self.verdicts.items() if v == "bad" and p), default=self.last)

    @property
    def open(self) -> tuple[int, ...]:
        """The indices of the untried states between the last good and the first bad one."""
        return tuple(place for place in range(self.good + 1, self.bad) if place not in self.verdicts)

    @property
    def next(self) -> int | None:
        """The state to try next, in the middle of the untried ones, or None if there are none."""
        middle = (self.good + self.bad) / 2
        return min(self.open, key=lambda place: abs(place - middle)) if self.open else None


class Try(datafile.Value):
    """A set that was tried.

    Attributes:
        set_id: the set.
        verdict: `skip` where the command could not tell, or the set could not be installed.
        exit_code: what the command exited with; None where it was not run.
        when: when the command ended, RFC 3339 in UTC.
        seconds: how long it took, installing included.
        log: the file with its output, seen from the output folder.
        of_good: the layers that were not this set's, but those of the last good one.
        commit: the last of the set's new commits that was in the wheels, which were built for the try.
    """

    set_id: str
    verdict: Verdict = "skip"
    exit_code: int | None = None
    when: str = ""
    seconds: float = 0
    log: str = ""
    of_good: tuple[Layer, ...] = ()
    commit: str = ""


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
    def halving(self) -> Halving:
        """The sets, and what is known of them."""
        whole = (trial for trial in self.tries if not (trial.of_good or trial.commit))
        tried = {self.sets.index(trial.set_id): trial.verdict for trial in whole}
        return Halving(last=len(self.sets) - 1, verdicts=tried)

    @property
    def last_good(self) -> str:
        """The last set that is known to be good, before the first bad one."""
        return self.sets[self.halving.good]

    @property
    def suspects(self) -> tuple[str, ...]:
        """The sets that may be the first bad one: several if some were skipped."""
        return self.sets[self.halving.good + 1 : self.halving.bad + 1]

    @property
    def is_of_tests(self) -> bool:
        """Whether the good end fails, so that no set is to blame."""
        return self.halving.verdicts.get(0) == "bad"

    @property
    def is_untold(self) -> bool:
        """Whether no set is known to be good by a try: the good end could not be installed or judged."""
        return self.halving.good == 0 and self.halving.verdicts.get(0) == "skip"

    def mixes(self, layers: Sequence[Layer]) -> Halving:
        """The mixes of the last good and the first bad set: number n has the first n layers of the bad one.

        Args:
            layers: those that differ between the two, in the order of `LAYERS`.
        """
        suspect = self.suspects[-1]
        alone = (trial for trial in self.tries if trial.set_id == suspect and trial.of_good)
        tried = {trial.of_good: trial.verdict for trial in alone}
        every = {n: tuple(layers[n:]) for n in range(1, len(layers))}
        return Halving(last=len(layers), verdicts={n: tried[of] for n, of in every.items() if of in tried})

    def next_try(
        self, differing: Callable[[str, str], Sequence[Layer]]
    ) -> tuple[str, tuple[Layer, ...]] | None:
        """The set to try next, and which layers of it are those of the last good one; None at the end."""
        if (place := self.halving.next) is not None:
            return self.sets[place], ()
        if self.halving.good == 0 and 0 not in self.halving.verdicts:
            return self.sets[0], ()
        if self.is_of_tests or self.is_untold or len(self.suspects) > 1:
            return None
        layers = tuple(differing(self.last_good, self.suspects[0]))
        n = self.mixes(layers).next
        return (self.suspects[0], layers[n:]) if n is not None else None

    def blamed(self, differing: Differing) -> tuple[Layer, ...]:
        """The layers that may be to blame at the end; none where the first bad set was not found."""
        if self.is_of_tests:
            return ("tests",)
        if self.is_untold or len(self.suspects) > 1:
            return ()
        layers = tuple(differing(self.last_good, self.suspects[0]))
        return layers[(mixes := self.mixes(layers)).good : mixes.bad]

    @property
    def cost(self) -> str:
        """The most that is still to be installed, in words."""
        sets = math.ceil(math.log2(len(self.halving.open) + 1)) + (self.halving.good == 0)
        mixes = math.ceil(math.log2(len(LAYERS)))
        return f"at most {wording.count(range(sets), 'set')}, and {mixes} mixes of two"


class BisectResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search.

    Attributes:
        search: all that was tried.
        last_good: the set before the first bad one.
        suspects: the sets that may be the first bad one; only one if it was found.
        layers: the layers that may be to blame; only one if it was found.
        files: what differs in them, as `numpy-1.26.4-….whl -> numpy-2.0.0-….whl`.
        changes: what changed between the manifests of the last good and the first bad one.
    """

    search: Search
    last_good: IndexSet
    suspects: tuple[IndexSet, ...]
    layers: tuple[Layer, ...]
    files: Delta
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
    snapshot = read_current(Index(store, index))
    if not snapshot.exists:
        raise missing(store, index)
    every = sorted(snapshot.sets(), key=lambda wheel_set: (wheel_set.added, wheel_set.set_id))
    # A date names no set by itself.
    ends = [
        snapshot.set(whole_id(text, snapshot)) if moment_of(text) is None else None for text in (good, bad)
    ]
    kinds = {*map(kind_of, filter(None, ends))} or {*map(kind_of, every)}
    if len(kinds) > 1:
        raise UsageError(
            f"{index} has sets of different lines, families, Pythons or platforms",
            tip=f"name the good and the bad set by their ids: {'; '.join(sorted(map(' '.join, kinds)))}",
        )
    alike = [wheel_set for wheel_set in every if {kind_of(wheel_set)} == kinds]
    first, last = (
        alike.index(wheel_set or _by_date(alike, text, index))
        for wheel_set, text in zip(ends, (good, bad), strict=True)
    )
    if first >= last:
        raise UsageError("the good set must have come before the bad one", tip="see cairn release log")
    sets = tuple(alike[first : last + 1])
    search = Search(
        store=store.url,
        index=index,
        sets=tuple(wheel_set.set_id for wheel_set in sets),
        command=tuple(command),
        python=str(python),
    )
    return search, sets


def jump_of(store: Store, index: str, text: str, leg: str | None) -> Jump:
    """Return a jump of an index, whose two nights are the good and the bad end; see `trends.find_jump`.

    Raises:
        UsageError: there is none, or there are several.
        StoreError: no night of the index has measured anything.
    """
    trends = people.trends_of(store, index)
    if trends is None:
        raise StoreError(
            f"no night of {index} has measured anything", tip="name two sets by --good and --bad"
        )
    return find_jump(trends, text, leg)


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
    """Try sets until the first bad one is found, and mixes until its layer is; the log is written after each.

    Args:
        store: what the search is in.
        search: as `resume` gives it.
        output_dir: gets the log, and the output of each run.
        on_try: told which set is tried, and the result.
        on_line: called with each line of installers and of the command.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    with serving(store) as server:
        while (following := search.next_try(differing_in(store))) is not None:
            set_id, of_good = following
            mix = f" with the {' and '.join(of_good)} of {short_id(search.last_good)}" if of_good else ""
            on_try(f"{short_id(set_id)}{mix}: trying; {search.cost} to go")
            install = [f"{wheel.distribution}=={wheel.version}" for wheel in read_set(store, set_id).wheels]
            if of_good:
                good, bad = (layers_of(read_set(store, side)) for side in (search.last_good, set_id))
                chosen = {name: (good if name in of_good else bad)[name] for name in LAYERS}
                install = ["--no-deps", *addresses(server.url, chosen, LAYERS)]
            trial = Try(set_id=set_id, of_good=of_good)
            search = attempt(search, trial, install, output_dir, url=server.url, on_line=on_line)
            on_try(f"{short_id(set_id)}{mix}: {search.tries[-1].verdict}")
    return search


def differing_in(store: Store) -> Differing:
    """Return what says which layers of two sets of a store differ."""

    def differing(good: str, bad: str) -> Sequence[Layer]:
        good_layers, bad_layers = layers_of(read_set(store, good)), layers_of(read_set(store, bad))
        return [name for name in LAYERS if good_layers[name] != bad_layers[name]]

    return differing


def layers_of(wheel_set: WheelSet) -> dict[Layer, dict[str, str]]:
    """Return the files of a set by layer, each with its sha256."""
    layers: dict[Layer, dict[str, str]] = {name: {} for name in LAYERS}
    layers["sources"] = {wheel.file_name: wheel.sha256 for wheel in wheel_set.wheels}
    for file in wheel_set.closure:
        layers["SDK" if is_of_sdk(project_of(file.file_name)) else "dependencies"][file.file_name] = (
            file.sha256
        )
    return layers


def addresses(
    url: str, layers: Mapping[Layer, Mapping[str, str]], of_layers: Sequence[Layer]
) -> tuple[str, ...]:
    """Return the addresses of the files of some layers in a store that is served."""
    files_of = (layers[name].items() for name in of_layers)
    return tuple(f"{url}/{keys.file_key(sha256, name)}" for each in files_of for name, sha256 in each)


def manifest_of(store: Store, set_id: str) -> Manifest:
    """Return what a set was built from."""
    key = keys.set_key(set_id, MANIFEST_FILE)
    return datafile.loads(store.read(key).data, Manifest, name=f"{store.url}/{key}")


def result(store: Store, search: Search, *, commits: bool, say: Progress) -> BisectResult:
    """Return the result of a finished search.

    Args:
        store: what the search was in.
        search: it.
        commits: name the commits too, which needs their origins.
        say: progress callback.
    """
    snapshot = read_current(Index(store, search.index))
    last_good = search.last_good
    before, after = (manifest_of(store, set_id) for set_id in (last_good, search.suspects[-1]))
    layers = search.blamed(differing_in(store))
    both = [layers_of(read_set(store, set_id)) for set_id in (last_good, search.suspects[-1])]
    old, new = ([file for name in LAYERS if name in layers for file in of_set[name]] for of_set in both)
    return BisectResult(
        layers=layers,
        files=change(old, new),
        search=search,
        last_good=snapshot.set(last_good),
        suspects=tuple(snapshot.set(set_id) for set_id in search.suspects),
        changes=changelog.between(before, after, commits=commits, say=say),
    )


def _by_date(sets: Sequence[IndexSet], text: str, index: str) -> IndexSet:
    moment = moment_of(text)
    candidates = [wheel_set for wheel_set in sets if moment is not None and added_before(wheel_set, moment)]
    if not candidates:
        raise StoreError(f"{index} has no set of {text} or before", tip="see cairn release log")
    return candidates[-1]


def added_before(wheel_set: IndexSet, moment: datetime) -> bool:
    """Whether an index took a set before a moment."""
    return datetime.fromisoformat(wheel_set.added) < moment


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


def kind_of(wheel_set: IndexSet) -> tuple[str, ...]:
    """What two sets have in common that can be compared."""
    return wheel_set.stack, wheel_set.line, wheel_set.family, wheel_set.python, wheel_set.platform


def attempt(
    search: Search,
    trial: Try,
    install: Sequence[str],
    output_dir: Path,
    *,
    url: str,
    on_line: Progress | None,
) -> Search:
    """Install something into an environment of its own, run the command there, and log the result.

    Args:
        search: what came before.
        trial: says what is tried.
        install: what an installer is given for it.
        output_dir: see `run`.
        url: where the store is served.
        on_line: see `run`.
    """
    name = "-".join(filter(None, (trial.set_id, *trial.of_good, trial.commit)))
    log = output_dir / "logs" / f"{name}.log"
    index_url = keys.set_url(url, trial.set_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    begun = datetime.now(UTC)
    exit_code: int | None = None
    with (
        tempfile.TemporaryDirectory(prefix="cairn-bisect-") as folder,
        isolation.own_home(index_url) as home,
    ):
        env = isolation.variables(isolation.Isolation.INSTALLER, home)
        try:
            environment = venv.create(Path(folder, "venv"), python=Path(search.python), environ=env)
            command = [venv.uv_program(), "pip", "install", "--no-config"]
            command += ["--python", str(environment.python), "--index-url", index_url, *install]
            run = functools.partial(process.run, log=log, on_line=on_line, network=True)
            run(command, env=env, timeout=_TIMEOUT, writes=[Path(folder)])
        except ProcessError as error:
            files.write_text(log, f"{log.read_text() if log.is_file() else ''}not installed: {error}\n")
        else:
            inside = isolation.variables(isolation.Isolation.TEST, home) | {
                "PATH": os.pathsep.join((str(environment.bin), env.get("PATH", os.defpath))),
                "VIRTUAL_ENV": str(environment.path),
                "CAIRN_SET": trial.set_id,
            }
            exit_code = run(search.command, cwd=Path.cwd(), env=inside, check=False).returncode
    tried = structs.replace(
        trial,
        verdict="skip" if exit_code in (None, SKIP) else "bad" if exit_code else "good",
        exit_code=exit_code,
        seconds=round((datetime.now(UTC) - begun).total_seconds(), 1),
        log=str(log.relative_to(output_dir)),
    )
    return noted(search, tried, output_dir)


def noted(search: Search, tried: Try, output_dir: Path) -> Search:
    """Add a try to a search, and write the log of it."""
    tries = (*search.tries, structs.replace(tried, when=now()))
    search = structs.replace(search, tries=tries)
    output_dir.mkdir(parents=True, exist_ok=True)
    datafile.write(output_dir / LOG, search)
    return search
