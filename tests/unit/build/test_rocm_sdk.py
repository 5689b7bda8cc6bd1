from pathlib import Path

import pytest

from cairn import interpreters
from cairn.build import rocm_sdk
from cairn.errors import PrerequisiteError, ProcessError
from cairn.stack import Sdk, Stack

pytestmark = pytest.mark.usefixtures("build_cache")

HALF = """
import pathlib, sys
prefix = pathlib.Path(sys.argv[1])
if prefix.exists():
    sys.exit(7)
prefix.mkdir()
sys.exit(3)
"""


DESCRIPTION = """
schema = "cairn.rocm-packages/1"
core = { files = ["**"] }
libraries = { files = [] }
devel = { files = [] }
"""
PREFIX = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir(); p.joinpath('made').touch()"


def test_an_sdk_is_made_again_where_the_machine_has_changed_and_in_no_second_folder(tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()
    packages, version = tmp_path / "stack" / "packages.toml", tmp_path / "version"
    packages.write_text(DESCRIPTION)
    show = ("{python}", "-c", f"print(open({str(version)!r}).read())")
    sdk = Sdk(
        version="7.0", build=("{python}", "-c", PREFIX, "{prefix}"), packages=str(packages), machine=show
    )
    stack = Stack(name="s", line="l", targets=("gfx942",), projects=(), sdk=sdk)

    def make() -> tuple[Path, ...]:
        return rocm_sdk.make(
            stack, ("gfx942",), tmp_path / "work", log=tmp_path / "log", say=lambda _line: None
        )

    said: list[str] = []
    version.write_text("1")
    first = make()
    assert make() == first
    version.write_text("2")
    assert make() != first
    version.write_text("1")
    other = rocm_sdk.make(stack, ("gfx942",), tmp_path / "other", log=tmp_path / "log", say=said.append)
    assert said == []  # nothing is made: the packages are those of the first run
    assert [path.read_bytes() for path in other] == [path.read_bytes() for path in first]
    version.unlink()
    with pytest.raises(PrerequisiteError, match=r"SDK of the stack s cannot be made here: .*No such file"):
        make()
    version.write_text("1")
    assert make() == first


def test_half_a_prefix_is_not_built_upon(tmp_path: Path) -> None:
    packages = tmp_path / "stack" / "packages.toml"
    packages.parent.mkdir()
    packages.touch()
    made = Sdk(version="7.0", build=("{python}", "-c", HALF, "{prefix}"), packages=str(packages))
    stack = Stack(name="s", line="l", targets=("gfx942",), projects=(), sdk=made)
    for _ in range(2):
        with pytest.raises(ProcessError) as caught:
            rocm_sdk.make(stack, ("gfx942",), tmp_path / "work", log=tmp_path / "log", say=lambda _line: None)
        assert caught.value.returncode == 3


def test_where_no_sdk_is_installed_the_option_that_installs_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no ROCm SDK is installed") as caught:
        rocm_sdk.existing(tmp_path, interpreters.current())
    # `cairn build` has no such command: only upstream's script has.
    assert "install-rocm command" not in str(caught.value.tip)
    assert "--install-rocm --index-url URL" in str(caught.value.tip)


def test_one_sdk_has_one_digest_wherever_it_is_installed(tmp_path: Path) -> None:
    """Otherwise no machine would take a wheel that another one has built with it."""

    def installed(name: str, script: str, library: str) -> str:
        about = tmp_path / name / "rocm-7.10.0.dist-info"
        about.mkdir(parents=True)
        (about / "RECORD").write_text(f"{script},sha256={name},218\nrocm_sdk/lib.so,sha256={library},9\n")
        return rocm_sdk.digest_of(tmp_path / name)

    here = installed("here", "../../../bin/rocm-sdk", "one")
    assert installed("there", "../../../bin/rocm-sdk", "one") == here
    assert installed("other", "../../../bin/rocm-sdk", "two") != here
    windows = installed("windows", "../../Scripts/rocm-sdk.exe", "one")
    assert windows == here
