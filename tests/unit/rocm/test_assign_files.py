from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.formats.image import Image
from cairn.rocm import assign_files
from cairn.rocm import tree as rocm_tree
from cairn.rocm.assign_files import DevelLink, Package, PackageMember
from cairn.rocm.packages_toml import Component, Description
from cairn.rocm.tree import RocmTree, TreeEntry

DESCRIBED = Description(
    core=Component(files=("lib/libcore*", "share/**")),
    libraries=Component(files=("lib/libmath*",)),
    devel=Component(files=("**",), exclude=("secret/**",)),
)


def binary(*needed: str, soname: str | None = None) -> Image:
    return Image(format="elf", machine="x86_64", soname=soname, needed=needed)


def member(path: str, *needed: str) -> PackageMember:
    return PackageMember(
        path=path, source=Path("/", path), binary=binary(*needed, soname=path.rpartition("/")[2])
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = tmp_path / "prefix"
    files = ("lib/libcore.so.1.2", "lib/libmath.so.3", "share/data", "include/a.h", "bin/real", "secret/x")
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for link, target in {
        "lib/libcore.so.1": "libcore.so.1.2",
        "lib/libcore.so": "libcore.so.1",
        "lib/gone": "nothing",
        "bin/tool": "real",
        "headers": "include",
    }.items():
        (root / link).symlink_to(target)
    return root


def test_files_are_shared_out_and_devel_links_to_what_others_hold(prefix: Path) -> None:
    tree = rocm_tree.read_prefix(prefix, DESCRIBED)
    plan = assign_files.plan(tree, DESCRIBED, {"gfx942": ("gfx942",)})
    assert [m.path for m in plan.core.members] == ["lib/libcore.so.1.2", "share/data"]
    assert [m.path for m in plan.libraries[0].members] == ["lib/libmath.so.3"]
    assert [m.path for m in plan.devel.members] == ["bin/real", "include/a.h"]
    assert plan.links == (
        DevelLink(path="bin/tool", component="devel", target="bin/real"),
        DevelLink(path="headers", component="devel", target="include"),
        DevelLink(path="lib/libcore.so", component="core", target="lib/libcore.so.1.2"),
        DevelLink(path="lib/libcore.so.1", component="core", target="lib/libcore.so.1.2"),
        DevelLink(path="lib/libcore.so.1.2", component="core", target="lib/libcore.so.1.2"),
        DevelLink(path="lib/libmath.so.3", component="libraries", target="lib/libmath.so.3"),
        DevelLink(path="share/data", component="core", target="share/data"),
    )


def test_a_link_out_of_the_claimed_files_becomes_a_file(prefix: Path) -> None:
    described = Description(
        core=Component(files=("lib/libcore.so.1",)), libraries=Component(files=()), devel=Component(files=())
    )
    plan = assign_files.plan(rocm_tree.read_prefix(prefix, described), described, {"gfx942": ("gfx942",)})
    assert [(m.path, m.source.name) for m in plan.core.members] == [("lib/libcore.so.1", "libcore.so.1.2")]


def test_a_link_may_lead_into_another_artifact(tmp_path: Path) -> None:
    lib, dev = tmp_path / "lib", tmp_path / "dev"
    for folder in (lib, dev):
        (folder / "lib").mkdir(parents=True)
    (lib / "lib/liba.so.1").touch()
    (dev / "lib/liba.so").symlink_to("liba.so.1")
    (dev / "lib/loop").symlink_to("loop")
    link, loop = TreeEntry(root=dev, path="lib/liba.so"), TreeEntry(root=dev, path="lib/loop")
    tree = RocmTree(entries=(link, TreeEntry(root=lib, path="lib/liba.so.1"), loop))
    assert tree.leads_to(link) == (lib / "lib/liba.so.1").resolve()
    assert tree.leads_to(loop) is None


def test_two_files_for_one_place_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    described = Description(
        core=Component(artifacts=("*",)), libraries=Component(artifacts=()), devel=Component(artifacts=())
    )
    entries = tuple(TreeEntry(root=tmp_path / name, path="x", artifact=f"{name}_lib") for name in ("a", "b"))
    with pytest.raises(UsageError, match="two files for x"):
        assign_files.plan(RocmTree(entries=entries), described, {"gfx942": ("gfx942",)})


def test_a_tree_without_a_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file for rocm-sdk-core"):
        assign_files.plan(rocm_tree.read_prefix(tmp_path, DESCRIBED), DESCRIBED, {"gfx942": ("gfx942",)})


def test_runpaths_cross_from_one_package_to_another() -> None:
    core = Package(
        component="core",
        members=(member("lib/libhip.so.6", "libc.so.6"), member("lib/rocm_sysdeps/lib/libelf.so.1")),
    )
    blas = member("lib/libblas.so.1", "libhip.so.6", "libelf.so.1", "libtensile.so.1", "libc.so.6")
    libraries = Package(
        component="libraries", family="gfx94X-dcgpu", members=(blas, member("lib/x/libtensile.so.1"))
    )
    assert libraries.folder == "_rocm_sdk_libraries_gfx94X_dcgpu"
    assert assign_files.run_path_of(libraries, blas, core).split(":") == [
        "$ORIGIN",
        "$ORIGIN/x",
        "$ORIGIN/../../_rocm_sdk_core/lib",
        "$ORIGIN/../../_rocm_sdk_core/lib/rocm_sysdeps/lib",
    ]
    assert assign_files.run_path_of(core, core.members[1], core) == "$ORIGIN:$ORIGIN/../.."


def test_needs_that_nothing_provides_are_named() -> None:
    core = Package(
        component="core", members=(member("lib/liba.so", "libb.so", "libmissing.so.1", "libc.so.6"),)
    )
    libraries = Package(component="libraries", family="f", members=(member("lib/libb.so"),))
    profiler, devel = Package(component="profiler", members=()), Package(component="devel", members=())
    plan = assign_files.Layout(core=core, libraries=(libraries,), profiler=profiler, devel=devel, links=())
    assert list(assign_files.unmet(plan, frozenset({"libc.so.6"}))) == [
        ("_rocm_sdk_core/lib/liba.so", "libmissing.so.1")
    ]
