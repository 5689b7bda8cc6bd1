import time
import tracemalloc
from pathlib import Path

import pytest

from cairn.build import build_log

CMAKE = """-- Found ZLIB
CMake Error at cmake/Dependencies.cmake:1728 (message):
  Please install the ROCm SDK, or set USE_ROCM=OFF
Call Stack (most recent call first):
  CMakeLists.txt:853 (include)

-- Configuring incomplete, errors occurred!
"""
NINJA = """[1/3] Building CXX object a.o
FAILED: b.dir/B.cpp.o
/usr/bin/c++ -Werror=return-type -Wno-error=maybe -DX='": error"' -c B.cpp
In file included from B.cpp:1:
/src/B.h:3:10: fatal error: nowhere.h: No such file or directory
    3 | #include <nowhere.h>
compilation terminated.
[2/3] Building CXX object c.o
FAILED: c.dir/C.cpp.o
C.cpp:7:5: error: 'x' was not declared in this scope
ninja: build stopped: subcommand failed.
"""
LINK = """/usr/bin/ld: main.o: in function `main':
main.cpp:(.text+0x5): undefined reference to `f()'
/usr/bin/ld: cannot find -lnowhere: No such file or directory
ld.lld: error: undefined symbol: g()
collect2: error: ld returned 1 exit status
"""
OWN = """running bdist_wheel
Traceback (most recent call last):
  File "setup.py", line 3, in <module>
    import yaml

ModuleNotFoundError: No module named 'yaml'
Traceback (most recent call last):
  File "x.py", line 1, in run
    check_call(x)
subprocess.CalledProcessError: Command '['ninja']' returned non-zero exit status 1.
"""


def found(tmp_path: Path, text: str, *, after: int = 0) -> list[tuple[int, str]]:
    log = tmp_path / "log"
    log.write_text(text + "".join(f"noise {n}\n" for n in range(after)), newline="\n")
    return [*build_log.find(log)]


def test_the_message_of_cmake_stands_behind_its_place(tmp_path: Path) -> None:
    said = "Please install the ROCm SDK, or set USE_ROCM=OFF"
    place = "CMake Error at cmake/Dependencies.cmake:1728 (message):"
    assert found(tmp_path, CMAKE, after=300) == [(2, f"{place} {said}")]


def test_what_a_message_of_cmake_announces_is_part_of_it(tmp_path: Path) -> None:
    log = """CMake Error at third_party/protobuf/cmake/libprotobuf.cmake:115 (add_library):
  Cannot find source file:

    /src/third_party/protobuf/src/google/protobuf/any.pb.cc

  Tried extensions .c .C .c++ .cc .cpp .cxx .cu .mpp .m .M .mm .ixx .cppm
Call Stack (most recent call first):
"""
    (_, text), *others = found(tmp_path, log, after=300)
    announced = "/src/third_party/protobuf/src/google/protobuf/any.pb.cc"
    assert text.endswith(f"(add_library): Cannot find source file: {announced}")
    assert not others


def test_a_paragraph_of_cmakes_is_one_message(tmp_path: Path) -> None:
    log = """CMake Error at qnnpack/CMakeLists.txt:329 (add_subdirectory):
  add_subdirectory given source
  "/src/qnnpack/deps/clog"
  which is not an existing directory.


CMake Error at kineto/CMakeLists.txt:3 (message):
  short

  This is left out.
CMake Error: The following variables are used in this project, but they are set to NOTFOUND.
Please set them or make sure they are set and tested correctly in the CMake files:
ROCTRACER_LIBRARY
    linked by target "kineto" in directory /src/kineto

-- Configuring incomplete, errors occurred!
"""
    first, second, third = (text for _, text in found(tmp_path, log))
    assert first.endswith(
        ': add_subdirectory given source "/src/qnnpack/deps/clog" which is not an existing directory.'
    )
    assert second.endswith("(message): short")
    assert third.endswith('CMake files: ROCTRACER_LIBRARY linked by target "kineto" in directory /src/kineto')


def test_what_cmake_tried_and_went_on_after_is_no_cause(tmp_path: Path) -> None:
    log = """hipblaslt is NOT using scale pointer vec ext: Change Dir: '/src/build/CMakeFiles/CMakeTmp'

Run Build Command(s): /env/bin/ninja -v cmTC_4258a
[1/2] /usr/bin/c++ -o CMakeFiles/cmTC_4258a.dir/test.cc.o -c /src/build/test.cc
FAILED: [code=1] CMakeFiles/cmTC_4258a.dir/test.cc.o
/include/hipblaslt.h:78:5: error: expected primary-expression before 'static_assert'
ninja: build stopped: subcommand failed.


CMake Error: CMake can not determine linker language for target: dnnl_cpu
"""
    target = "CMake Error: CMake can not determine linker language for target: dnnl_cpu"
    assert found(tmp_path, log) == [(10, target)]
    killed = log.replace("expected primary-expression", "Cannot allocate memory")
    assert [number for number, _ in found(tmp_path, killed)] == [6, 10]
    assert len(found(tmp_path, log + NINJA)) == 5


def test_what_ninja_says_failed_and_what_compilers_say_of_it(tmp_path: Path) -> None:
    assert found(tmp_path, NINJA, after=300) == [
        (2, "FAILED: b.dir/B.cpp.o"),
        (5, "/src/B.h:3:10: fatal error: nowhere.h: No such file or directory"),
        (9, "FAILED: c.dir/C.cpp.o"),
        (10, "C.cpp:7:5: error: 'x' was not declared in this scope"),
    ]


def test_what_linkers_miss(tmp_path: Path) -> None:
    assert [number for number, _ in found(tmp_path, LINK)] == [2, 3, 4, 5]


def test_the_last_line_of_a_traceback_and_not_that_of_who_waited_for_it(tmp_path: Path) -> None:
    assert found(tmp_path, OWN) == [(6, "ModuleNotFoundError: No module named 'yaml'")]
    waited = OWN[OWN.rindex("Traceback") :]
    assert found(tmp_path, waited) == [
        (4, "subprocess.CalledProcessError: Command '['ninja']' returned non-zero exit status 1.")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "c++: fatal error: Killed signal terminated program cc1plus",
        "x.cpp:1:2: error: error writing to /tmp/x.s: No space left on device",
        "cc1plus: out of memory allocating 65536 bytes",
        "OSError: [Errno 28] No space left on device",
        "virtual memory exhausted: Cannot allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "make: *** No rule to make target 'x.h', needed by 'x.o'.  Stop.",
        "x.cpp(3): fatal error C1083: Cannot open include file: 'x.h'",
        "LINK : fatal error LNK1181: cannot open input file 'x.lib'",
        "sh: 1: cmake: not found",
        "bash: line 1: ninja: command not found",
        "/usr/bin/ld: final link failed: bad value",
        "error: no C++ compiler was found",
        "\x1b[1mx.cpp:1:2: \x1b[0m\x1b[31merror: \x1b[0mcoloured",
    ],
)
def test_one_line_that_says_why(line: str, tmp_path: Path) -> None:
    ((number, text),) = found(tmp_path, f"one\ntwo\n{line}\n", after=100)
    assert number == 3
    assert text == line.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[31m", "")


@pytest.mark.parametrize(
    "line",
    [
        "g++ -Werror -Wno-error=restrict -c error.cpp",
        "x.cpp:1:2: warning: this may be an error",
        "-- Performing Test HAVE_ERROR - Failed",
        "x.cpp: In function 'error'",
        "fatal: not a git repository (or any of the parent directories): .git",
        "copying torch/_errors.py -> build/lib",
        "0 errors, 0 warnings",
        "tests/test_x.py::test FAILED",
    ],
)
def test_what_is_no_cause(line: str, tmp_path: Path) -> None:
    assert found(tmp_path, f"{line}\n") == []


def test_what_the_machine_did_is_shown_after_any_number_of_errors(tmp_path: Path) -> None:
    errors = "".join(f"{n}.cpp:1:1: error: number {n}\n" for n in range(50))
    shown = found(tmp_path, f"{errors}c++: fatal error: Killed signal terminated program cc1plus\n")
    assert [number for number, _ in shown] == [1, 2, 3, 4, 5, 51]


def test_the_same_error_is_shown_once(tmp_path: Path) -> None:
    assert found(tmp_path, "x.h:1:1: error: again\n" * 9) == [(1, "x.h:1:1: error: again")]


PIECES = (
    b"a: ",
    b"[ ",
    b"error",
    b"\x1b[",
    b"\xff\0",
    b": error",
    b"error: ",
    b"\r",
    b"CMake Error",
    b"out of ",
)


@pytest.mark.parametrize("piece", PIECES)
def test_a_line_of_any_length_takes_a_time_of_its_own(piece: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(piece * (2_000_000 // len(piece)) + b"\nlast.cpp:1:1: error: here\n")
    begun = time.process_time()
    assert build_log.find(log)[-1] == (2, "last.cpp:1:1: error: here")
    assert time.process_time() - begun < 1


def test_a_log_is_not_held_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"x" * 3_000_000 + b"\n" + b"g++ -c x.cpp -Wno-error\n" * 20_000 + b"x.cpp:1:1: error: here\n"
    )
    tracemalloc.start()
    try:
        (cause,) = build_log.find(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cause[0] == 20_002
    assert peak < 500_000


def test_the_end_of_a_log_has_numbers_where_it_is_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n\ntwo\nthree\n\n")
    assert [*build_log.tail(log, 2)] == [(3, "two"), (4, "three")]
    log.write_text("x" * 100 + "\n" + "y\n" * 200_000)
    assert [*build_log.tail(log, 2)] == [(0, "y"), (0, "y")]
    assert build_log.tail(tmp_path / "none", 2) == build_log.find(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "[317/1588] Building CXX object c10/CMakeFiles/c10.dir/core/Version.cpp.o",
            "[317/1588] Version.cpp",
        ),
        (
            "[317/1588] /usr/bin/c++ -DX=1 -o c10/Version.cpp.o -c /s/c10/Version.cpp",
            "[317/1588] Version.cpp",
        ),
        ("[9/9] Linking CXX shared library lib/libc10.so", "[9/9] libc10.so"),
        ("[9/9] : && /usr/bin/c++ -shared -o lib/libc10.so a.o b.o && :", "[9/9] libc10.so"),
        ("[2/9] Running utility command for x", "[2/9] Running utility command for x"),
        ("[ 12%] Building HIP object a/Kernel.hip.o", "[12%] Kernel.hip"),
        ("x86_64-linux-gnu-gcc -pthread -DNDEBUG -c src/foo.c -o build/foo.o", "foo.c"),
        ("/opt/rocm/bin/hipcc --offload-arch=gfx942 -c src/k.hip -o k.o", "k.hip"),
        ("/usr/bin/ccache /usr/bin/g++-12 -c 'a dir/x y.cpp' -o x.o", "x y.cpp"),
        ("g++ -shared a.o -o libx.so", "libx.so"),
        ("copying torch/x.py -> build/lib", "copying torch/x.py -> build/lib"),
        ("running bdist_wheel", "running bdist_wheel"),
        ("x.cpp:1:2: warning: unused", "before"),
        ("    3 | int x;", "before"),
        ("      |     ^~~", "before"),
        ("In file included from a.h:1,", "before"),
        ("g++ it's", "g++"),
    ],
)
def test_progress_shows_what_advances(line: str, shown: str) -> None:
    assert build_log.progress_line(line, "before") == shown


def test_progress_of_a_line_of_any_length_takes_no_time() -> None:
    begun = time.process_time()
    for piece in ("g++ " + "-I" * 500_000, " " * 1_000_000, "[" * 1_000_000, "a-" * 500_000, "~^ " * 300_000):
        build_log.progress_line(piece, "")
        build_log.progress_line(f"[1/2] {piece}", "")
    assert time.process_time() - begun < 2
