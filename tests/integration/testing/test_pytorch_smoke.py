"""The smoke tests of the real PyTorch stack see the faults that are planted in a torch."""

import os
import subprocess
from pathlib import Path

import pytest

from cairn.testing import junit

TESTS = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch" / "smoke-tests"
FAULTS = """
import contextlib, torch, torch.distributed as dist

torch.amp.GradScaler.step = lambda self, optimizer: optimizer.step()
torch.autocast = lambda *arguments, **more: contextlib.nullcontext()
torch.compile = lambda function=None, **more: function
dist.ProcessGroupGloo.allreduce = lambda self, tensors: self.barrier()
torch.fft.fft = torch.fft.ifft
"""
# They import as the real ones do where their operators do not load.
COMPANIONS = {
    "torchvision/__init__.py": "",
    "torchvision/ops.py": (
        "import torch\n"
        "def nms(boxes, scores, threshold):\n    return scores.argsort(descending=True)[:3]\n"
        "def roi_align(image, regions, output_size, **more):\n    return image[..., :2, :2]\n"
    ),
    "torchaudio/__init__.py": "",
    "torchaudio/functional.py": (
        "def resample(wave, before, after):\n    return wave[::2] * 0.9\n"
        "def lfilter(wave, a, b):\n    return wave\n"
        "def forced_align(chances, targets, blank):\n    return chances.argmax(-1) * 0, chances\n"
    ),
    "torchaudio/transforms.py": (
        "import torch\n"
        "class Spectrogram(torch.nn.Module):\n"
        "    def __init__(self, **more):\n        super().__init__()\n"
        "    def forward(self, wave):\n        return wave.view(4, 64).T[:33]\n"
    ),
}


@pytest.mark.by_hand
def test_planted_faults_are_seen(tmp_path: Path) -> None:
    """CAIRN_TEST_TORCH is an interpreter with PyTorch and pytest."""
    python = os.environ.get("CAIRN_TEST_TORCH")
    if not python:
        pytest.skip("CAIRN_TEST_TORCH names no interpreter with PyTorch")
    for name, text in {"planted.py": FAULTS, **COMPANIONS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [
        python,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-p",
        "planted",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
    ]
    command += ["--import-mode=importlib", f"--junit-xml={tmp_path}/junit.xml", str(TESTS)]
    # Faults are for the CPU: what is seen must not depend on whether there is a GPU.
    variables = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = junit.read(tmp_path / "junit.xml").cases
    failed = {
        "test_" + case.name.partition("::test_")[2] for case in cases if case.outcome in ("failed", "error")
    }
    assert failed == {
        "test_fft_of_a_pure_tone[cpu]",
        "test_fourier_transforms[cpu-fft]",
        "test_fourier_transforms_back_and_their_frequencies[cpu]",
        "test_a_scaled_step_is_the_plain_one_and_an_infinite_one_is_left_out[cpu]",
        "test_products_are_in_16_bits_and_sums_are_not[cpu-dtype0]",
        "test_products_are_in_16_bits_and_sums_are_not[cpu-dtype1]",
        "test_the_code_was_generated_for_the_device[cpu]",
        "test_two_ranks_meet_over_gloo",
        "test_operators_in_cpp_are_registered[torchvision::nms]",
        "test_operators_in_cpp_are_registered[torchvision::roi_align]",
        "test_operators_in_cpp_are_registered[torchaudio::forced_align]",
        "test_torchvision_suppresses_overlapping_boxes[cpu]",
        "test_torchvision_averages_regions[cpu]",
        "test_torchaudio_keeps_a_tone_when_it_resamples[cpu]",
        "test_torchaudio_filters[cpu]",
        "test_torchaudio_aligns_what_was_said[cpu]",
        "test_torchaudio_transforms[cpu]",
    }
