"""Who needs whom in a wheel is known in time that grows with the wheel, and as the rules say it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from cairn.wheels.contents.binaries import Binary
from cairn.wheels.verify import linking
from cairn.wheels.verify.alternatives import Needs


def library(path: str, *needed: str, soname: str | None = None, program: bool = False) -> Binary:
    return Binary(
        format="elf", machine="x86_64", path=path, size=1, needed=needed, soname=soname, is_program=program
    )


def by_folder(dlls: Sequence[Binary]) -> dict[str, dict[str, Binary]]:
    folders: dict[str, dict[str, Binary]] = {}
    for dll in dlls:
        folder, _, name = dll.path.rpartition("/")
        folders.setdefault(name, {})[folder] = dll
    return folders


def optional_by_its_definition(binaries: Sequence[Binary]) -> frozenset[str]:
    using = {
        one.path: {user.path for user in binaries if not one.names.isdisjoint(user.needed)} - {one.path}
        for one in binaries
    }
    libraries = [one.path for one in binaries if not one.is_program]
    optional = {path for path in libraries if not using[path] and "plugins" in path}  # the roots
    while new := {path for path in libraries if using[path] and using[path] <= optional} - optional:
        optional |= new
    return frozenset(optional)


def only_for_plugins(binaries: Sequence[Binary]) -> frozenset[str]:
    needs = Needs(binaries)
    programs = {binary.path for binary in binaries if binary.is_program}
    free = (binary.path for binary in binaries if "plugins" in binary.path and binary.path not in programs)
    return needs.only_for([path for path in free if not needs.is_used(path)], started=programs)


def loaded_with(dll: Binary, folders: dict[str, dict[str, Binary]], seen: set[str]) -> Iterator[str]:
    seen.add(dll.path)
    for name in dll.needed:
        beside = folders.get(name, {}).get(dll.path.rpartition("/")[0])
        if beside is None and name in folders:
            yield name
        elif beside is not None and beside.path not in seen:
            yield from loaded_with(beside, folders, seen)


def test_what_only_plugins_need_is_optional() -> None:
    chance = random.Random(5)  # noqa: S311 - the same each time
    for _ in range(2000):
        names = [f"l{number}.so" for number in range(chance.randint(1, 8))]
        binaries = [
            library(
                f"{chance.choice(('lib', 'plugins', 'a/plugins'))}/{name}",
                *chance.sample([*names, "x.so"], chance.randint(0, min(len(names), 3))),
                soname=chance.choice((None, "x.so")),
                program=chance.random() < 0.1,
            )
            for name in names
        ]
        assert only_for_plugins(binaries) == optional_by_its_definition(binaries), binaries


def test_a_dll_in_another_folder_is_seen_through_those_beside_the_module() -> None:
    chance = random.Random(6)  # noqa: S311
    for _ in range(2000):
        names = [f"l{number}.dll" for number in range(chance.randint(1, 8))]
        dlls = [
            library(
                f"{chance.choice('ab')}/{name}", *chance.sample(names, chance.randint(0, len(names) // 2))
            )
            for name in names
        ]
        folders = by_folder(dlls)
        away = linking._away(dlls, folders)
        for dll in dlls:
            names_away = set(loaded_with(dll, folders, set()))
            assert away[dll.path] in names_away if names_away else dll.path not in away


def test_chains_of_libraries_cost_as_much_as_they_are_long() -> None:
    def chain(count: int) -> list[Binary]:
        return [library(f"plugins/l{number}.so", f"l{number + 1}.so") for number in range(count)]

    def alike(count: int) -> list[Binary]:
        return [library(f"lib/l{number}.so", "x.so", soname="x.so") for number in range(count)]

    def plugins(count: int) -> list[Binary]:
        return [*(library(f"plugins/l{n}.so", "x.so") for n in range(count)), *alike(count)]

    def modules(count: int) -> list[Binary]:
        return [library("q/l0.dll"), *(library(f"p/l{n}.dll", f"l{n - 1}.dll") for n in range(1, count))]

    for make in (chain, alike, plugins, modules):
        dlls = make(16_000)
        folders = by_folder(dlls)
        began = time.process_time()
        only_for_plugins(dlls)
        Needs(dlls).users_of([dlls[-1].path])
        linking._away(dlls, folders)
        assert time.process_time() - began < 6  # 20 s and more where each is followed by itself
