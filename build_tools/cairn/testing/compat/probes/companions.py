"""Packages beside torch: torchaudio, torchvision, and libraries without kernels of their own."""

from __future__ import annotations

import importlib
import math
from importlib import metadata
from types import ModuleType
from typing import Any

import torch

from .harness import Answer, NotMeasurableError, require, runs


def companion(name: str) -> ModuleType:
    """A module of a package that may be missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name != top:
            raise
        raise NotMeasurableError(f"{top} is not installed") from error


@runs("host")
def imports(answer: Answer, distribution: str, module: str) -> None:
    """A package imports beside this torch."""
    try:
        answer.fact(metadata.version(distribution))
    except metadata.PackageNotFoundError as error:
        raise NotMeasurableError(f"{distribution} is not installed") from error
    with answer.check(f"import {module}"):
        importlib.import_module(module)


@runs("gpu or cpu")
def audio(answer: Answer, name: str) -> None:
    """A transform of torchaudio agrees with itself on the CPU, and shows the tone that it is given."""
    transforms = companion("torchaudio.transforms")
    rate, tone = 16_000, 1_000
    wave = torch.sin(2 * math.pi * tone * torch.arange(rate) / rate)
    make: dict[str, Any] = {
        "Spectrogram": lambda: transforms.Spectrogram(n_fft=512),
        "MelSpectrogram": lambda: transforms.MelSpectrogram(sample_rate=rate, n_fft=512, n_mels=40),
        "MFCC": lambda: transforms.MFCC(
            sample_rate=rate, n_mfcc=13, melkwargs={"n_fft": 512, "n_mels": 40, "hop_length": 160}
        ),
        "Resample": lambda: transforms.Resample(rate, rate // 2),
    }
    with answer.check("the same as on the CPU"):
        expected = make[name]()(wave)
        result = make[name]().to(answer.device)(wave.to(answer.device))
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-3, atol=1e-2)
    with answer.check("a tone is where it belongs"):
        if name == "Spectrogram":
            strongest = result.cpu().mean(-1).argmax().item()
            require(strongest == tone * 512 // rate, f"the strongest frequency is number {strongest}")
        elif name == "Resample":
            require(result.shape[-1] == rate // 2, "a different number of samples")
        else:
            require(result.isfinite().all() and result.abs().max() > 0, "nothing, or not finite")


@runs("gpu or cpu")
def vision_transforms(answer: Answer) -> None:
    """Images are resized, cropped, turned and normalised."""
    functional = companion("torchvision.transforms.functional")
    image = torch.arange(3 * 32 * 32, dtype=torch.float32).reshape(3, 32, 32) / 3072
    on_device = image.to(answer.device)
    calls: dict[str, Any] = {
        "resize": lambda x: functional.resize(x, [16, 16], antialias=True),
        "crop": lambda x: functional.crop(x, 4, 5, 16, 17),
        "rotate": lambda x: functional.rotate(x, 90.0),
        "normalize": lambda x: functional.normalize(x, [0.5] * 3, [0.25] * 3),
    }
    for name, call in calls.items():
        with answer.check(name):
            torch.testing.assert_close(call(on_device).cpu(), call(image), rtol=1e-4, atol=1e-4)


@runs("gpu or cpu")
def vision_ops(answer: Answer) -> None:
    """Operators for detection, those with kernels of their own among them."""
    ops, device = companion("torchvision.ops"), answer.device
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]], device=device)
    with answer.check("nms"):
        boxes_left = ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7], device=device), 0.5)
        require(boxes_left.tolist() == [0, 2], "different boxes are kept")
    with answer.check("roi_align"):
        # On a slope, the mean over a box is the value in its middle.
        slope = torch.arange(32.0, device=device).expand(1, 1, 32, 32).contiguous()
        means = ops.roi_align(slope, [torch.tensor([[4.0, 4, 12, 12]], device=device)], 1, aligned=True)
        torch.testing.assert_close(means.flatten().cpu(), torch.tensor([7.5]))
    with answer.check("box_convert"):
        wide = ops.box_convert(boxes, "xyxy", "xywh")
        require(wide[1].tolist() == [1, 1, 10, 10], "a wrong box")
    with answer.optional("deform_conv2d"):
        x, weight = torch.randn(1, 2, 8, 8, device=device), torch.randn(3, 2, 3, 3, device=device)
        still = torch.zeros(1, 18, 6, 6, device=device)
        expected = torch.nn.functional.conv2d(x.cpu(), weight.cpu())
        torch.testing.assert_close(ops.deform_conv2d(x, still, weight).cpu(), expected, rtol=1e-3, atol=1e-3)


@runs("gpu or cpu")
def vision_models(answer: Answer) -> None:
    """A model gives finite scores, and learns from its gradients."""
    models = companion("torchvision.models")
    torch.manual_seed(0)
    model = models.resnet18(weights=None, num_classes=10)
    x = torch.randn(2, 3, 64, 64)
    with answer.check("the same as on the CPU"):
        expected = model.eval()(x).detach()
        on_device = model.to(answer.device)
        torch.testing.assert_close(
            on_device(x.to(answer.device)).detach().cpu(), expected, rtol=1e-2, atol=1e-2
        )
    with answer.check("gradients"):
        on_device.train()(x.to(answer.device)).square().mean().backward()
        require(
            all(p.grad is not None and p.grad.isfinite().all() for p in on_device.parameters()), "not finite"
        )


@runs("gpu or cpu")
def vision_io(answer: Answer) -> None:
    """Images are encoded and decoded, on the GPU too."""
    io = companion("torchvision.io")
    image = torch.arange(64, dtype=torch.uint8).repeat(3, 64, 1)

    def difference(decoded: torch.Tensor) -> float:
        return float((decoded.cpu().float() - image.float()).abs().mean())

    with answer.check("JPEG and PNG"):
        require(difference(io.decode_jpeg(io.encode_jpeg(image, quality=95))) < 8, "a different image")
        require(difference(io.decode_png(io.encode_png(image))) == 0, "a different image")
    if answer.device.type == "cuda":
        with answer.optional("decoding JPEG on the GPU"):
            decoded = io.decode_jpeg(io.encode_jpeg(image, quality=95), device="cuda")
            require(decoded.is_cuda and difference(decoded) < 8, "elsewhere, or a different image")
        with answer.optional("encoding JPEG on the GPU"):
            again = io.decode_jpeg(io.encode_jpeg(image.cuda(), quality=95).cpu())
            require(difference(again) < 8, "a different image")


@runs("gpu")
def apex_batch_norm(answer: Answer) -> None:
    """The batch normalisation of apex, which replaces torch's."""
    parallel = companion("apex.parallel")
    with answer.check("as torch's own"):
        torch.manual_seed(0)
        x = torch.randn(8, 4, 5, 5, device="cuda")
        result = parallel.SyncBatchNorm(4).cuda()(x)
        torch.testing.assert_close(result, torch.nn.BatchNorm2d(4).cuda()(x), rtol=1e-3, atol=1e-3)
