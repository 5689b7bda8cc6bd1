from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from cairn.cli import main
from cairn.errors import UsageError
from cairn.output import console
from cairn.rocm import install, package
from cairn.rocm.package import PackageRequest
from cairn.venv import PackageSource

DESCRIPTION = """
schema = "cairn.rocm-packages/1"
[core]
files = ["lib/**"]
[libraries]
files = []
[devel]
files = ["include/**"]
[preload]
{preload}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "prefix/lib").mkdir(parents=True)
    (tmp_path / "prefix/lib/data").write_text("x")
    (tmp_path / "packages.toml").write_text(DESCRIPTION.format(preload=""))
    return tmp_path


def request(tree: Path, **changes: object) -> PackageRequest:
    values: dict[str, object] = {
        "prefix": tree / "prefix",
        "description": tree / "packages.toml",
        "version": "7.10.0",
        "targets": ("gfx942",),
        "output_dir": tree / "dist",
    }
    return PackageRequest(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "7.10"}, None),
        ({"version": "v7.10.0"}, "'v7.10.0' is not a version"),
        ({"version": "7.10.0-nightly"}, "'7.10.0-nightly' is not a version"),
        ({"version": "7.10.0.dev0-efed3c"}, "is not a version"),
        ({"targets": ()}, "for which GPU targets"),
        ({"targets": ("gfx9999",)}, "unknown GPU target"),
        ({"family": "gfx\nRequires-Dist: evil"}, "cannot be part of a package's name"),
        ({"family": "../up"}, "cannot be part of a package's name"),
        ({"description": None}, "needs a packages.toml"),
        ({"artifacts": Path("x")}, "name one tree"),
        ({"prefix": None}, "name one tree"),
        ({"prefix": Path("no-such-folder")}, "is not a folder"),
        ({"prefix": None, "artifacts": Path("no-such-folder")}, "is not a folder"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(
    tree: Path, changes: dict[str, object], message: str | None
) -> None:
    if message is None:
        assert package.package(request(tree, **changes))[-1].path.name == "rocm-7.10.tar.gz"
        return
    with pytest.raises(UsageError, match=message) as caught:
        package.package(request(tree, **changes))
    assert caught.value.tip or "unknown" in message or "folder" in message
    assert not (tree / "dist").exists()


def test_a_preload_name_without_a_library_is_refused(tree: Path) -> None:
    (tree / "packages.toml").write_text(DESCRIPTION.format(preload='amdhip64 = "libamdhip64.so*"'))
    with pytest.raises(UsageError, match=r"amdhip64 \(libamdhip64\.so\*\)"):
        package.package(request(tree))


def test_a_family_without_libraries_gets_no_empty_wheel(tree: Path) -> None:
    dists = package.package(request(tree))
    assert [d.distribution for d in dists] == ["rocm-sdk-core", "rocm-sdk-devel", "rocm"]
    assert dists[0].path.name == "rocm_sdk_core-7.10.0-py3-none-any.whl"


def test_pip_is_asked_for_what_the_flags_say(tmp_path: Path) -> None:
    asked = install.InstallRequest(
        python=Path("env"),
        source=PackageSource(
            index_url="https://example.org/simple/",
            find_links=("wheels", "more"),
            cache_dir=tmp_path,
            pre=True,
        ),
        version="7.10.0a20251124",
        extras=("devel",),
    )
    words = install.install_command(asked)[install.install_command(asked).index("install") :]
    assert words == (
        "install", "--no-input", "--no-user", "--index-url", "https://example.org/simple/",
        "--find-links", "wheels", "--find-links", "more",
        "--cache-dir", str(tmp_path), "--pre", "rocm[devel]==7.10.0a20251124",
    )  # fmt: skip
    assert install.InstallRequest(python=Path("env"), extras=()).requirement == "rocm"


def test_the_command_line_becomes_pips(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parser = main.make_parser()
    words = ["rocm", "install", "--python", str(tmp_path), "--find-links", "a", "--find-links", "c"]
    words += ["--no-pre", "--dry-run", "--rocm-extras", "libraries,profiler"]
    options = parser.parse_args(words)
    console.use(console.Console())
    assert options.run(options) == 0
    shown = capsys.readouterr().out
    wanted = "install --no-input --no-user --find-links a --find-links c 'rocm[libraries,devel,profiler]'"
    assert shown.endswith(f"{wanted}\n")


@pytest.mark.parametrize("text", ["==", 'a; extra == "x\nName: evil"', "a b c"])
def test_a_requirement_that_is_none_is_refused_as_the_description_is_read(tree: Path, text: str) -> None:
    file = tree / "packages.toml"
    file.write_text(file.read_text().replace('["lib/**"]', f"['lib/**']\nrequires = [{json.dumps(text)}]"))
    with pytest.raises(UsageError, match="requirement"):
        package.package(request(tree))


@pytest.mark.parametrize("present", [False, True])
def test_a_text_is_written_where_the_tree_has_no_such_file(tree: Path, *, present: bool) -> None:
    (tree / "packages.toml").write_text(
        DESCRIPTION.format(preload="")
        + """
[texts]
"include/rocm_version.h" = "#define A {major}.{minor}.{patch} {version} {other}"
[links]
"include/alias.h" = "rocm_version.h"
"include/dangling.h" = "none.h"
"""
    )
    if present:
        (tree / "prefix/include").mkdir()
        (tree / "prefix/include/rocm_version.h").write_text("its own")
    written = package.package(request(tree, version="7.10.0rc1"))
    wheel = next(each.path for each in written if each.distribution == "rocm-sdk-devel")
    with zipfile.ZipFile(wheel) as archive:
        inner = archive.read("rocm_sdk_devel/devel.tar")
    with tarfile.open(fileobj=io.BytesIO(inner)) as devel:
        text = devel.extractfile("include/rocm_version.h")
        assert text is not None
        assert text.read() == (b"its own" if present else b"#define A 7.10.0 7.10.0rc1 {other}")
        links = {member.name: member.linkname for member in devel if member.issym()}
    assert links == {"include/alias.h": "rocm_version.h"}


def test_a_text_is_inside_the_package(tree: Path) -> None:
    (tree / "packages.toml").write_text(DESCRIPTION.format(preload="") + "[texts]\n'../x' = ''\n")
    with pytest.raises(UsageError, match=r"the name '\.\./x' of a text must be inside the package"):
        package.package(request(tree))
