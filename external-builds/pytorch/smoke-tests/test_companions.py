"""torchvision and torchaudio, where they are installed, fit this torch and compute."""

import math
from types import ModuleType

import pytest
import torch


def companion(name: str) -> ModuleType:
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ModuleNotFoundError)


def overlap(a: list[float], b: list[float]) -> float:
    def area(box: list[float]) -> float:
        return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])

    shared = area([max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])])
    return shared / (area(a) + area(b) - shared)


def test_torchvision_suppresses_overlapping_boxes(device: torch.device) -> None:
    ops = companion("torchvision.ops")
    boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 9, 12], [21, 19, 29, 33]]
    scores = [0.9, 0.8, 0.7, 0.95, 0.1]
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        if all(overlap(boxes[i], boxes[k]) <= 0.5 for k in kept):
            kept.append(i)
    tensors = torch.tensor(boxes, device=device, dtype=torch.float32), torch.tensor(scores, device=device)
    assert ops.nms(*tensors, 0.5).tolist() == kept


def test_torchaudio_keeps_a_tone_when_it_resamples(device: torch.device) -> None:
    functional = companion("torchaudio.functional")
    wave = torch.tensor([math.sin(2 * math.pi * 440 * i / 16_000) for i in range(16_000)], device=device)
    found = functional.resample(wave, 16_000, 8_000)
    expected = [math.sin(2 * math.pi * 440 * i / 8_000) for i in range(8_000)]
    middle = slice(100, 7_900)  # the filter has nothing to look at beyond the ends
    torch.testing.assert_close(found.cpu()[middle], torch.tensor(expected)[middle], rtol=0, atol=5e-3)
