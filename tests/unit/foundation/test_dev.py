"""`dev.py`: when its environment may be used, and when it must be made anew."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DEV = Path(__file__).resolve().parents[3] / "dev.py"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", DEV)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path / ".venv"
    monkeypatch.setattr(module, "VENV", folder)
    monkeypatch.setattr(module, "BIN", folder / "bin")
    monkeypatch.setattr(module, "STAMP", folder / "cairn-stamp")
    return module


def test_a_stamp_is_not_believed_where_half_of_the_environment_is_gone(dev: ModuleType) -> None:
    venv.create(dev.VENV, with_pip=False, symlinks=True)
    dev.STAMP.write_text(dev.stamp(""), encoding="utf-8")
    assert dev.works("json")
    assert not dev.works("cairn.cli.main")
    assert not dev.ready("")
    dev.python().unlink()
    assert not dev.works("json")


def test_another_python_or_another_place_needs_another_environment(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dev.interpreter()
    assert dev.stamp("dev").startswith(before)
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert dev.interpreter() != before
    monkeypatch.undo()
    monkeypatch.setattr(dev, "ROOT", Path("/elsewhere"))
    assert dev.interpreter() != before


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_other_packages_make_it_be_installed_again(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for each in ("pyproject.toml", "constraints.txt"):
        shutil.copy(DEV.with_name(each), tmp_path)
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    before = dev.stamp("dev")
    with (tmp_path / name).open("a") as file:
        file.write("# more\n")
    assert dev.stamp("dev") != before


def needed(name: str, extras: Iterable[str] = (), seen: set[str] | None = None) -> set[str]:
    """Every package that one that is installed needs, and what those need."""
    found = set() if seen is None else seen
    for requirement in map(Requirement, metadata.requires(name) or ()):
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if wanted and canonicalize_name(requirement.name) not in found:
            found.add(canonicalize_name(requirement.name))
            needed(requirement.name, requirement.extras, found)
    return found


def test_every_package_that_is_installed_has_one_version_which_pyproject_allows() -> None:
    lines = DEV.with_name("constraints.txt").read_text().splitlines()
    held = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in held}
    packages = needed("cairn", ("dev", "fast", "s3"))
    assert packages <= versions.keys()
    for requirement in map(Requirement, metadata.requires("cairn") or ()):
        if canonicalize_name(requirement.name) in packages:
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_names_of_folders_may_have_all_letters(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    program = "import sys; open(sys.argv[1], 'w', encoding='locale').write('/home/jos\\u00e9')"
    write = [sys.executable, "-c", program, str(tmp_path / "cairn.pth")]
    assert dev.run(*write) == 1
    dev.allow_all_letters()
    assert dev.run(*write) == 0
    assert (tmp_path / "cairn.pth").read_text(encoding="utf-8") == "/home/josé"


def test_a_mistyped_stack_is_named_before_anything_is_installed(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "ready", lambda _extra: pytest.fail("it looked at the environment"))
    with pytest.raises(SystemExit) as caught:
        dev.main(["quickstart", "--stack", "sampel"])
    assert caught.value.code == 2
    assert "there is no stack 'sampel': did you mean sample?" in capsys.readouterr().err
