import os
import sys
import sysconfig
from pathlib import Path

import pytest

from cairn import interpreters
from cairn.errors import PrerequisiteError, UsageError
from helpers import pythons

SAYS = """#!/bin/sh
echo '{{"release": "{version}.1", "version": "{version}.1", "platform": "linux-x86_64",'
echo '"implementation": "{kind}", "free": {free}, "pip": true, "headers": true, "system": false}}'
"""


def stand_in(path: Path, version: str, *, kind: str = "CPython", free: str = "false") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SAYS.format(version=version, kind=kind, free=free))
    path.chmod(0o755)
    return path


def test_our_own_is_what_this_python_says_of_itself() -> None:
    own = interpreters.current()
    assert own.version == sysconfig.get_python_version()
    assert own.tag == f"cp{sysconfig.get_config_var('py_version_nodot')}"
    assert interpreters.find(own.version) == own
    asked = interpreters.ask(Path(sys.executable))
    assert asked == own


def test_another_version_is_found_by_its_number_and_by_its_path() -> None:
    own, other = pythons.several(2)
    assert other.version != own.version
    assert interpreters.find(str(other.path)) == other
    assert other.release.startswith(f"{other.version}.")
    assert other.tag == f"cp3{other.version.removeprefix('3.')}"


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
def test_a_version_is_found_on_path_and_a_program_of_that_name_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As pyenv's stand-ins are, for a version that is not switched on.
    broken = tmp_path / "shims" / "python3.99"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'python3.99: command not found' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "with space"))
    with pytest.raises(PrerequisiteError, match=r"no Python 3\.99"):
        interpreters.find("3.99")
    whole = stand_in(tmp_path / "with space/versions/3.99.2/bin/python3.99", "3.99")
    assert interpreters.find("3.99").path == whole
    (tmp_path / "bin").mkdir()
    first = stand_in(tmp_path / "bin/python3.99", "3.99")
    monkeypatch.setenv("PATH", f"{first.parent}{os.pathsep}{os.environ['PATH']}")
    assert interpreters.find("3.99").path == first
    assert interpreters.find("python3.99").path == first


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
@pytest.mark.parametrize("kind", [{"kind": "PyPy"}, {"free": "true"}])
def test_what_wheels_are_not_built_for_is_refused(tmp_path: Path, kind: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="which wheels are not built for"):
        interpreters.find(str(stand_in(tmp_path / "python", "3.11", **kind)))


@pytest.mark.parametrize("word", ["", " ", "no-such-program", "./no/such", "/"])
def test_what_is_no_python_is_refused_with_what_to_write(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        interpreters.find(word)
    assert "3.12" in (caught.value.tip or "")


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a program")
    for program in (text, Path("/bin/true")):
        with pytest.raises(UsageError, match="not a Python that runs"):
            interpreters.find(str(program))


def test_one_version_is_named_once() -> None:
    own = interpreters.current()
    with pytest.raises(UsageError, match="twice"):
        interpreters.find_all([own.version, sys.executable])
