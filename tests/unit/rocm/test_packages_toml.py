from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.rocm import packages_toml
from cairn.rocm.packages_toml import Component, Description, literal_folder, matches


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("lib/*.so*", "lib/liba.so.1", True),
        ("lib/*.so*", "lib/llvm/liba.so", False),
        ("lib/**", "lib/llvm/bin/clang", True),
        ("lib/**", "library/x", False),
        ("**/cmake/**", "cmake/a", True),
        ("**/cmake/**", "lib/cmake/hip/a.cmake", True),
        ("**/*.a", "libx.a", True),
        ("**", "a/b/c", True),
        ("liba.so", "libaxso", False),
        ("lib?.so", "liba.so", True),
        ("lib?.so", "lib/.so", False),
    ],
)
def test_globs(glob: str, path: str, *, expected: bool) -> None:
    assert matches(path, (glob,)) is expected


@pytest.mark.parametrize(
    ("glob", "folder"),
    [("lib/x/a.so", "lib/x"), ("lib/x*/a", "lib"), ("**", ""), ("*.so", ""), ("a/b/**/c", "a/b")],
)
def test_the_folder_a_glob_starts_in(glob: str, folder: str) -> None:
    assert literal_folder(glob) == folder


def test_the_longest_relocation_counts() -> None:
    described = Description(
        core=Component(),
        libraries=Component(),
        devel=Component(),
        relocate={"lib/multi": "lib", "lib/multi/amdgcn": "lib/llvm/amdgcn"},
    )
    assert described.relocated("lib/multi/liba.so") == "lib/liba.so"
    assert described.relocated("lib/multi/amdgcn/bitcode/a.bc") == "lib/llvm/amdgcn/bitcode/a.bc"
    assert described.relocated("lib/multiple/a") == "lib/multiple/a"


def test_therocks_description_is_valid_and_lets_no_library_into_two_packages() -> None:
    described = packages_toml.therock()
    assert not set(described.core.artifacts) & set(described.libraries.artifacts)
    assert described.preload["amdhip64"] == "libamdhip64.so*"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 'cairn.rocm-packages/9'", "expected 'cairn.rocm-packages/1'"),
        ("schema = ", "is not TOML"),
        (
            "schema = 'cairn.rocm-packages/1'\n[core]\nfile = ['x']\n[libraries]\n[devel]",
            "unknown field `file`",
        ),
        ("schema = 'cairn.rocm-packages/1'\n[core]\n[devel]", "libraries"),
    ],
)
def test_a_malformed_description_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "packages.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        packages_toml.read(path)


def test_a_missing_description_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        packages_toml.read(tmp_path / "packages.toml")
