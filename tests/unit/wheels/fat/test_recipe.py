from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from cairn.errors import UsageError
from cairn.targets import generic_targets, parse_target_id
from cairn.wheels.fat.recipe import Naming, parse_fat_targets, serves, targets_named


def kept(name: str, wanted: str, naming: Naming = "whole") -> bool:
    targets = [parse_target_id(text) for text in wanted.split(",")]
    return serves(targets_named(PurePosixPath(name), naming), targets)


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("TensileLibrary_lazy_gfx90a.dat", "gfx90a", True),
        ("TensileLibrary_lazy_gfx90a.dat", "gfx900", False),
        ("TensileLibrary_lazy_gfx900.dat", "gfx90a", False),
        ("Kernels.so-000-gfx90a-xnack+.hsaco", "gfx90a", True),
        ("Kernels.so-000-gfx90a-xnack+.hsaco", "gfx90a:xnack+", True),
        ("Kernels.so-000-gfx90a-xnack+.hsaco", "gfx90a:xnack-", False),
        ("Kernels.so-000-gfx90a-xnack-.hsaco", "gfx90a:xnack-", True),
        ("Kernels.so-000-gfx90a.hsaco", "gfx90a:xnack-", True),
        ("Kernels.so-000-gfx908-sramecc+-xnack-.hsaco", "gfx908:xnack-", True),
        ("Kernels.so-000-gfx908-sramecc+-xnack-.hsaco", "gfx908:sramecc-", False),
        ("gfx1100.co", "gfx1101", False),
        ("gfx11-generic.co", "gfx1100", True),
        ("gfx11-generic.co", "gfx1151", True),
        ("gfx11-generic.co", "gfx1201", False),
        ("gfx9-4-generic.co", "gfx942", True),
        ("gfx9-4-generic.co", "gfx90a", False),
        ("gfx9-generic.co", "gfx942", False),
        ("gfx1101.co", "gfx11-generic", True),
        ("gfx12-generic.co", "gfx11-generic", False),
        ("kernels_gfx1100_gfx1101.co", "gfx1101", True),
        ("library.yaml", "gfx942", True),
        ("gfx942/Kernels.dat", "gfx942", True),
        ("gfx942/Kernels.dat", "gfx950", False),
        ("gfx950/Kernels_gfx942.dat", "gfx942", True),
        ("agfx942.dat", "gfx950", True),
        ("gfx942", "gfx942", True),
    ],
)
def test_whole_names(name: str, wanted: str, *, expected: bool) -> None:
    assert kept(name, wanted) is expected


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("gfx90a68.db.txt", "gfx90a", True),
        ("gfx90a68.db.txt", "gfx900", False),
        ("gfx90878.HIP.2_18_0.ufdb.txt", "gfx908", True),
        ("gfx90878.HIP.2_18_0.ufdb.txt", "gfx90a", False),
        ("gfx942130.fdb.txt", "gfx942", True),
        ("gfx1030_36.HIP.fdb.txt", "gfx1030", True),
        ("gfx1030_36.HIP.fdb.txt", "gfx1031", False),
        ("gfx803_36.db", "gfx90a", False),
        ("gfx1201.kdb", "gfx1201", True),
        ("gfx908_ConvAsm1x1U_metadata.model", "gfx908", True),
        ("miopen.db", "gfx942", True),
    ],
)
def test_names_of_databases(name: str, wanted: str, *, expected: bool) -> None:
    assert kept(name, wanted, "prefix") is expected


def test_files_for_all_targets() -> None:
    assert kept("gfx90a.xml", "gfx1100", "none")


def test_targets_are_read_as_people_write_them() -> None:
    assert list(map(str, parse_fat_targets("gfx11-generic, gfx94X"))) == ["gfx11-generic", "gfx942"]
    assert list(map(str, parse_fat_targets("gfx12-generic"))) == ["gfx12-generic"]
    for text in ("cpu", "gfx1", "", "gfx13-generic"):
        with pytest.raises(UsageError):
            parse_fat_targets(text)


def test_generic_targets_are_of_known_shape() -> None:
    for generic, members in generic_targets().items():
        assert str(parse_target_id(generic)) == generic
        assert all(str(parse_target_id(member)) == member for member in members)
