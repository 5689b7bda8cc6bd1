import json
from pathlib import Path

import msgspec
import pytest

from cairn.errors import UsageError
from cairn.testing import record
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.record import Counts, Deselected, Skip, TestedWheel, TestPolicy, TestRecord

RECORD = TestRecord(
    set_id="a" * 64,
    wheels=(TestedWheel(file_name="torch-2.9.0-py3-none-any.whl", sha256="b" * 64),),
    kind="smoke",
    family="gfx94X-dcgpu",
    targets=("gfx942",),
    hardware=("gfx942",),
    counts=Counts(passed=3, skipped=1, device_passed=2),
    junit_sha256="c" * 64,
    started="2026-01-02T03:04:05Z",
    duration_seconds=1.5,
    verdict="passed",
    reason="3 tests passed",
    skips=(Skip(test="test_a::test_b", reason="no GPU"),),
    gpus=(Gpu(target="gfx942", name="AMD Instinct MI300X", node=1, seen_by=("kernel", "torch")),),
    covered={"gfx942": 2},
)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record.write(tmp_path / "record.json", RECORD)
    assert record.read(tmp_path / "record.json") == RECORD
    assert '"schema": "cairn.record/3"' in (tmp_path / "record.json").read_text(encoding="utf-8")
    assert RECORD.sha256s == {"b" * 64}
    assert (RECORD.ended - RECORD.began).total_seconds() == 1.5
    counts = Counts(passed=4, failed=3, errors=2, skipped=1)
    assert (counts.executed, counts.total) == (9, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": ()}, "not that of its GPUs"),
        ({"hardware": ("gfx942", "gfx942")}, "not that of its GPUs"),
        ({"covered": {}}, "covers what it is not for"),
        ({"covered": {"gfx942": 1, "gfx950": 0}}, "covers what it is not for"),
        ({"covered": {"gfx942": 3}}, "more tests passed on a target"),
        ({"covered": {"gfx942": -1}}, "more tests passed on a target"),
        (
            {"targets": ("gfx942", "gfx950"), "covered": {"gfx942": 1, "gfx950": 1}},
            "covers a target without a GPU of it",
        ),
        ({"counts": Counts(passed=2, failed=1)}, "passed with failures"),
        ({"counts": Counts(passed=2, errors=1)}, "passed with failures"),
        ({"counts": Counts(skipped=9)}, "without a passed test"),
        ({"counts": Counts(passed=1, device_passed=2)}, "more tests passed on a device"),
        ({"counts": Counts(passed=1, skipped=-1)}, "negative"),
        ({"hardware": ()}, "there was none"),
        ({"translated": "torchdevice 0.1.0"}, "translated, and passed"),
        ({"translated": "torchdevice 0.1.0", "verdict": "untested"}, "translated, and tests computed"),
        (
            {"deselected": (Deselected(by="a", origin="elsewhere", tests=1),)},
            "tests were deselected for no known reason",
        ),
        ({"deselected": (Deselected(by="a", origin="tests", tests=-1),)}, "negative"),
        ({"wheels": ()}, "names no wheel"),
        ({"wheels": RECORD.wheels * 2}, "names a file twice"),
        ({"hardware": ("gfx942", "RX 7900")}, "called what no GPU is"),
        ({"duration_seconds": -0.5}, "less than no time"),
        ({"started": "today"}, "does not say when"),
        ({"started": "2026-01-02T03:04:05"}, "has no zone"),
        ({"set_id": "A" * 64}, "not a sha256"),
        ({"junit_sha256": "abc"}, "not a sha256"),
        ({"policy": TestPolicy(cairn="1.0", skips_sha256="abc")}, "not a sha256"),
        ({"policy": TestPolicy(cairn="1.0", lists={"A": "abc"})}, "not a sha256"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    record.write(tmp_path / "r.json", msgspec.structs.replace(RECORD, **changes))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        record.read(tmp_path / "r.json")


def test_a_record_of_the_version_before_can_be_read_and_names_no_gpu(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    record.write(path, RECORD)
    plain = json.loads(path.read_text(encoding="utf-8"))
    old = {name: value for name, value in plain.items() if name not in ("gpus", "covered")}
    path.write_text(json.dumps({**old, "schema": "cairn.record/2"}), encoding="utf-8")
    found = record.read(path)
    assert found == msgspec.structs.replace(RECORD, gpus=(), covered={})
    # It is not a way around what a newer one must say.
    for more in ({"gpus": []}, {"covered": {"gfx942": 2}}):
        path.write_text(json.dumps({**old, **more, "schema": "cairn.record/2"}), encoding="utf-8")
        with pytest.raises(UsageError, match=r"cairn\.record/2"):
            record.read(path)
    path.write_text(json.dumps({**old, "schema": "cairn.record/3"}), encoding="utf-8")
    with pytest.raises(UsageError, match="not that of its GPUs"):
        record.read(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cairn.record/3", "cairn.record/1"),
        ('"verdict": "passed"', '"verdict": "green"'),
        ('"duration_seconds": 1.5', '"duration_seconds": "1.5"'),
        ('"kind": "smoke",', ""),
        ('"kind": "smoke"', '"kind": "smoke", "more": 1'),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "r.json"
    record.write(path, RECORD)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError):
        record.read(path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"torch-2.9.0-py3-none-any.whl": "b" * 64}, None),
        ({"torch-2.9.0-py3-none-any.whl": "b" * 64, "numpy-2.0-py3-none-any.whl": "c" * 64}, None),
        ({"torch-2.9.0-py3-none-any.whl": "c" * 64}, "of other bytes: torch-2.9.0-py3-none-any.whl"),
        (
            {"torch-2.9.1-py3-none-any.whl": "b" * 64},
            "what the set does not have: torch-2.9.0-py3-none-any.whl",
        ),
    ],
)
def test_a_record_is_of_the_files_that_it_names(files: dict[str, str], said: str | None) -> None:
    found = record.disagreement(RECORD, files, [name for name in files if name.startswith("torch")])
    assert (found is None) is (said is None)
    assert (said or "") in (found or "")


def test_a_record_covers_all_that_is_the_sets_own() -> None:
    files = {"torch-2.9.0-py3-none-any.whl": "b" * 64, "triton-3.5-py3-none-any.whl": "c" * 64}
    assert record.disagreement(RECORD, files, list(files)) == "it does not cover triton-3.5-py3-none-any.whl"
