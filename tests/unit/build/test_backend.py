"""What is known of a build's requirements before it runs, and of CMake's settings while it does."""

from pathlib import Path

import msgspec
import pytest

from cairn.build import backend, plan
from cairn.build.backend import CMakeWatch, means_the_same, read_cmake_cache
from cairn.errors import BuildError, ProblemsError
from helpers.build import MakeRequest, with_stack

PURE = "def build_wheel(folder, settings=None, metadata=None): raise SystemExit('it was built')"


def test_requirements_that_cannot_be_met_are_told_for_all_projects_before_one_is_built(
    request_for: MakeRequest,
) -> None:
    request = request_for(good=PURE, bad=PURE, worse=PURE)
    wanted = {"good": (), "bad": ("wheel<0.30", "wheel>0.40"), "worse": ("wheel>0.45", "wheel<0.45")}
    projects = tuple(
        msgspec.structs.replace(p, build_requires=wanted[p.name]) for p in request.stack.projects
    )
    request = with_stack(request, projects=projects)
    with pytest.raises(ProblemsError) as caught:
        backend.require_resolvable([plan.make(request)])
    assert [str(problem).split(" cannot")[0] for problem in caught.value.problems] == [
        "the build requirements of bad",
        "the build requirements of worse",
    ]
    assert all(isinstance(problem, BuildError) for problem in caught.value.problems)


CACHE = """# This is the CMakeCache file.
//Use ROCm = AMD
USE_ROCM:BOOL=ON
USE_MPI:BOOL=1
BLAS:STRING=OpenBLAS
MKL:PATH=MKL-NOTFOUND
"odd name":STRING=a=b
CMAKE_HOME_DIRECTORY:INTERNAL={home}
"""


def watch(tmp_path: Path, **wanted: str) -> CMakeWatch:
    return CMakeWatch(
        project="torch",
        settings=wanted,
        homes=(tmp_path / "src",),
        folders=(tmp_path / "src" / "build",),
        log=tmp_path / "log",
    )


def configure(tmp_path: Path, place: str = "build", home: str = "src") -> Path:
    path = tmp_path / "src" / place / "CMakeCache.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CACHE.format(home=tmp_path / home))
    return path


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("ON", "1", True),
        ("true", "Yes", True),
        ("OFF", "", True),
        ("OFF", "x-NOTFOUND", True),
        ("ON", "OFF", False),
        ("OpenBLAS", "openblas", False),
    ],
)
def test_values_are_compared_as_cmake_reads_them(one: str, other: str, equal: bool) -> None:  # noqa: FBT001
    assert means_the_same(one, other) is equal


def test_what_is_as_asked_passes_and_what_is_not_is_named(tmp_path: Path) -> None:
    good = watch(tmp_path, USE_ROCM="ON", BLAS="OpenBLAS", MKL="OFF")
    good.look(now=True)  # nothing is there yet
    found = read_cmake_cache(configure(tmp_path))
    assert (found["odd name"], "Use ROCm" in found) == ("a=b", False)
    good.look(now=True)
    with pytest.raises(BuildError, match="USE_MPI is 1, and OFF was asked") as caught:
        watch(tmp_path, USE_MPI="OFF", USE_ROCM="ON").look(now=True)
    assert "USE_ROCM" not in str(caught.value)
    path = tmp_path / "src" / "build" / "CMakeCache.txt"
    path.write_text(path.read_text().replace("USE_ROCM:BOOL=ON", "USE_ROCM:BOOL=OFF"))
    with pytest.raises(BuildError, match="USE_ROCM is OFF"):
        good.look(now=True)


def test_caches_of_what_the_project_contains_are_not_its_own(tmp_path: Path) -> None:
    configure(tmp_path, "build/third_party/gloo", home="src/third_party/gloo")
    configure(tmp_path, "build/CMakeFiles/CMakeScratch")
    watch(tmp_path, USE_MPI="OFF").look(now=True)


def test_a_checkout_behind_a_link_is_looked_at(tmp_path: Path) -> None:
    configure(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "src")
    looking = watch(tmp_path, USE_MPI="OFF")
    looking.homes = (tmp_path / "link",)
    looking.folders = (tmp_path / "link" / "build",)
    with pytest.raises(BuildError, match="USE_MPI is 1"):
        looking.look(now=True)


def test_what_is_no_cache_or_not_there_any_more_stops_no_build(tmp_path: Path) -> None:
    (tmp_path / "src" / "build" / "a" / "CMakeCache.txt").mkdir(parents=True)
    (tmp_path / "src" / "build" / "CMakeCache.txt").symlink_to("gone")
    watch(tmp_path, USE_MPI="OFF").look(now=True)


def test_a_name_that_cmake_does_not_have_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path)
    looking = watch(tmp_path, USE_GONE="ON")
    looking.look(now=True)
    configure(tmp_path, "build/lib")
    looking.look(now=True)
    assert capsys.readouterr().err.count("its CMake knows no USE_GONE") == 1
