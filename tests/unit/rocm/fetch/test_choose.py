import pytest

from cairn.errors import UsageError
from cairn.rocm.fetch.choose import Artifact, ArtifactFilters, choose, list_artifacts
from cairn.store.memory import MemoryStore

# A run of both pipelines: families in one name, or targets in several.
NAMES = (
    "amd-llvm_lib_generic.tar.zst",
    "amd-llvm_dbg_generic.tar.zst",
    "blas_lib_gfx942.tar.zst",
    "blas_lib_gfx942:xnack+.tar.zst",
    "blas_lib_gfx1100.tar.zst",
    "blas_lib_gfx120X-all.tar.xz",
    "blas_lib_gfx94X-dcgpu-asan.tar.zst",
)


@pytest.fixture(scope="module")
def artifacts() -> tuple[Artifact, ...]:
    others = ("index.html", "therock_manifest.json", "blas_lib.tar.zst", "a_b_c_d.tar.xz")
    others += ("logs/a_b_c.tar.xz", "a_b_c.zip")
    sidecars = [f"{name}.sha256sum" for name in NAMES]
    return list_artifacts(MemoryStore(dict.fromkeys((*NAMES, *others, *sidecars), b"x")))


def chosen(artifacts: tuple[Artifact, ...], **wanted: tuple[str, ...]) -> list[str]:
    return [
        a.name.removeprefix("blas_lib_") for a in choose(artifacts, ArtifactFilters(**wanted), where="there")
    ]


def test_only_archives_of_artifacts_are_listed(artifacts: tuple[Artifact, ...]) -> None:
    assert sorted(a.key for a in artifacts) == sorted(NAMES)


def test_of_two_compressions_the_better_one_is_taken() -> None:
    (found,) = list_artifacts(MemoryStore({"a_lib_generic.tar.xz": b"12", "a_lib_generic.tar.zst": b"1"}))
    assert (found.key, found.size) == ("a_lib_generic.tar.zst", 1)


def test_what_is_for_all_belongs_to_every_wish(artifacts: tuple[Artifact, ...]) -> None:
    llvm = ["amd-llvm_dbg_generic", "amd-llvm_lib_generic"]
    assert len(chosen(artifacts)) == len(NAMES)
    assert chosen(artifacts, groups=("gfx120X-all",)) == [*llvm, "gfx120X-all"]
    assert chosen(artifacts, groups=("gfx110X-all",)) == [*llvm, "gfx1100"]
    assert chosen(artifacts, groups=("gfx94X-dcgpu-asan",)) == [*llvm, "gfx94X-dcgpu-asan"]
    assert chosen(artifacts, targets=("gfx942", "gfx1100")) == [*llvm, "gfx1100", "gfx942", "gfx942:xnack+"]
    assert chosen(artifacts, groups=("gfx120X-all",), targets=("gfx1100",)) == [
        *llvm,
        "gfx1100",
        "gfx120X-all",
    ]


def test_patterns_choose_as_upstreams_do(artifacts: tuple[Artifact, ...]) -> None:
    found = chosen(artifacts, include=("llvm", "blas.*gfx1"), exclude=("_dbg_",))
    assert found == ["amd-llvm_lib_generic", "gfx1100", "gfx120X-all"]


def test_nobody_gets_a_tree_without_what_was_asked_for(artifacts: tuple[Artifact, ...]) -> None:
    with pytest.raises(UsageError, match="nothing for gfx1151"):
        chosen(artifacts, targets=("gfx942", "gfx1151"))
    with pytest.raises(UsageError, match="nothing for gfx115X-all") as caught:
        chosen(artifacts, groups=("gfx115X-all",))
    assert "gfx942" in str(caught.value.tip)
    with pytest.raises(UsageError, match="matches 'miopen'"):
        chosen(artifacts, include=("llvm", "miopen"))
    with pytest.raises(UsageError, match="excluded"):
        chosen(artifacts, exclude=("_",))
    with pytest.raises(UsageError, match="regular expression"):
        chosen(artifacts, include=("(",))
    with pytest.raises(UsageError, match="no artifacts at there"):
        choose((), ArtifactFilters(), where="there")
