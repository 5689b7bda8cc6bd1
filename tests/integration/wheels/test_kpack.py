"""Wheels split, installed by pip, and loaded: every GPU gets through each wrapper the code it had before."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import pytest

from cairn.formats.kpack import Archive, writing
from cairn.formats.view import FileView
from cairn.wheels.contents import binaries
from cairn.wheels.split.join import join
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.kpack_runtime import (
    build_library,
    build_stand_in,
    codes_before,
    codes_by_amd,
    codes_by_us,
    expansions,
    load,
    reference_in,
)
from helpers.rocm import KERNEL
from helpers.wheels import members_of, pip_install


def code(target: str, number: int) -> bytes:
    dice = random.Random(f"{target} {number}")  # noqa: S311 - fixed content is the point
    return make_code_object(target, dice.randbytes(5000))


# Three object files: compiled for both settings of a feature, for either, and for several processors at once.
FIRST = {t: code(t, 1) for t in ("gfx942", "gfx90a:xnack+", "gfx90a:xnack-")}
SECOND = {t: code(t, 2) for t in ("gfx90a", "gfx942")}
THIRD = {t: code(t, 3) for t in ("gfx9-4-generic", "gfx90a:sramecc+")}
OBJECTS = [FIRST, SECOND, THIRD]
LEADS = [0, 1, 2, 0]
LIBRARIES = {
    "demo/_C.so": LEADS,
    "demo/lib/libdemo.so": [2, 1, 0],
    "demo/lib/deep/libdeep.so": LEADS,
    "top.so": LEADS,
}
# What each GPU's program said of itself, and what it got of each object file when they were in one library.
GPUS: dict[str, list[bytes | None]] = {
    "gfx942:sramecc+:xnack-": [FIRST["gfx942"], SECOND["gfx942"], THIRD["gfx9-4-generic"]],
    "gfx90a:sramecc+:xnack-": [FIRST["gfx90a:xnack-"], SECOND["gfx90a"], THIRD["gfx90a:sramecc+"]],
    "gfx90a:sramecc+:xnack+": [FIRST["gfx90a:xnack+"], SECOND["gfx90a"], THIRD["gfx90a:sramecc+"]],
    "gfx90a:sramecc-:xnack+": [FIRST["gfx90a:xnack+"], SECOND["gfx90a"], None],
    "gfx1100": [None, None, None],
}


class Finding(Protocol):
    """How a GPU finds its code through each wrapper of a library."""

    def __call__(self, library: Path, stand_in: Path, gpu: str, *, shift: int = 0) -> list[bytes | None]: ...


@pytest.fixture(params=[codes_by_us, codes_by_amd])
def found(request: pytest.FixtureRequest) -> Finding:
    return cast("Finding", request.param)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stand_in(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="module")
def wheel(stand_in: Path, pack_into: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    kinds = ((0, 0), (2, 1), (3, 1))
    bundles = [make_bundle(codes, *kind) for codes, kind in zip(OBJECTS, kinds, strict=True)]
    members = {"demo/__init__.py": b""}
    for number, (path, leads) in enumerate(LIBRARIES.items()):
        linked = ("-Wl,-z,pack-relative-relocs",) if number % 2 else ()
        made = build_library(folder / f"{number}.so", bundles, leads, stand_in, *linked)
        members[path] = made.read_bytes()
    return pack_into(folder, members)


@pytest.fixture(scope="module")
def parts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return split(wheel, tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def site(parts: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"), *parts)


def install(folder: Path, *wheels: Path) -> Path:
    pip_install("--target", folder, *wheels)
    return folder


@pytest.mark.parametrize("path", LIBRARIES)
def test_every_gpu_gets_what_it_got_before(site: Path, stand_in: Path, found: Finding, path: str) -> None:
    wrappers = load(site / path, stand_in)
    assert [wrapper.ordinal for wrapper in wrappers] == list(range(len(LIBRARIES[path])))
    for gpu, wanted in GPUS.items():
        assert found(site / path, stand_in, gpu) == [wanted[n] for n in LIBRARIES[path]], gpu


def test_one_device_wheel_serves_its_gpus_alone(
    parts: tuple[Path, ...], stand_in: Path, found: Finding, tmp_path: Path
) -> None:
    host, *devices = parts
    site = install(tmp_path, host, next(path for path in devices if "gfx942" in path.name))
    library = site / "demo/_C.so"
    assert found(library, stand_in, "gfx942") == [GPUS["gfx942:sramecc+:xnack-"][n] for n in LEADS]
    assert found(library, stand_in, "gfx90a:sramecc+:xnack-") == [None] * 4
    (site / "demo/.kpack/demo_gfx942.kpack").unlink()
    assert found(library, stand_in, "gfx942") == [None] * 4


def test_code_of_a_different_build_is_not_found(
    wheel: Path,
    parts: tuple[Path, ...],
    stand_in: Path,
    found: Finding,
    pack_into: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """An upgrade of the host wheel alone leaves it there: it would run, with the wrong arguments."""
    members = {path: members_of(wheel)[path] for path in ("demo/__init__.py", *LIBRARIES)}
    # A byte of host code: which kernels there are, and what the device code is, is as it was.
    members["demo/_C.so"] = members["demo/_C.so"].replace(b"the text of this", b"THE text of this")
    (host, *_) = split(pack_into(tmp_path, members), tmp_path / "parts")
    site = install(tmp_path / "site", host, next(path for path in parts if "device_gfx942" in path.name))
    for path, leads in LIBRARIES.items():
        assert found(site / path, stand_in, "gfx942") == [None] * len(leads)


def test_the_runtime_is_misled_as_it_is_known_to_be(
    site: Path, stand_in: Path, found: Finding, tmp_path: Path
) -> None:
    """A look-up that were not would be of no use as a judge."""
    shutil.copytree(site / "demo", tmp_path / "demo")
    library, gpu = tmp_path / "demo/_C.so", "gfx90a:sramecc+:xnack-"
    right = [GPUS[gpu][n] for n in LEADS]
    assert found(library, stand_in, gpu) == right
    # Each wrapper with the ordinal of the next, as where an index is not the ordinal (rocm-systems#6943).
    assert found(library, stand_in, gpu, shift=1) == [*right[1:], None]
    # An archive for a more specific target that has one kernel alone hides the others (TheRock#7081).
    folder = library.parent / ".kpack"
    with writing(folder / f"demo_{gpu}.kpack", group="demo", family="gfx90a", targets=[gpu]) as made:
        name = reference_in(load(library, stand_in)[0].target)["kernel_name"]
        made.name(name, 0, gpu, made.add([FIRST["gfx90a:xnack-"]], len(FIRST["gfx90a:xnack-"])))
    assert found(library, stand_in, gpu) == [FIRST["gfx90a:xnack-"], None, None, None]


def test_what_was_split_passes_and_is_joined(wheel: Path, parts: tuple[Path, ...], tmp_path: Path) -> None:
    for part in parts:
        problems = verify(part, Expectation(provided_libraries=("libamdhip64.so*",)))
        assert [found for found in problems if found.code not in ("platform-tag", "platform")] == []
    assert binaries.targets_of(parts[0]) == ()
    made = join(parts[0], parts[1:], tmp_path / "joined")
    assert not any(library.missing for library in made.libraries)
    assert binaries.targets_of(made.path) == binaries.targets_of(wheel)


def test_archives_are_complete_and_named_for_their_targets(site: Path) -> None:
    archives = [path for path in sorted(site.rglob("*.kpack")) if path.is_file()]
    # For `demo` and for what is beside it: gfx942, gfx9-4-generic, and gfx90a with six sets of features.
    assert len(archives) == 2 * 8
    for path in archives:
        with path.open("rb") as file:
            archive = Archive.open(FileView(file), path.name)
            list(archive.checked())
        assert path.name == f"demo_{archive.table.gfx_arches[0]}.kpack"


@pytest.mark.by_hand
@pytest.mark.usefixtures("debian_hip")
def test_what_debians_compiler_of_hip_makes(
    pack: Callable[..., Path], found: Finding, tmp_path: Path
) -> None:
    """Real wrappers, constructors and code objects; the stand-in takes the place of Debian's runtime."""
    stand_in = build_stand_in(tmp_path)
    targets = ("gfx90a:xnack+", "gfx90a:xnack-", "gfx1030")
    for name in ("a", "b"):
        source = re.sub(r"\b(axpy|total|int launch)\b", rf"\1_{name}", KERNEL)
        (tmp_path / f"{name}.hip").write_text(source)
    command = ["hipcc", "-shared", "-fPIC", "-o", "libhip.so", "a.hip", "b.hip", "-Wl,-rpath,$ORIGIN"]
    command += [f"--offload-arch={target}" for target in targets]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "HIP_PLATFORM": "amd"}, check=True)
    data = (tmp_path / "libhip.so").read_bytes()
    parts = split(pack({"demo/__init__.py": b"", "demo/lib/libhip.so": data}), tmp_path / "split")
    site = install(tmp_path / "site", *parts)
    library = site / "demo/lib/libhip.so"
    assert library.stat().st_size < len(data) - 30_000
    assert [wrapper.ordinal for wrapper in load(library, stand_in)] == [0, 1]
    before = codes_before(tmp_path / "libhip.so")
    assert len(before) == 2
    for target in targets:
        assert next(iter(expansions(target))) == target
        assert found(library, stand_in, target) == [row[target] for row in before]
    assert len({code for row in before for code in row.values()}) == 6
    made = join(parts[0], parts[1:], tmp_path / "joined")
    assert [found.same_bytes for found in made.libraries] == [True]
