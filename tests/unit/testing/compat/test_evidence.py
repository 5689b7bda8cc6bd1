"""A report becomes a record that says no more than was seen."""

from pathlib import Path

import msgspec
import pytest

from cairn import files
from cairn.testing import record
from cairn.testing.compat import evidence, report
from cairn.testing.compat.report import CompatReport, ReportRow
from cairn.testing.gpus.attest import Attestation
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.record import Counts, TestedWheel, TestRecord
from helpers import compat

GPU = "gfx942"
ON_GPU = compat.row("torch.half", "supported", device=GPU)
ON_CPU = compat.row("torch.half", "not measurable", reason="no GPU", on_cpu="supported")
ON_HOST = compat.row("gloo", "supported")
BROKEN = compat.row("torch.bool", "unsupported", reason="crash", device=GPU)
SMOKE = TestRecord(
    set_id="a" * 64,
    wheels=(TestedWheel(file_name="torch-2.9.1-py3-none-any.whl", sha256="b" * 64),),
    kind="smoke",
    family="gfx94X-dcgpu",
    targets=(GPU,),
    hardware=(GPU,),
    counts=Counts(passed=3, device_passed=2),
    junit_sha256="c" * 64,
    started="2026-01-02T03:04:05Z",
    duration_seconds=1.5,
    verdict="passed",
    reason="3 tests passed",
)
SMOKE_ON_CPU = msgspec.structs.replace(SMOKE, family="cpu", targets=("cpu",), hardware=())


def made(
    folder: Path,
    *rows: ReportRow,
    gpus: tuple[str, ...] = (GPU,),
    smoke: TestRecord = SMOKE,
    baseline: CompatReport | None = None,
    disagreements: tuple[str, ...] = (),
) -> TestRecord:
    """The record of a report of these rows, as it is read from its file."""
    tested = msgspec.structs.replace(compat.ROCM, gpus=gpus)
    found: CompatReport = compat.report(*rows, tested=tested)
    evidence.write(folder, found, baseline=baseline)
    attested = Attestation(gpus=tuple(Gpu(target=name) for name in gpus), disagreements=disagreements)
    evidence.write_record(folder, found, smoke, attested)
    return record.read(folder / "record.json")


def test_it_is_about_what_the_smoke_test_has_installed(tmp_path: Path) -> None:
    found = made(tmp_path, ON_GPU, ON_HOST)
    assert (found.kind, found.set_id, found.wheels) == ("compat", SMOKE.set_id, SMOKE.wheels)
    assert (found.verdict, found.hardware) == ("passed", (GPU,))
    assert found.counts == Counts(passed=2, device_passed=1)
    assert found.compat_sha256 == files.sha256_of(tmp_path / "compat.json")


def test_a_claimed_feature_that_is_not_there_fails(tmp_path: Path) -> None:
    found = made(tmp_path, ON_GPU, BROKEN)
    assert found.verdict == "failed"
    assert "dtypes::torch.bool: unsupported, though the page claims it: crash" in found.reason


def test_what_was_broken_before_is_known_and_what_is_new_is_not(tmp_path: Path) -> None:
    earlier = compat.report(BROKEN, ON_GPU)
    found = made(tmp_path, ON_GPU, BROKEN, baseline=earlier)
    assert (found.verdict, found.counts) == ("passed", Counts(passed=1, skipped=1, device_passed=1))
    assert [skip.reason for skip in found.skips] == ["unsupported, as in the baseline: crash"]
    also = compat.row("torch.half", "unsupported", reason="crash", device=GPU)
    assert made(tmp_path, also, BROKEN, ON_HOST, baseline=earlier).verdict == "failed"


def test_what_no_page_claims_fails_nothing(tmp_path: Path) -> None:
    unclaimed = [
        compat.row("TF32", "unsupported", claim="unsupported"),
        compat.row("flash", "supported", claim="unsupported"),
        compat.row("rocAL", "unsupported", claim=None),
        compat.row("torch.uint16", "partial", claim="supported"),
    ]
    assert made(tmp_path, ON_GPU, *unclaimed).verdict == "passed"


def test_a_set_for_a_gpu_is_not_passed_without_one_and_one_for_the_cpu_is(tmp_path: Path) -> None:
    found = made(tmp_path, ON_CPU, ON_HOST, gpus=())
    assert (found.verdict, found.counts) == ("untested", Counts(passed=1, skipped=1))
    assert [skip.reason for skip in found.skips] == ["no GPU"]
    assert made(tmp_path, ON_CPU, ON_HOST, gpus=(), smoke=SMOKE_ON_CPU).verdict == "passed"
    assert made(tmp_path, ON_CPU, gpus=(), smoke=SMOKE_ON_CPU).verdict == "failed", "nothing was measured"


@pytest.mark.parametrize("name", ["gfx1100", "NVIDIA H200"])
def test_the_wrong_hardware_proves_nothing_and_is_named(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, compat.row("torch.half", "supported", device=name), gpus=(name,))
    assert (found.verdict, found.hardware) == ("invalid", (name,))
    assert name in found.reason


def test_a_torch_that_is_contradicted_proves_nothing(tmp_path: Path) -> None:
    found = made(tmp_path, ON_GPU, ON_HOST, disagreements=("torch sees two GPUs, and the kernel one",))
    assert (found.verdict, found.gpus) == ("invalid", (Gpu(target=GPU),))
    assert "torch sees two GPUs" in found.reason
    # The report's own word for a GPU that nothing else sees.
    found = made(tmp_path, ON_GPU, ON_HOST, gpus=())
    assert (found.verdict, found.hardware) == ("invalid", ())


def test_an_error_with_colours_of_a_terminal_leaves_results_that_can_be_read(tmp_path: Path) -> None:
    broken = compat.row("torch.bool", "unsupported", reason="\x1b[31mno\x00 kernel", device=GPU)
    found = made(tmp_path, broken)
    assert found.verdict == "failed"
    assert "no\\x00 kernel" in found.reason


def test_a_translated_report_counts_for_no_gpu(tmp_path: Path) -> None:
    tested = msgspec.structs.replace(compat.ROCM, gpus=("emulated",))
    row = compat.row("torch.half", "supported", device="emulated")
    found = msgspec.structs.replace(compat.report(row, tested=tested), translated="torchdevice 0.1.0")
    evidence.write(tmp_path, found)
    evidence.write_record(tmp_path, found, SMOKE, Attestation())
    made = record.read(tmp_path / record.FILE)
    assert (made.verdict, made.translated, made.counts.device_passed) == ("untested", "torchdevice 0.1.0", 0)
    assert "translated by torchdevice 0.1.0: nothing here was measured on a GPU" in report.summary(found)
