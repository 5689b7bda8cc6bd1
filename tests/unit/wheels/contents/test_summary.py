from __future__ import annotations

import json
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import WheelError
from cairn.wheels.contents.summary import needed_tree, summarise
from cairn.wheels.interface.difference import Delta, diff
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf
from helpers.wheels import LINUX, MakeWheel, cairn_wheel

CODES = {"gfx942": make_code_object("gfx942", b"abc"), "gfx1100": make_code_object("gfx1100", b"de")}


@pytest.fixture
def linked(make_wheel: MakeWheel) -> Path:
    core = make_elf(soname="libcore.so.1", needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.28",)})
    code = make_elf(
        needed=("libcore.so.1", "libamdhip64.so.6"),
        runpath="$ORIGIN/lib",
        sections={".hip_fatbin": make_bundle(CODES)},
    )
    other = make_elf(needed=("libcore.so.1",))
    ring = {f"demo/{x}.so": make_elf(soname=f"{x}.so", needed=(f"{y}.so",)) for x, y in ("ab", "ba")}
    return make_wheel(
        tags=LINUX,
        files={
            "demo/lib/libcore.so.1": core,
            "demo/_C.so": code,
            "demo/_D.so": other,
            "demo/x.py": b"1",
            **ring,
        },
    )


def test_the_tree_shows_the_closure(linked: Path) -> None:
    assert list(needed_tree(summarise(linked).binaries)) == [
        "demo/_C.so",
        "├── libcore.so.1",
        "│   └── libc.so.6 (system)",
        "└── libamdhip64.so.6 (elsewhere)",
        "demo/_D.so",
        "└── libcore.so.1 (above)",
        "demo/a.so",
        "└── b.so",
        "    └── a.so (above)",
    ]


@pytest.fixture
def for_windows(make_wheel: MakeWheel) -> Path:
    code = {".hip_fat": make_bundle({"gfx942": b"abc"})}
    return make_wheel(
        tags=("cp311-cp311-win_amd64",),
        files={
            "demo/_C.pyd": make_dll(("Core.dll", "KERNEL32.dll"), ("amdhip64_7.dll",), sections=code),
            "demo/lib/core.dll": make_dll(("VCRUNTIME140.dll",)),
        },
    )


def test_a_wheel_for_windows_is_summed_up(for_windows: Path) -> None:
    summary = summarise(for_windows)
    assert list(needed_tree(summary.binaries)) == [
        "demo/_C.pyd",
        "├── core.dll",
        "│   └── vcruntime140.dll (system)",
        "├── kernel32.dll (system)",
        "└── amdhip64_7.dll (elsewhere)",
    ]
    code, core = summary.binaries
    assert (code.path, code.machine, code.targets) == ("demo/_C.pyd", "win_amd64", ("gfx942",))
    assert code.device_code_size == 3
    assert (core.path, core.needed, core.targets) == ("demo/lib/core.dll", ("vcruntime140.dll",), ())


def test_a_chain_of_any_length_is_a_tree(make_wheel: MakeWheel) -> None:
    count = sys.getrecursionlimit() + 10
    files = {
        f"demo/{i}.so": make_elf(soname=f"{i}.so", needed=(f"{i + 1}.so",) if i + 1 < count else ())
        for i in range(count)
    }
    lines = list(needed_tree(summarise(make_wheel(tags=LINUX, files=files)).binaries))
    assert (len(lines), lines[0]) == (count, "demo/0.so")
    assert lines[-1].endswith(f"└── {count - 1}.so")


def test_the_summary_counts(linked: Path) -> None:
    summary = summarise(linked)
    assert summary.targets == ("gfx942", "gfx1100")
    code = next(binary for binary in summary.binaries if binary.path == "demo/_C.so")
    assert (code.device_code_size, code.run_paths) == (sum(map(len, CODES.values())), ("$ORIGIN/lib",))
    assert summary.members == 12
    assert summary.unpacked_size > sum(binary.size for binary in summary.binaries)


def test_a_wheel_does_not_differ_from_itself(linked: Path) -> None:
    found = diff(linked, linked)
    assert found.fields == {}
    assert found.requirements == found.files == Delta()
    assert (found.changed, found.modes, found.libraries, found.order) == ((), (), (), False)


def test_every_kind_of_difference_is_told(linked: Path, tmp_path: Path) -> None:
    new_core = make_elf(soname="libcore.so.1", needed=("libm.so.6",), versions={"libc.so.6": ("GLIBC_2.34",)})
    edit = Edit(
        version="2.0",
        add_requirements=("rocm==7.10.0",),
        remove_requirements=("triton",),
        replace_files={"demo/lib/libcore.so.1": new_core, "demo/_C.so": make_elf(needed=("libcore.so.1",))},
        remove_files=("demo/x.py",),
        add_files={"demo/y.py": b"2"},
    )
    found = diff(linked, edit_wheel(linked, edit, tmp_path / "out"))
    assert found.fields == {"version": ("1.0", "2.0")}
    assert found.requirements == Delta(removed=("triton==3.5.0",), added=("rocm==7.10.0",))
    assert found.files == Delta(removed=("demo/x.py",), added=("demo/y.py",))
    assert "demo-*.dist-info/METADATA" in found.changed
    assert "demo/lib/libcore.so.1" in found.changed
    code, core = found.libraries
    assert code.targets == Delta(removed=("gfx1100", "gfx942"))
    assert code.needed == Delta(removed=("libamdhip64.so.6",))
    assert core.needed == Delta(removed=("libc.so.6",), added=("libm.so.6",))
    assert core.version_needs == Delta(removed=("libc.so.6: GLIBC_2.28",), added=("libc.so.6: GLIBC_2.34",))


def test_dlls_are_compared_too(for_windows: Path, tmp_path: Path) -> None:
    code = {".hip_fat": make_bundle({"gfx942": b"abc", "gfx1100": b"de"})}
    new = make_dll(("core.dll", "rocblas.dll"), sections=code)
    (change,) = diff(
        for_windows, edit_wheel(for_windows, Edit(replace_files={"demo/_C.pyd": new}), tmp_path / "out")
    ).libraries
    assert change.member == "demo/_C.pyd"
    assert change.needed == Delta(removed=("amdhip64_7.dll", "kernel32.dll"), added=("rocblas.dll",))
    assert change.targets == Delta(added=("gfx1100",))


def test_show_for_people_and_programs(linked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn_wheel("show", linked) == 0
    text = capsys.readouterr().out
    assert "gfx942, gfx1100" in text
    assert "MI300A, MI300X, MI325X" in text
    assert "└── libamdhip64.so.6 (elsewhere)" in text
    assert cairn_wheel("show", "--json", linked) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["distribution"] == "demo"
    assert data["targets"] == ["gfx942", "gfx1100"]


def test_a_file_that_cannot_be_read_costs_the_others_nothing(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, library = make_wheel(), tmp_path / "x.so"
    library.write_bytes(make_elf())
    gone = "http://127.0.0.1:9/gone-1.0-py3-none-any.whl"
    for verb, code, key in (("show", 7, "not_read"), ("verify", 5, "not_judged")):
        files = (library, wheel) if verb == "show" else (gone, wheel)
        assert cairn_wheel(verb, *files) == code
        shown = capsys.readouterr()
        assert wheel.name in shown.out
        assert f"{files[0]}".rpartition("/")[2] in shown.err
        assert cairn_wheel(verb, "--json", *files) == code
        assert key in capsys.readouterr().out


def test_links_are_shown_and_refused(make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tags=LINUX, files={"demo/lib/liba.so.1": make_elf()})
    link = zipfile.ZipInfo("demo/lib/liba.so")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "liba.so.1")
    assert cairn_wheel("show", wheel) == 0
    assert "demo/lib/liba.so -> liba.so.1" in capsys.readouterr().out
    assert summarise(wheel).links == ("demo/lib/liba.so -> liba.so.1",)
    assert [binary.path for binary in summarise(wheel).binaries] == ["demo/lib/liba.so.1"]
    assert [finding.code for finding in verify(wheel, Expectation())] == ["archive"]
    with pytest.raises(WheelError, match="symbolic link"):
        edit_wheel(wheel, Edit(version="2.0"), wheel.parent / "out")


def test_verify_lists_findings_and_fails(linked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = ("--provided", "libamdhip64.so*", "--provided", "?.so", "--targets", "gfx942,gfx1100")
    assert cairn_wheel("verify", *good, linked) == 0
    assert "good" in capsys.readouterr().out
    assert cairn_wheel("verify", *good, "--python", "3.12", linked) == 7
    text = capsys.readouterr().out
    assert "1 finding" in text
    assert "what to do: " in text
    assert cairn_wheel("verify", "--json", linked) == 7
    said = json.loads(capsys.readouterr().out)[str(linked)]
    assert [finding["code"] for finding in said["findings"]] == ["needed"]
    assert cairn_wheel("verify", "--targets", "gfx9999", linked) == 2


def test_an_empty_value_is_not_taken_for_none_at_all(
    linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As CI passes a variable that is not set: nothing would be checked, and the wheel would be good.
    good = ("verify", "--provided", "libamdhip64.so*", "--provided", "?.so", linked)
    with pytest.raises(SystemExit, match="2"):
        cairn_wheel(*good, "--targets", "")
    assert "it is empty" in capsys.readouterr().err
    assert cairn_wheel(*good, "--python", "") == 2
    with pytest.raises(SystemExit, match="2"):
        cairn_wheel("fat", "--targets", "", "--output-dir", tmp_path / "out", linked, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--version", "3.0"), "demo-3.0"),
        (("--rocm-version", "7.10.0"), "demo-1.0+rocm7.10.0"),
        (("--version", "3.0", "--build-number", "2"), "demo-3.0-2"),
    ],
)
def test_set_version(
    linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], name: str
) -> None:
    out = tmp_path / "out"
    require = ("--require", "Triton==3.6.0", "--require", "rocm==7.10.0")
    assert cairn_wheel("set-version", *arguments, *require, "--output-dir", out, linked) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == out / f"{name}-{LINUX[0]}.whl"
    assert summarise(path).requires_dist == ("Triton==3.6.0", "filelock", "rocm==7.10.0")


def test_a_new_version_loads_neither_what_draws_nor_what_other_commands_need(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    code = """
import sys
from cairn.cli import main
assert main.main(["wheel", "set-version", "--version", "2", "--output-dir", sys.argv[1], sys.argv[2]]) == 0
heavy = ("rich", "auditwheel", "cairn.targets", "cairn.wheels.fat.build", "cairn.wheels.verify")
print([name for name in heavy if name in sys.modules])
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(make_wheel())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path / 'demo-2-py3-none-any.whl'}\n[]\n"


@pytest.mark.parametrize("flag", ["--version", "--rocm-version", "--promote"])
@pytest.mark.parametrize("value", ["", "zwei"])
def test_set_version_to_none_at_all(
    linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    assert cairn_wheel("set-version", flag, value, "--output-dir", tmp_path / "out", linked) == 7
    assert capsys.readouterr().err.count("error: ") == 1
    assert not (tmp_path / "out").exists()


def test_promotion_and_diff_on_the_command_line(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(version="1.0+rocm7.10.0a20260501")
    assert cairn_wheel("set-version", "--promote", "final", "--output-dir", tmp_path / "out", wheel) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "demo-1.0+rocm7.10.0-py3-none-any.whl"
    assert main(["diff", str(wheel), str(path)]) == 0
    assert "version: 1.0+rocm7.10.0a20260501 -> 1.0+rocm7.10.0\n" in capsys.readouterr().out
    assert main(["diff", "--json", str(wheel), str(wheel)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []
    assert main(["diff", str(wheel), str(wheel)]) == 0
    assert capsys.readouterr().out == "no difference\n"


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    wheel = tmp_path / ("demo-1-py3-none-any.whl" if content is not None else "demo.whl")
    wheel.write_bytes(content or b"")
    assert cairn_wheel("show", wheel) == 7
    assert capsys.readouterr().err.startswith("error: ")


def test_what_is_not_there_is_not_called_a_bad_wheel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for missing in ("missing.whl", tmp_path / "demo-1-py3-none-any.whl"):
        with pytest.raises(SystemExit):
            cairn_wheel("show", missing)
        assert f"there is no file {missing}" in capsys.readouterr().err


def test_repair_says_which_wheels_it_wrote(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(tags=("py3-none-linux_x86_64",))
    out = tmp_path / "out"
    assert cairn_wheel("repair", "--json", "--output-dir", out, wheel) == 0
    assert json.loads(capsys.readouterr().out)["wheels"] == [
        {
            "source": str(wheel),
            "wheel": str(out / "demo-1.0-py3-none-manylinux_2_5_x86_64.whl"),
            "tags": ["py3-none-manylinux_2_5_x86_64"],
        }
    ]
    assert cairn_wheel("repair", "--output-dir", out, wheel) == 0
    assert capsys.readouterr().out == f"{out / 'demo-1.0-py3-none-manylinux_2_5_x86_64.whl'}\n"


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({"demo/version.py": b"__version__ = '1'\ngit_version = '" + b"ab" * 20 + b"'\n"}, "ab" * 20),
        ({"demo/_version.py": b'git_version: str | None = "0123abc"\n'}, "0123abc"),
        ({"demo/version.py": b"git_version = 1", "demo/a/version.py": b"git_version = '0123abc'\n"}, None),
        ({"demo/version.py": b"#" * 70_000 + b"\ngit_version = '0123abc'\n"}, None),
    ],
)  # fmt: skip
def test_the_commit_of_a_version_module_is_shown(
    make_wheel: MakeWheel, files: dict[str, bytes], commit: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(files=files)
    assert cairn_wheel("show", "--json", wheel) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["git_version"] == commit
    assert cairn_wheel("show", wheel) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1] for line in lines if line[:1] == ["git_version"]] == ([commit] if commit else [])


def test_what_runs_whenever_python_starts_is_shown(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = "demo-1.0.data/data/lib/python3.12/site-packages"
    files = {
        "demo/__init__.py": b"",
        "a.pth": b"# import x\nsrc\nimport os; os.putenv('A', '1')\r\nimport\tsys\nimports\n",
        "paths.pth": b"src\n import x\n",
        "demo/inner.pth": b"import x\n",
        "sitecustomize.py": b"",
        "usercustomize/__init__.py": b"",
        "usercustomize/other.py": b"",
        "demo-1.0.data/purelib/b.pth": b"import " + b"b" * 500,
        f"{inside}/c.pth": b"\xef\xbb\xbfimport \xff\n",
    }
    wheel = make_wheel(files=files)
    assert cairn_wheel("verify", wheel) == 0
    capsys.readouterr()
    assert cairn_wheel("show", wheel, "--json") == 0
    expected = [
        "a.pth: import os; os.putenv('A', '1')",
        "a.pth: import\tsys",
        f"demo-1.0.data/purelib/b.pth: import {'b' * 192}…",
        f"{inside}/c.pth: import \\xff",
        "sitecustomize.py",
        "usercustomize/__init__.py",
    ]
    assert sorted(json.loads(capsys.readouterr().out)[0]["start_up"]) == sorted(expected)
    assert cairn_wheel("show", wheel) == 0
    assert capsys.readouterr().out.count("runs at each start of Python") == len(expected)
