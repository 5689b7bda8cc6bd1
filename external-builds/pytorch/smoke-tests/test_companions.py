"""torchvision and torchaudio, where they are installed, fit this torch and compute; answers are by hand."""

import importlib
import importlib.util
import math
from types import ModuleType

import pytest
import torch

# Where the library of its operators does not load, torchvision imports all the same and says nothing.
OPERATORS = ["torchvision::nms", "torchvision::roi_align", "torchaudio::forced_align"]
BOXES = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 9, 12], [21, 19, 29, 33]]
SCORES = [0.9, 0.8, 0.7, 0.95, 0.1]
# The surest is box 3, of 9 x 12. It shares 9 x 10 with box 0, 90 of the 118 that both cover, and 8 x 10 with
# box 1, 80 of 128: both go. Box 4 shares 8 x 10 with box 2, 80 of 132, and goes too.
KEPT = [3, 2]


def companion(name: str) -> ModuleType:
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return importlib.import_module(name)


def has_kernel(operator: str, kind: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, kind))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_in_cpp_are_registered(operator: str) -> None:
    package = operator.partition(":")[0]
    companion(package)
    assert has_kernel(operator, "CPU"), f"{operator} has no kernel for the CPU"
    if torch.version.hip is not None and package == "torchvision":
        assert has_kernel(operator, "CUDA"), f"{operator} has no kernel for GPUs"


def test_torchvision_suppresses_overlapping_boxes(device: torch.device) -> None:
    ops = companion("torchvision.ops")
    boxes = torch.tensor(BOXES, device=device, dtype=torch.float32)
    scores = torch.tensor(SCORES, device=device)
    assert ops.nms(boxes, scores, 0.5).tolist() == KEPT
    # The operator itself, past what Python does before it is called.
    assert torch.ops.torchvision.nms(boxes, scores, 0.5).tolist() == KEPT


def test_torchvision_averages_regions(device: torch.device) -> None:
    ops = companion("torchvision.ops")
    # Linear in both directions, so that a mean over a region is the value at its middle.
    image = torch.arange(8.0, device=device)[None] + 10 * torch.arange(8.0, device=device)[:, None]
    regions = torch.tensor([[0, 1.0, 2.0, 5.0, 6.0]], device=device)  # image, x1, y1, x2, y2
    found = ops.roi_align(image[None, None], regions, output_size=2, sampling_ratio=2, aligned=True)
    # Four cells, whose middles are at x 2 and 4, y 3 and 5, half a pixel less when aligned.
    torch.testing.assert_close(found[0, 0].cpu(), torch.tensor([[26.5, 28.5], [46.5, 48.5]]))
    image.requires_grad_()
    ops.roi_align(image[None, None], regions, output_size=1, sampling_ratio=2, aligned=True).sum().backward()
    assert image.grad is not None
    torch.testing.assert_close(image.grad.sum().cpu(), torch.tensor(1.0))  # weights of a mean


def test_torchaudio_keeps_a_tone_when_it_resamples(device: torch.device) -> None:
    functional = companion("torchaudio.functional")
    wave = torch.tensor([math.sin(2 * math.pi * 440 * i / 16_000) for i in range(16_000)], device=device)
    found = functional.resample(wave, 16_000, 8_000)
    expected = [math.sin(2 * math.pi * 440 * i / 8_000) for i in range(8_000)]
    middle = slice(100, 7_900)  # the filter has nothing to look at beyond the ends
    torch.testing.assert_close(found.cpu()[middle], torch.tensor(expected)[middle], rtol=0, atol=5e-3)


def test_torchaudio_filters(device: torch.device) -> None:
    functional = companion("torchaudio.functional")
    impulse = torch.zeros(6, device=device)
    impulse[0] = 1
    # Each value is half of the one before it, plus what came in.
    a, b = torch.tensor([1.0, -0.5], device=device), torch.tensor([1.0, 0.0], device=device)
    assert functional.lfilter(impulse, a, b).tolist() == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_torchaudio_aligns_what_was_said(device: torch.device) -> None:
    functional = companion("torchaudio.functional")
    if device.type == "cuda" and not has_kernel("torchaudio::forced_align", "CUDA"):
        pytest.skip("this torchaudio aligns on the CPU alone")  # as one that is built for ROCm may
    # Four frames of three symbols, of which 0 is the blank; "1 2" is surest as 1, blank, 2, 2.
    chances = torch.tensor([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.1, 0.8]])
    path, scores = functional.forced_align(
        chances.log()[None].to(device), torch.tensor([[1, 2]], dtype=torch.int32, device=device), blank=0
    )
    assert path.tolist() == [[1, 0, 2, 2]]
    torch.testing.assert_close(scores.exp().cpu(), torch.tensor([[0.8, 0.8, 0.7, 0.8]]))


def test_torchaudio_transforms(device: torch.device) -> None:
    transforms = companion("torchaudio.transforms")
    size, tone = 64, 5
    wave = torch.tensor([math.cos(2 * math.pi * tone * i / size) for i in range(4 * size)], device=device)
    spectrum = transforms.Spectrogram(
        n_fft=size, hop_length=size, center=False, window_fn=torch.ones, power=2.0
    ).to(device)(wave)
    # A whole number of periods in each window: half of the size in one bin, squared, and nothing elsewhere.
    expected = torch.zeros(size // 2 + 1, 4)
    expected[tone] = (size / 2) ** 2
    torch.testing.assert_close(spectrum.cpu(), expected, rtol=1e-4, atol=1e-3)
    decibels = transforms.AmplitudeToDB("power").to(device)(torch.tensor([1.0, 100.0, 0.001], device=device))
    torch.testing.assert_close(decibels.cpu(), torch.tensor([0.0, 20.0, -30.0]))
    loud = torch.tensor([-1.0, 0.0, 1.0], device=device)
    assert transforms.MuLawEncoding(256).to(device)(loud).tolist() == [0, 128, 255]
