"""What a release loads: one more wheel of 100,000 is for the most part the start of the program."""

import subprocess
import sys

import pytest

HEAVY = {
    "cairn.formats.elf",  # code objects: of device wheels and wheel variants
    "cairn.formats.offload",
    "cairn.wheels.split",
    "concurrent.futures.thread",  # where there is one thing to do
    "cryptography.hazmat.primitives.serialization",  # which loads the formats of SSH
    "ctypes",  # to start foreign programs
    "jinja2",
    "requests",
    "rich",
    "tuf",
}


@pytest.mark.parametrize(
    "modules",
    [
        "cairn.cli.index.publish, cairn.release.publish.files",
        "cairn.release.index.commit, cairn.release.trust.online, cairn.release.provenance.attest",
    ],
)
def test_publishing_and_signing_load_nothing_heavy(modules: str) -> None:
    program = f"import sys, {modules}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(run.stdout.split())


def test_a_commit_loads_no_parser_of_requirements() -> None:
    program = "import sys, cairn.release.index.commit; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"packaging.requirements", "packaging.markers", "cryptography"}.isdisjoint(run.stdout.split())


def test_verifying_loads_no_client_of_a_cloud_and_leaves_it_to_others() -> None:
    program = "import sys, cairn.release.trust.client as client; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"boto3", "azure", "google.cloud", "hvac"}.isdisjoint(run.stdout.split())
    assert "tuf.api.metadata" in run.stdout.split()
