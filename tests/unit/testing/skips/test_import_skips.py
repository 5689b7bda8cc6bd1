"""Upstream's lists of substrings become exact ids; the recordings here have their shapes, in our words."""

import json
from datetime import date
from pathlib import Path

import import_skips
import pytest
from import_skips import Imported, Meaning

from cairn.errors import UsageError
from cairn.testing.skips import ids, skip_files
from cairn.testing.skips.conditions import When
from cairn.testing.skips.ids import Collected

COLLECTED = """\
test/test_cuda.py::TestCuda::test_streams
test/test_cuda.py::TestCuda::test_streams_many
test/test_cuda.py::TestCuda::test_plot
test/test_cuda.py::TestStreams::test_other
test/test_torch.py::TestTorchDeviceTypeCUDA::test_print_cuda
test/test_torch.py::TestTorchDeviceTypeCUDA::test_print_cuda_float32
test/test_torch.py::TestTorchDeviceTypeCUDA::test_print_all_cuda
test/test_torch.py::TestTorchDeviceTypeMETA::test_print_meta
test/test_nn.py::TestNN::test_print
test/test_nn.py::TestNN::test_Conv1d
test/test_nn.py::TestNN::test_Conv2d_pad
test/test_nn.py::TestNN::test_pool_max
test/test_nn.py::TestNN::test_pool_min[a-b]
test/test_nn.py::TestNN::test_spool_min

ERROR test/test_fx.py - ImportError: a::b
16 tests collected in 0.1s
"""

GENERIC = """\
# A list as TheRock writes one.
skip_tests = {
    "common": {
        "cuda": [
            # It hangs on a machine without peers.
            # See https://example.org/issues/1.
            "test_streams",
            "test_elsewhere",
        ],
        "torch": {"test_print"},
        "nn": [
            "test_Conv",  # broad
            # ----------
            # "test_out_commented"
            "test_pool",
            "test_plot",
        ],
        "inductor": ["test_print"],
    },
    "gfx94": {
        "nn": ("test_print",),
    },
    "windows": {
        "cuda": [
            "test_plot"
            # the comma above is missing
            "test_other",
        ],
    },
}
"""


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    (tmp_path / "collection.txt").write_text(COLLECTED, encoding="utf-8")
    return ids.read_collection(tmp_path / "collection.txt")


def imported(tmp_path: Path, collected: Collected, **lists: str) -> tuple[Imported, ...]:
    paths = []
    for name, text in lists.items():
        paths.append(tmp_path / name.replace("__", "."))
        paths[-1].write_text(text, encoding="utf-8")
    return import_skips.read(paths, collected, owner="me", expires=date(2027, 6, 30))


def by_place(found: Imported) -> dict[str, Meaning]:
    return {f"{one.name.filed or one.name.class_name} {one.name.text}": one for one in found.meanings}


def test_a_substring_becomes_the_ids_it_meant_and_what_it_hit_is_named(
    tmp_path: Path, collected: Collected
) -> None:
    (found,) = imported(tmp_path, collected, generic__py=GENERIC)
    meanings = [(one.name.filed, one.name.text, one.how) for one in found.meanings]
    assert meanings == [
        ("cuda", "test_streams", "exact"),
        ("cuda", "test_elsewhere", "unknown"),
        ("torch", "test_print", "exact"),
        ("nn", "test_Conv", "broad"),
        ("nn", "test_pool", "family"),
        ("nn", "test_plot", "elsewhere"),
        ("inductor", "test_print", "not collected"),
        ("nn", "test_print", "exact"),
        ("cuda", "test_plot", "taken"),
        ("cuda", "test_other", "exact"),
    ]
    streams, prints = found.meanings[0], found.meanings[2]
    assert streams.tests == ("test_cuda.py::TestCuda::test_streams",)
    assert streams.accidents == ("test_cuda.py::TestCuda::test_streams_many",)
    assert streams.name.reason == ("It hangs on a machine without peers. See https://example.org/issues/1.")
    assert streams.name.issue == "https://example.org/issues/1"
    assert prints.tests == (
        "test_torch.py::TestTorchDeviceTypeCUDA::test_print_cuda",
        "test_torch.py::TestTorchDeviceTypeCUDA::test_print_cuda_float32",
        "test_torch.py::TestTorchDeviceTypeMETA::test_print_meta",
    )
    assert prints.accidents == ("test_torch.py::TestTorchDeviceTypeCUDA::test_print_all_cuda",)
    conv, pool = found.meanings[3], found.meanings[4]
    assert conv.tests == ("test_nn.py::TestNN::test_Conv1d", "test_nn.py::TestNN::test_Conv2d_pad")
    assert conv.name.reason == "broad"
    assert pool.tests == ("test_nn.py::TestNN::test_pool_max", "test_nn.py::TestNN::test_pool_min[a-b]")
    assert found.meanings[1].name.reason == streams.name.reason  # a comment heads the names below it
    assert pool.name.reason == "generic.py of TheRock gives no reason"
    assert found.meanings[7].name.when.target == ("gfx942",)
    assert found.meanings[9].name.when == When(platform=("windows",))
    (remark,) = found.remarks
    assert "no comma between 'test_plot' and 'test_other'" in remark


def test_what_is_written_is_what_a_run_accepts(tmp_path: Path, collected: Collected) -> None:
    lists = imported(tmp_path, collected, generic__py=GENERIC, **{"pytorch_2.13__py": GENERIC})
    assert not any(one.tests for one in lists[1].meanings)  # all are in the first, for any version
    import_skips.write(lists[0], tmp_path / "skip-tests" / "generic.toml")
    entries = skip_files.read([tmp_path / "skip-tests"])
    assert [len(listed.entry.tests) for listed in entries] == [1, 3, 2, 2, 1, 1, 1]
    assert entries[0].entry.owner == "me"
    text = (tmp_path / "skip-tests" / "generic.toml").read_text(encoding="utf-8")
    assert '# "test_elsewhere" (generic.py:8): no test of the collection' in text
    assert '# "test_print" (generic.py:18): its file is not in the collection' in text


def test_a_list_of_one_version_is_for_it_alone(tmp_path: Path, collected: Collected) -> None:
    text = 'skip_tests = {"common": {"cuda": ["test_plot"]}}\n'
    found = imported(tmp_path, collected, **{"pytorch_2.12__py": text, "pytorch_2.13__py": text})
    assert [one.meanings[0].name.when.torch for one in found] == ["==2.12.*", "==2.13.*"]
    assert [len(one.meanings[0].tests) for one in found] == [1, 1]


def test_a_list_is_data_and_never_run(tmp_path: Path, collected: Collected) -> None:
    text = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nskip_tests = {{}}\n"
    (found,) = imported(tmp_path, collected, generic__py=text)
    assert found.meanings == ()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no skip_tests"),
        ("skip_tests", "has no skip_tests"),
        ("skip_tests = load()", "generic.py:1: Call"),
        ('skip_tests = {"common": {"cuda": names}}', "generic.py:1: Name"),
        ('skip_tests = {"common": {"cuda": [f"{x}"]}}', "generic.py:1: JoinedStr"),
        ('skip_tests = {"common": {"cuda": [""]}}', "generic.py:1: Constant"),
        (r'skip_tests = {"common": {"cuda": ["\ud800"]}}', "generic.py:1: Constant"),
        ('skip_tests = {**other}', "generic.py:1: Name"),
        ('skip_tests = {"gfx666": {}}', "section 'gfx666'"),
        ("skip_tests = {", "cannot be read as Python"),
        ("skip_tests = " + "(" * 5000, "cannot be read as Python"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_therock(tmp_path: Path, collected: Collected, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        imported(tmp_path, collected, generic__py=text)
    assert said in str(caught.value)


def test_a_key_given_twice_drops_nothing(tmp_path: Path, collected: Collected) -> None:
    text = 'skip_tests = {"common": {"cuda": ["test_plot"], "cuda": ["test_streams"]}}'
    (found,) = imported(tmp_path, collected, generic__py=text)
    assert [one.name.text for one in found.meanings] == ["test_plot", "test_streams"]
    assert "'cuda' is there twice" in found.remarks[0]


def test_a_list_without_a_version_in_its_name(tmp_path: Path, collected: Collected) -> None:
    with pytest.raises(UsageError, match="which version of torch"):
        imported(tmp_path, collected, skips__py="skip_tests = {}")


def test_disabled_tests_as_torch_reads_them(tmp_path: Path, collected: Collected) -> None:
    issue = "https://example.org/issues/"
    rows = {
        "test_print (__main__.TestTorchDeviceType)": ["7", issue + "7", []],
        "test_streams (test_cuda.TestCu)": ["8", issue + "8", ["rocm"]],
        "test_plot (__main__.TestCuda)": [issue + "9", ["linux", "rocm"]],
        "test_other (__main__.TestStreams)": ["10", issue + "10", ["mac", "asan"]],
        "test_pool_max (__main__.TestNN)": ["11", issue + "11", ["win", "wni"]],
        "test_badly_named": ["12", issue + "12", []],
    }
    (found,) = imported(tmp_path, collected, disabled__json=json.dumps(rows))
    meanings = [(one.name.text, one.how, len(one.tests), one.name.when) for one in found.meanings]
    gpus = ("dcgpu-all", "dgpu-all", "igpu-all")
    assert meanings == [
        ("test_print", "exact", 3, When()),
        ("test_streams", "unknown", 0, When(family=gpus)),
        ("test_plot", "exact", 1, When(platform=("linux",))),
        ("test_plot", "exact", 1, When(platform=("windows",), family=gpus)),
        ("test_pool_max", "exact", 1, When(platform=("windows",))),
    ]
    # torch takes any class that begins so: TestCu disables TestCuda's.
    assert found.meanings[1].accidents == ("test_cuda.py::TestCuda::test_streams",)
    assert found.meanings[0].name.issue == issue + "7"
    assert [remark.partition(":")[0] for remark in found.remarks] == [
        "test_pool_max (__main__.TestNN)",
        "'test_badly_named' is not written as `test_name (__main__.TestClass)`",
    ]
    import_skips.write(found, tmp_path / "disabled.toml")
    assert len(skip_files.read([tmp_path / "disabled.toml"])) == 4


@pytest.mark.parametrize("text", ["[]", '{"test_a (__main__.T)": []}', '{"test_a (__main__.T)": ["7"]}', "{"])
def test_what_is_no_list_of_disabled_tests(tmp_path: Path, collected: Collected, text: str) -> None:
    with pytest.raises(UsageError, match="disabled"):
        imported(tmp_path, collected, disabled__json=text)


def test_a_collection_without_tests(tmp_path: Path) -> None:
    (tmp_path / "collection.txt").write_text("\nno tests ran in 0.01s\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no id of a test"):
        ids.read_collection(tmp_path / "collection.txt")


def test_a_collection_of_a_machine_without_a_gpu_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "cpu.txt").write_text("test_nn.py::TestNNCPU::test_print_cpu\n", encoding="utf-8")
    text = 'skip_tests = {"common": {"nn": ["test_print_cuda", "test_print"]}}'
    (found,) = imported(tmp_path, ids.read_collection(tmp_path / "cpu.txt"), generic__py=text)
    assert [one.how for one in found.meanings] == ["unknown", "exact"]
    assert "1 names are of tests on a GPU; the collection has none" in found.remarks[0]
