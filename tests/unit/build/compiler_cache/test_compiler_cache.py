import os
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from cairn import isolation, venv
from cairn.build.compiler_cache import launchers, session
from cairn.build.engine.events import CacheStatistics

LOG = """# /src/a.cpp
cache_miss
direct_cache_miss
local_storage_miss
preprocessed_cache_miss
# /src/b.cpp
direct_cache_hit
local_storage_hit
# /src/c.cpp
preprocessed_cache_hit
# link
called_for_link
# /src/d.F
unsupported_source_language
# /src/e.cpp
internal_error
"""
SCCACHE = """{"stats": {"compile_requests": 5, "requests_not_cacheable": 1, "non_cacheable_compilations": 0,
"cache_errors": {"counts": {"C/C++": 1}}, "cache_hits": {"counts": {"C/C++": 3, "HIP": 2}},
"cache_misses": {"counts": {"C/C++": 4}}, "cache_timeouts": 0, "cache_read_errors": 0,
"cache_write_errors": 0,
"dist_compiles": {"10.0.0.2:10501": 2, "10.0.0.3:10501": 1}, "dist_errors": 1}}"""


def test_a_log_of_ccache_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert session.statistics_of_ccache(log).calls == 0, "nothing was compiled"
    log.write_text(LOG)
    found = session.statistics_of_ccache(log)
    assert (found.hits, found.misses, found.uncached, found.errors) == (2, 1, 1, 1)
    assert str(found) == "ccache 2 of 3 compilations from the cache (66%), 1 not cacheable, 1 errors"


def test_statistics_of_sccache_are_counted() -> None:
    found = session.statistics_of_sccache(SCCACHE)
    assert (found.hits, found.misses, found.uncached, found.errors) == (5, 4, 1, 1)
    assert found.undistributed == 1
    assert "from the cache (55%), 3 compiled by sccache-dist, 1 not cacheable" in str(found)


@pytest.mark.parametrize(
    ("counted", "compiled", "problem"),
    [
        ({}, False, None),
        ({}, True, "counted no compilation"),
        ({"misses": 1}, True, None),
        ({"errors": 4, "misses": 1}, True, "failed 4 times"),
        ({"misses": 4, "undistributed": 1}, True, "1 of 4 compilations were for sccache-dist and were done"),
    ],
)
def test_implausible_counts_are_named(counted: dict[str, int], compiled: bool, problem: str | None) -> None:  # noqa: FBT001
    said = CacheStatistics(program="ccache", **counted).judge(compiled=compiled).problem
    assert (said is None) if problem is None else problem in (said or "")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("g++", True),
        ("x86_64-linux-gnu-gcc-12", True),
        ("clang++-19", True),
        ("c++", True),
        ("gcc-ar-12", False),
        ("gcov", False),
        ("clang-format-19", False),
        ("ccache", False),
        ("ccmake", False),
    ],
)
def test_compilers_are_known_by_their_names(name: str, is_one: bool, tmp_path: Path) -> None:  # noqa: FBT001
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    assert (name in launchers.compilers_on_path(f"/no/such/folder{os.pathsep}{tmp_path}")) is is_one


@pytest.fixture
def made(tmp_path: Path) -> launchers.Launchers:
    """Launchers whose cache says how it was called, in folders with a space and a quote in their names."""
    place = tmp_path / "it's a place"
    place.mkdir()
    echo = place / "echo"
    echo.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$CCACHE_COMPILERCHECK" "${CCACHE_EXTRAFILES-none}" "$PATH" "$@"\n'
    )
    echo.chmod(0o755)
    (place / "bitcode").mkdir()
    for name in ("ocml.bc", "ockl.bc"):
        (place / "bitcode" / name).touch()
    headers = place / "headers" / "0123"
    site = place / "env" / "site-packages"
    return launchers.Launchers(
        folder=place / "launchers",
        program="ccache",
        cache=echo,
        path=os.environ["PATH"],
        compilers={"g++": Path("/usr/bin/env")},
        device_libraries=place / "bitcode",
        site_packages=site,
        headers={"torch": headers},
    )


def called(made: launchers.Launchers, *arguments: str) -> list[str]:
    launchers.write(made)
    return subprocess.check_output([made.bin / "g++", *arguments], text=True).splitlines()


def test_a_compiler_is_named_by_its_bytes(made: launchers.Launchers) -> None:
    check, extra, _, *arguments = called(made, "-c", "a b.cpp", "")
    assert check == f"string:{launchers.digest_of(Path('/usr/bin/env'))}"
    assert extra == "none", "host code has nothing of the device libraries"
    assert arguments == ["/usr/bin/env", "-c", "a b.cpp", ""]


def test_only_device_code_goes_by_the_device_libraries(made: launchers.Launchers) -> None:
    bitcode = made.device_libraries
    for arguments in (["-x", "hip", "a.cu"], ["-xhip", "a"], ["--offload-arch=gfx942", "a"], ["a.hip"]):
        assert called(made, *arguments)[1] == f"{bitcode}/ockl.bc:{bitcode}/ocml.bc"
    other = made.folder.parent / "other"
    other.mkdir()
    (other / "ocml.bc").touch()
    assert called(made, f"--rocm-device-lib-path={other}", "a.hip")[1] == f"{other}/ocml.bc"


def test_device_code_of_two_sources_is_never_the_same(made: launchers.Launchers, tmp_path: Path) -> None:
    """Where a preprocessor says nothing of them, the source tells one from the other."""
    source = tmp_path / "a b.hip"
    source.touch()
    assert called(made, "-c", str(source))[1].split(":")[0] == str(source)


def test_device_code_of_a_script_that_names_no_clang_is_not_kept(made: launchers.Launchers) -> None:
    script = made.folder.parent / "clang++"
    script.write_text('#!/bin/sh\necho "by itself: $*"\n')
    script.chmod(0o755)
    strange = structs.replace(made, compilers={"g++": script})
    assert called(strange, "-x", "hip", "a.cu") == ["by itself: -x hip a.cu"]
    assert called(strange, "-c", "a.cpp")[0].startswith("string:"), "host code is kept all the same"


def test_headers_of_packages_are_at_one_path_where_the_build_hides_where_they_are(
    made: launchers.Launchers,
) -> None:
    site, headers = made.site_packages, made.headers["torch"]
    given = [
        f"-I{site}/torch/include",
        "-isystem",
        f"{site}/torch/include/torch/csrc/api/include",
        "-I",
        f"{site}/torch/include",
        f"{site}/torch/lib/libtorch.so",
        "-I/usr/include/python3.11",
    ]
    assert called(made, *given)[4:] == given, "the path may be in what is made"
    hidden = f"-ffile-prefix-map={site}=."
    assert called(made, hidden, *given)[4:] == [
        hidden,
        f"-I{headers}/torch/include",
        "-isystem",
        f"{headers}/torch/include/torch/csrc/api/include",
        "-I",
        f"{headers}/torch/include",
        f"{site}/torch/lib/libtorch.so",
        "-I/usr/include/python3.11",
        f"-ffile-prefix-map={headers}=.",
    ]


def test_a_script_of_ours_behind_the_launcher_is_not_put_behind_it_twice(made: launchers.Launchers) -> None:
    launchers.write(made)
    once = subprocess.check_output([made.bin / "g++", "-c"], text=True)
    assert subprocess.check_output([made.launch, made.bin / "g++", "-c"], text=True) == once


def test_cmake_sees_the_compilers_as_they_are(made: launchers.Launchers, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cmake").write_text('#!/bin/sh\nprintf "%s\\n" "$PATH" "${CC-none}" "$CXX" "$@"\n')
    (tools / "cmake").chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    wanted = structs.replace(made, path=path, chosen={"CXX": "/opt/clang++ -m64"})
    launchers.write(wanted)
    seen = {"PATH": f"{wanted.bin}{os.pathsep}{path}", "CC": "ours", "CXX": "ours"}
    said = subprocess.check_output([wanted.bin / "cmake", "-B", "a b"], env=seen, text=True)
    assert said.splitlines() == [path, "none", "/opt/clang++ -m64", "-B", "a b"]


def test_a_compiler_of_many_names_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path))  # where this compiler takes notes
    real, asked = tmp_path / "x86_64-linux-gnu-g++-12", tmp_path / "asked"
    real.write_text(f"#!/bin/sh\necho $0 >> {asked}\n")
    real.chmod(0o755)
    names = [tmp_path / name for name in ("c++", "g++", "g++-12")]
    for link in names:
        link.symlink_to(real)
    assert len({launchers.digest_of(path) for path in (*names, real)}) == 1
    assert len(asked.read_text().splitlines()) == len(launchers._PARTS)


def test_a_compiler_behind_a_script_is_known_by_itself(tmp_path: Path) -> None:
    """As an SDK has it that wraps a program of the machine: the script stays as it is when that changes."""
    clang, script = tmp_path / "lib" / "clang", tmp_path / "bin" / "clang++"
    for path in (clang, script):
        path.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$1" = -print-prog-name=clang ] && echo {clang} || echo "${{1#*=}}"\n')
    script.chmod(0o755)
    found = []
    for version in ("19.1.7", "19.1.8"):
        clang.write_text(version)
        launchers.digest_of.cache_clear()
        launchers._sha256.cache_clear()
        found.append(launchers.digest_of(script))
    assert found[0] != found[1]


@pytest.mark.parametrize("word", ["k.hip", "k.cpp"])
def test_device_code_is_compiled_here_by_names_that_a_server_can_open(tmp_path: Path, word: str) -> None:
    """sccache's server has another working folder, and machines of sccache-dist no device libraries."""
    (tmp_path / word).touch()
    cache = tmp_path / "sccache"
    cache.write_text("#!/bin/sh\nenv\n")
    cache.chmod(0o755)
    plan = launchers.Launchers(
        folder=tmp_path / "launchers",
        program="sccache",
        cache=cache,
        path=os.environ["PATH"],
        compilers={},
        site_packages=tmp_path,
    )
    launchers.write(plan)
    command = [plan.launch, "clang++", "-c", word]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.splitlines()
    is_device = word.endswith(".hip")
    assert (f"SCCACHE_EXTRAFILES={tmp_path / word}".encode() in said) == is_device
    assert (b"CAIRN_COMPILES_HERE=\xff" in said) == is_device


@pytest.mark.parametrize("name", ["{mine}", "thing/../{up}{mine}", "thing/include/gone.h"])
def test_headers_that_a_package_only_claims_to_have_are_left_alone(tmp_path: Path, name: str) -> None:
    """pip keeps a line of a wheel's RECORD that is of no file of it."""
    environment = venv.describe(tmp_path / "environment")
    site, mine = environment.site_packages, tmp_path / "include" / "mine" / "my.h"
    info = site / "thing-1.0.dist-info"
    for path in (mine, site / "thing" / "include" / "a.h", info / "METADATA"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Name: thing\nVersion: 1.0\n")
    claimed = name.format(mine=mine, up="../" * len(site.parts))
    (info / "RECORD").write_text(f"thing/include/a.h,sha256=abc,1\n{claimed},sha256=abc,1\n")
    shared = launchers.shared_headers(environment, tmp_path / "headers")
    assert mine.read_text(), "it was emptied"
    assert [path.name for folder in shared.values() for path in folder.rglob("*.h")] == ["a.h"]
