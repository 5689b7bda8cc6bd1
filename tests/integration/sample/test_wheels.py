"""The sample's wheels: clean, complete, computing, for exactly the targets asked for."""

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import quote

import pytest
from elftools.elf.elffile import ELFFile

from cairn import process
from cairn.cli.main import main
from helpers.range_server import serving_ranges
from helpers.sample import NAMES, SAMPLE, Built, build_wheel, environment, own_variables

pytestmark = pytest.mark.slow

TARGET = re.compile(rb"hipv4-amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")


def metadata(wheel: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        message = HeaderParser().parsestr(archive.read(name).decode())
    return {key: message.get_all(key, []) for key in ("Name", "Version", "Requires-Dist", "License-File")}


def libraries(built: Built) -> Iterator[tuple[str, Path]]:
    for path in sorted(built.site.rglob("*.so")):
        relative = path.relative_to(built.site)
        if relative.parts[0] in NAMES:
            yield relative.as_posix().split(".")[0], path


def needed(path: Path) -> set[str]:
    with path.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}


def rpath(path: Path) -> str:
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags()
        return next(
            (
                t.runpath if t.entry.d_tag == "DT_RUNPATH" else t.rpath
                for t in tags
                if t.entry.d_tag in {"DT_RUNPATH", "DT_RPATH"}
            ),
            "",
        )


def pytest_in(built: Built, folder: Path, *arguments: str) -> str:
    """Run a folder's tests on the installed wheels, from a copy of it; pytest comes from ours."""
    copy = built.site.parents[3] / f"copy of {folder.parent.name} {folder.name}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    ours = Path(pytest.__file__).resolve().parents[1]
    # Its own folder for temporary files: the usual one is cleaned of what earlier runs left there.
    options = ["-rs", "-p", "no:cacheprovider", "-W", "error", f"--basetemp={copy / 'temporary'}"]
    command = [str(built.python), "-m", "pytest", *options]
    variables = environment(PYTHONPATH=str(ours), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return process.run(
        [*command, "--import-mode=importlib", *arguments, "."], cwd=copy, env=variables, confined=False
    ).output


def is_rocm(built: Built) -> bool:
    return "ROCM_HOME" in built.variables


def test_the_wheels_are_named_for_this_python(built: Built) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    suffix = "+rocm7.10.0" if is_rocm(built) else "+cpu"
    tag = f"{python}-{python}-linux_x86_64.whl"
    versions = {"triton": "3.5.0", "torch": "2.9.0", "torchaudio": "2.9.0", "torchvision": "0.24.0"}
    assert {name: wheel.name for name, wheel in built.wheels.items()} == {
        name: f"{name}-{version}{suffix}-{tag}" for name, version in versions.items()
    }


def test_the_wheels_are_clean(built: Built) -> None:
    command = [sys.executable, "-m", "check_wheel_contents"]
    process.run([*command, *map(str, built.wheels.values())], confined=False)
    for wheel in built.wheels.values():
        assert [Path(name).name for name in metadata(wheel)["License-File"]] == ["LICENSE"]


def test_siblings_are_required_exactly(built: Built) -> None:
    suffix = "+rocm7.10.0" if is_rocm(built) else "+cpu"
    assert metadata(built.wheels["triton"])["Requires-Dist"] == []
    assert metadata(built.wheels["torch"])["Requires-Dist"] == [
        f"triton==3.5.0{suffix}",
        "rocm[libraries]==7.10.0",
    ]
    for name in ("torchaudio", "torchvision"):
        assert metadata(built.wheels[name])["Requires-Dist"] == [f"torch==2.9.0{suffix}"]


def test_each_library_needs_what_it_uses(built: Built) -> None:
    found = {name: needed(path) for name, path in libraries(built)}
    torch = {"libc10", "libtorch_cpu"} | ({"libtorch_hip"} if is_rocm(built) else set())
    assert {name for name in found if name.startswith("torch/lib/")} == {f"torch/lib/{n}" for n in torch}
    assert {n.removesuffix(".so") for n in found["torch/_C"]} >= torch
    assert {"libc10.so", "libtorch_cpu.so"} <= found["torchaudio/_torchaudio"]
    users = {name for name, libs in found.items() if any(lib.startswith("libamdhip64.so.") for lib in libs)}
    assert users == ({"torch/lib/libtorch_hip", "torchvision/_C"} if is_rocm(built) else set())
    allowed = re.compile(
        r"libc10\.so|libtorch_\w+\.so|libamdhip64\.so\.\d+|libc\.so\.6|libm\.so\.6|ld-linux.*"
    )
    assert not [lib for libs in found.values() for lib in libs if not allowed.fullmatch(lib)]


def test_libraries_are_found_relatively(built: Built) -> None:
    for _, path in libraries(built):
        assert all(part.startswith("$ORIGIN") for part in rpath(path).split(":") if part)


def test_the_device_code_is_for_the_targets_asked_for(built: Built) -> None:
    targets = set(built.variables.get("PYTORCH_ROCM_ARCH", "").split(";")) - {""}
    found = {name: {t.decode() for t in TARGET.findall(path.read_bytes())} for name, path in libraries(built)}
    with_code = {"torch/lib/libtorch_hip", "torchvision/_C"}
    assert {name: code for name, code in found.items() if code} == (
        dict.fromkeys(with_code, targets) if targets else {}
    )


def test_no_build_path_is_in_the_wheels(built: Built) -> None:
    folder = str(built.site.parents[3]).encode()
    for wheel in built.wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            assert [name for name in archive.namelist() if folder in archive.read(name)] == []


def test_the_smoke_tests_pass(built: Built) -> None:
    output = pytest_in(built, SAMPLE / "smoke-tests")
    assert re.search(r"\d+ passed, 7 skipped", output)
    assert output.count("no device") == 3  # one line for each place of the source


@pytest.mark.parametrize("name", NAMES)
def test_the_projects_own_tests_pass(built: Built, name: str) -> None:
    assert " passed" in pytest_in(built, built.trees[name] / "test")


def test_the_sources_stay_as_they_were(built: Built) -> None:
    for name in ("torchaudio", "torchvision", "triton"):
        assert (
            process.run(["git", "status", "--porcelain"], cwd=built.trees[name], confined=False).output == ""
        )


@pytest.mark.parametrize("built", ["embedded", "cpu"], indirect=True)
def test_a_second_build_compiles_what_changed_and_nothing_else(built: Built, tmp_path: Path) -> None:
    tree = built.trees["torch"]
    own = own_variables("+rocm7.10.0" if is_rocm(built) else "+cpu")["torch"]
    assert " -c " not in build_wheel(tree, tmp_path, **built.variables, **own)
    source = tree / "c10" / "core" / "Error.cpp"
    before = source.read_text()
    source.write_text(before + "// changed\n")
    compiled = [
        line for line in build_wheel(tree, tmp_path, **built.variables, **own).splitlines() if " -c " in line
    ]
    source.write_text(before)
    assert len(compiled) == 1
    assert "Error.cpp" in compiled[0]


@pytest.mark.parametrize(
    "built", ["cpu"], indirect=True
)  # a package of Python alone, whoever compiles the rest
def test_a_file_that_left_the_sources_leaves_the_wheel(built: Built, tmp_path: Path) -> None:
    tree = built.trees["triton"]
    own = own_variables("+cpu")["triton"]
    runtime = tree / "python" / "triton" / "runtime" / "__init__.py"
    extra = runtime.with_name("extra.py")
    extra.touch()
    build_wheel(tree, tmp_path / "with", **built.variables, **own)
    extra.unlink()
    build_wheel(tree, tmp_path / "without", **built.variables, **own)
    for folder, expected in (("with", True), ("without", False)):
        with zipfile.ZipFile(next((tmp_path / folder).glob("*.whl"))) as archive:
            assert ("triton/runtime/extra.py" in archive.namelist()) is expected


def test_they_are_shown_where_they_lie_as_from_the_file(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    for wheel in built.wheels.values():
        answers = []
        with serving_ranges(wheel.parent) as server:
            for word in (f"{server.url}/{quote(wheel.name)}", str(wheel)):
                assert main(["wheel", "show", word, "--json"]) == 0
                answers.append(json.loads(capsys.readouterr().out)[0])
        remote, here = answers
        unread = {name for name, value in remote.items() if value is None and here[name] is not None}
        assert unread <= {"targets", "libraries", "kind", "archives", "builds"}
        assert remote == {**here, **dict.fromkeys(unread), "unread": remote["unread"]}
