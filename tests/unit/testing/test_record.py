from pathlib import Path

import msgspec
import pytest

from cairn.errors import UsageError
from cairn.testing import record
from cairn.testing.record import Counts, Skip, TestedWheel, TestRecord

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
)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record.write(tmp_path / "record.json", RECORD)
    assert record.read(tmp_path / "record.json") == RECORD
    assert '"schema": "cairn.record/2"' in (tmp_path / "record.json").read_text(encoding="utf-8")
    assert RECORD.sha256s == {"b" * 64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": Counts(passed=2, failed=1)}, "passed with failures"),
        ({"counts": Counts(passed=2, errors=1)}, "passed with failures"),
        ({"counts": Counts(skipped=9)}, "without a passed test"),
        ({"counts": Counts(passed=1, device_passed=2)}, "more tests passed on a device"),
        ({"counts": Counts(passed=1, skipped=-1)}, "negative"),
        ({"hardware": ()}, "there was none"),
        ({"wheels": ()}, "names no wheel"),
        ({"set_id": "A" * 64}, "not a sha256"),
        ({"junit_sha256": "abc"}, "not a sha256"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    record.write(tmp_path / "r.json", msgspec.structs.replace(RECORD, **changes))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        record.read(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cairn.record/2", "cairn.record/1"),
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


def test_counts_add_up() -> None:
    counts = Counts(passed=4, failed=3, errors=2, skipped=1)
    assert (counts.executed, counts.total) == (9, 10)
