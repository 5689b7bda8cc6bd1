"""Which libraries a fat wheel must carry: what it needs, what that needs, and what is opened by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn.errors import WheelError
from cairn.output import wording
from cairn.wheels.contents import manylinux
from cairn.wheels.fat.binaries import Binary, Platform
from cairn.wheels.fat.recipe import Recipe, plain
from cairn.wheels.fat.rocm_tree import Tree, stem_of


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Something that the wheel does not carry, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The libraries of a fat wheel.

    Attributes:
        libraries: those of the tree that it gets, in the order in which they can be loaded.
        names: library as somebody needs it to the name that it has in the wheel, where the two differ.
        left_out: listed libraries that it does not get.
    """

    libraries: tuple[Binary, ...]
    names: Mapping[str, str]
    left_out: tuple[LeftOut, ...]

    def find(self, stem: str) -> Binary | None:
        """The library of a stem, with or without `lib`."""
        wanted = plain(stem)
        return next((b for b in self.libraries if plain(stem_of(b.name)[0]) == wanted), None)


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What the libraries are for.

    Attributes:
        own: the binaries of the wheel.
        preloads: shortnames of the libraries that the wheel loads before its own.
        extra: stems or names of libraries to take besides.
        provided: globs of libraries that other wheels supply.
        strict: whether each listed library of that ROCm version must be there.
    """

    own: Sequence[Binary]
    preloads: Sequence[str] = ()
    extra: Sequence[str] = ()
    provided: Sequence[str] = ()
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where libraries are looked for.

    Attributes:
        tree: the ROCm tree.
        recipe: the lists of what is taken from it.
        platform: what they must be for.
    """

    tree: Tree
    recipe: Recipe
    platform: Platform


def collect(sought: Sought, place: Place) -> Bundle:
    """Follow all needs through the tree.

    Raises:
        WheelError: libraries are missing (all are named), or one cannot be read.
    """
    tree, recipe = place.tree, place.recipe
    collector = _Collector(sought, place)
    for binary in sought.own:
        collector.need(binary.needed, binary.path)
    for shortname in sought.preloads:
        stem = recipe.shortnames.get(shortname, shortname)
        collector.open(stem, f"the wheel's _rocm_init.py (as {shortname})", required=True)
    for name in sought.extra:
        collector.open(stem_of(name)[0], "the command line", required=True)
    for listed in recipe.libraries:
        known = listed.belongs_to(tree.rocm_version)
        if not collector.open(listed.stem, "--strict", required=known and sought.strict):
            reason = "the ROCm tree has none, and nothing in the wheel needs it"
            collector.leave_out(listed.stem, reason if known else f"not part of ROCm {tree.rocm_version}")
    return collector.finish()


@dataclass(kw_only=True, eq=False)
class _State:
    binaries: dict[Path, Binary] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)


class _Collector:
    def __init__(self, sought: Sought, place: Place) -> None:
        self._tree = place.tree
        self._recipe = place.recipe
        self._platform = place.platform
        self._own = {name for b in sought.own for name in (b.name, b.path.rpartition("/")[2])}
        fold = str.lower if place.platform.name == "windows" else str
        self._provided = tuple(map(fold, sought.provided))
        self._state = _State()
        self._waiting: deque[Binary] = deque()

    def need(self, names: Iterable[str], by: str) -> None:
        """Libraries that a binary names exactly."""
        self._queue(names, by)
        self._follow()

    def open(self, stem: str, by: str, *, required: bool) -> bool:
        """A library that is opened by name; whether it is there."""
        there = self._queue_stem(stem, by, required=required)
        self._follow()
        return there

    def leave_out(self, name: str, reason: str) -> None:
        self._state.left_out.append(LeftOut(name=name, reason=reason))

    def finish(self) -> Bundle:
        if self._state.missing:
            raise _missing(self._state.missing, self._tree)
        names = {given: name for given, name in self._state.names.items() if given != name}
        _check_names(self._state.binaries.values())
        ordered = _in_order(self._state.binaries.values(), self._loaded_before)
        left_out = {plain(entry.name): entry for entry in reversed(self._state.left_out)}
        return Bundle(libraries=ordered, names=names, left_out=tuple(reversed(left_out.values())))

    def _loaded_before(self, binary: Binary) -> list[str]:
        """The names of the libraries that one needs, or opens by name."""
        stems = {entry.opened.lower() for entry in self._recipe.opened_by(stem_of(binary.name)[0])}
        opened = [b.name for b in self._state.binaries.values() if plain(stem_of(b.name)[0]) in stems]
        return [*(self._state.names.get(name, name) for name in binary.needed), *opened]

    def _is_elsewhere(self, name: str) -> bool:
        own = name in self._own or self._platform.on_system(name)
        return own or manylinux.matches(name, self._provided)

    def _take(self, name: str, path: Path) -> None:
        real = path.resolve()
        binary = self._state.binaries.get(real)
        if binary is None:
            binary = self._read(path, real)
            self._state.binaries[real] = binary
            self._waiting.append(binary)
        self._state.names[name] = binary.name

    def _read(self, path: Path, real: Path) -> Binary:
        try:
            found = self._platform.of_tree(real)
        except (WheelError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise WheelError(f"{path} cannot be bundled: {error}", tip="repair the ROCm tree") from error
        if found.library is not None and found.library.elf.soname is None:
            return replace(found, name=path.name)
        return found

    def _follow(self) -> None:
        while self._waiting:
            binary = self._waiting.popleft()
            self._queue(binary.needed, binary.path)
            for entry in self._recipe.opened_by(stem_of(binary.name)[0]):
                if not self._queue_stem(entry.opened, binary.path, required=entry.required):
                    self.leave_out(
                        entry.opened, f"the tree has none; {binary.name} opens it where there is one"
                    )

    def _queue(self, names: Iterable[str], by: str) -> None:
        for name in names:
            if not (self._is_elsewhere(name) or name in self._state.names):
                path = self._tree.find(name)
                if path is None:
                    self._state.missing.setdefault(name, by)
                else:
                    self._take(name, path)

    def _queue_stem(self, stem: str, by: str, *, required: bool) -> bool:
        # One of that stem is enough: two versions of a runtime in one process are one too many.
        there = {*self._own, *(binary.name for binary in self._state.binaries.values())}
        if plain(stem) in {plain(stem_of(name)[0]) for name in there}:
            return True
        path = self._tree.find_stem(stem)
        if path is not None:
            self._take(path.name, path)
        elif required:
            self._state.missing.setdefault(stem, by)
        return path is not None


def _check_names(binaries: Iterable[Binary]) -> None:
    by_name: dict[str, Binary] = {}
    for binary in binaries:
        other = by_name.setdefault(binary.name, binary)
        if other is not binary:
            raise WheelError(
                f"two libraries would be {binary.name} in the wheel: {other.path} and {binary.path}",
                tip="name a ROCm tree with one version of each library",
            )


def _missing(missing: Mapping[str, str], tree: Tree) -> WheelError:
    listed = [f"{name} (needed by {by.rpartition('/')[2]})" for name, by in missing.items()]
    return WheelError(
        f"{tree.root} has no {wording.some(listed)}",
        tip="name a whole ROCm; say --provided GLOB for what another wheel supplies",
    )


def _in_order(binaries: Iterable[Binary], before: Callable[[Binary], Iterable[str]]) -> tuple[Binary, ...]:
    """What others need first; libraries that need each other in a circle as they come."""
    by_name = {binary.name: binary for binary in binaries}
    done: dict[str, Binary] = {}

    def visit(binary: Binary, above: frozenset[str]) -> None:
        if binary.name in done or binary.name in above:
            return
        for name in before(binary):
            if name in by_name:
                visit(by_name[name], above | {binary.name})
        done.setdefault(binary.name, binary)

    for name in sorted(by_name):
        visit(by_name[name], frozenset())
    return tuple(done.values())
