"""skip-tests are made of the names of upstream's lists, and leave out no more than those mean."""

import shutil
from datetime import date
from pathlib import Path

import import_skips
import pytest
from import_skips import Lists, Name

from cairn.errors import CairnError
from cairn.testing.skips import select, skip_files
from cairn.testing.skips.conditions import RunFacts
from cairn.testing.skips.sources import Sources

PAGE = import_skips.ROOT / "docs/reference/skip-tests.md"
EXPIRES = date(2027, 6, 30)
TESTS = """
class TestCuda(TestCase):
    def test_print(self): pass
    def test_print_all(self): pass

class TestGeneric(TestCase):
    def test_add(self, device): pass
    @dtypes(torch.half, torch.float)
    def test_mul(self, device, dtype): pass

instantiate_device_type_tests(TestGeneric, globals())
"""


def test_every_name_is_left_out_or_explained_and_the_page_counts_them() -> None:
    lists, listed = import_skips.read(), skip_files.read([import_skips.SKIP_TESTS])
    assert lists.problems == []
    for lines in (import_skips.table, import_skips.table_of_configurations):
        assert "\n".join(lines(lists, listed)) in PAGE.read_text(encoding="utf-8")
    absent = {row.line for row in import_skips.rows(lists, listed) if row.names["no such test"]}
    assert absent == {import_skips.READ}  # whose sources were read
    assert len(lists.not_taken) == 61
    assert {reason.partition(",")[0] for reason in lists.not_taken.values()} == {
        "not taken: upstream's machines lack scipy"
    }


def test_the_names_that_lack_a_comma_are_both_left_out() -> None:
    listed = skip_files.read([import_skips.SKIP_TESTS])
    facts = RunFacts(targets=("gfx1100",), platform="windows", torch="2.7.0")
    chosen = select.select(listed, facts, today=EXPIRES)
    ids = {test for item in chosen.entries for test in item.entry.tests}
    names = ("test_memory_format_operators_cuda", "test_grad_scale_will_not_overflow_cuda")
    assert ids >= {f"test_torch.py::TestTorchDeviceTypeCUDA::{name}" for name in names}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "test").mkdir()
    (tmp_path / "version.txt").write_text("2.7.0a0\n", encoding="utf-8")
    (tmp_path / "test/test_cuda.py").write_text(TESTS, encoding="utf-8")
    return Sources(tmp_path)


def lists_of(*names: Name, **more: object) -> Lists:
    return Lists(names=names, groups={name: {"reason": "r", **more} for name in names})


def write(tmp_path: Path, sources: Sources, lists: Lists) -> list[tuple[str, list[str], str, bool]]:
    folder = tmp_path / "skip-tests"
    folder.mkdir()
    import_skips.write(folder, lists, sources, EXPIRES)
    return [
        (each.file.name, [*each.entry.names], each.entry.when.torch, each.entry.unresolved)
        for each in skip_files.read([folder])
    ]


def test_a_name_is_exact_where_the_sources_are_and_a_pattern_of_its_variants_elsewhere(
    tmp_path: Path, sources: Sources
) -> None:
    names = [Name("generic", "common", "cuda", f"test_{word}") for word in ("print", "add", "mul", "gone")]
    lists = lists_of(*names, Name("pytorch_2.12", "common", "cuda", "test_print"))
    of_gpu = "test_cuda.py::TestGenericCUDA::test"
    assert write(tmp_path, sources, lists) == [
        (
            "generic.toml",
            [f"test_cuda.py::*::test_{name}" for name in ("add_cuda", "gone", "mul_cuda_*", "print")],
            ">=2.8",
            True,
        ),
        (
            "torch-2.7.toml",
            [
                "test_cuda.py::TestCuda::test_print",
                f"{of_gpu}_add_cuda", f"{of_gpu}_mul_cuda_float16", f"{of_gpu}_mul_cuda_float32",
            ],
            "==2.7.*",
            False,
        ),
    ]  # fmt: skip


def test_a_file_that_the_sources_lack_is_for_later_versions(tmp_path: Path, sources: Sources) -> None:
    names = [Name("run_x", "common", "modules", name) for name in ("test_cuda", "inductor/test_new")]
    assert write(tmp_path, sources, lists_of(*names)) == [
        ("generic.toml", ["test_cuda.py"], "", False),
        ("generic.toml", ["inductor/test_new.py"], ">=2.8", False),
    ]


def test_two_names_of_one_test_whose_runs_overlap_are_refused(tmp_path: Path, sources: Sources) -> None:
    names = [
        Name("generic", "windows", "cuda", "test_print"),
        Name("pytorch_2.13", "common", "cuda", "test_print"),
    ]
    with pytest.raises(CairnError, match="has an entry already: give its group `torch`"):
        write(tmp_path, sources, lists_of(*names))


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("x", "of torch x, not of 2.7"),
        ("2.70.0", "of torch 2.70.0"),
        ("2.7.1", "lacks test_nn.py"),
        (None, "cannot read"),
    ],
)
def test_sources_that_are_not_those_leave_the_files_as_they_are(
    tmp_path: Path, version: str | None, problem: str
) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "skip-tests"
    (tree / "test").mkdir(parents=True)
    (tree / "test/test_cuda.py").write_text(TESTS, encoding="utf-8")
    if version is not None:
        (tree / "version.txt").write_text(f"{version}\n", encoding="utf-8")
    shutil.copytree(import_skips.SKIP_TESTS, folder)
    with pytest.raises(SystemExit, match=problem):
        import_skips.main(["--sources-dir", str(tree), "--output-dir", str(folder)])
    shipped = {path.name: path.read_bytes() for path in import_skips.SKIP_TESTS.iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == shipped
