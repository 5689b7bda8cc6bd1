"""A project's name has ASCII letters, digits, and . _ - between them, wherever a name comes in."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import requirements
from cairn import stack as stacks
from cairn.errors import CairnError, StoreError
from cairn.release.index import keys
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import distribution, mirror_lock
from cairn.wheels import wheelset
from cairn.wheels.metadata import wheel_info
from helpers.release import make_wheel
from helpers.testing import named_set, named_wheel
from helpers.trail import SAMPLE

# A Cyrillic o, a Greek omicron, a fullwidth letter, a dotless i, a letter with an accent, a digit of Arabic.
LOOKALIKES = ("t\u043erch", "t\u03bfrch", "tor\uff43h", "tr\u0131ton", "t\xf6rch", "torch\u0662")


def wheel_with(folder: Path, name: str) -> Path:
    """A good wheel of torch whose file is called otherwise."""
    path = make_wheel(folder, "torch", "2.9.0")
    return path.rename(path.with_name(path.name.replace("torch", name)))


def sdist_with(folder: Path, name: str, more: str = "") -> Path:
    path = folder / f"{name}-2.9.0.tar.gz"
    data = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.9.0\n{more}".encode()
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}-2.9.0/PKG-INFO")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def stack_with(folder: Path, name: str) -> Path:
    text = (SAMPLE / "stack.toml").read_text(encoding="utf-8")
    assert 'name = "torch"' in text
    (folder / "stack.toml").write_text(text.replace('name = "torch"', f'name = "{name}"'), encoding="utf-8")
    return folder / "stack.toml"


ENTRANCES: dict[str, Callable[[Path, str], object]] = {
    "the name of a wheel": lambda _, n: wheel_info.parse_file_name(f"{n}-2.9.0-py3-none-any.whl"),
    "the name of a wheel in an index": lambda _, n: project_of(f"{n}-2.9.0-py3-none-any.whl"),
    "the name of an sdist in an index": lambda _, n: project_of(f"{n}-2.9.0.tar.gz"),
    "the version of a file in an index": lambda _, n: version_of(f"{n}-2.9.0-py3-none-any.whl"),
    "a wheel to publish": lambda f, n: distribution.read(wheel_with(f, n)),
    "an sdist to mirror": lambda f, n: distribution.read(sdist_with(f, n)),
    "a requirement": lambda _, n: requirements.requirement(f"{n}==2.9.0"),
    "an extra of a requirement": lambda _, n: requirements.requirement(f"torch[{n}]==2.9.0"),
    "a stack": lambda f, n: stacks.load(stack_with(f, n)),
    "the lock of a mirror": lambda f, n: mirror_lock.read(lock_with(f, n)),
    "a set": lambda _, n: wheelset.seal(named_set(named_wheel(f"{n}-2.9.0-py3-none-any.whl")), []),
}


def lock_with(folder: Path, name: str) -> Path:
    text = (SAMPLE.parent / "pytorch" / "mirror.lock.toml").read_text(encoding="utf-8")
    path = folder / "mirror.lock.toml"
    path.write_text(text.replace("numpy", name), encoding="utf-8")
    assert name in path.read_text(encoding="utf-8")
    return path


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_name_in_other_letters_comes_in_nowhere(tmp_path: Path, entrance: str, name: str) -> None:
    with pytest.raises((CairnError, ValueError)):
        ENTRANCES[entrance](tmp_path, name)


@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_store_has_no_key_for_such_a_name(name: str) -> None:
    for key in (f"release/simple/{name}/index.html", f"ledger/names/{name}.json"):
        assert not keys.is_own(key)
    assert not requirements.is_project_name(name)


def test_the_error_of_a_file_says_what_a_name_is() -> None:
    with pytest.raises(StoreError, match="does not begin with the name of a project"):
        project_of(f"{LOOKALIKES[0]}-2.9.0-py3-none-any.whl")


@pytest.mark.parametrize(
    "name", ["a-1-1x/../../b-py3-none-any.whl", "a-1-1x\\b-py3-none-any.whl", "a-1-1\n-py3-none-any.whl"]
)
def test_no_file_of_an_index_has_a_name_that_leads_elsewhere(name: str) -> None:
    """An index may name a file `a-1-1x%2F..%2F..`, which packaging takes for a build number."""
    with pytest.raises(StoreError, match="name of neither a wheel nor an sdist"):
        project_of(name)


@pytest.mark.parametrize(
    "name", ["torch", "Torch", "a", "a.b", "a_b-c", "rocm_sdk_libraries_gfx94X_dcgpu", "2to3"]
)
def test_the_names_of_the_specification_are_taken(name: str) -> None:
    assert project_of(f"{name.replace('-', '_')}-2.9.0-py3-none-any.whl")


def test_metadata_that_is_larger_than_any_is_refused_and_never_cut(tmp_path: Path) -> None:
    sdist = sdist_with(tmp_path, "torch", f"Keywords: {'k' * (16 << 20)}\nRequires-Dist: numpy\n")
    with pytest.raises(StoreError, match="PKG-INFO is larger than 16 MiB"):
        distribution.read(sdist)
