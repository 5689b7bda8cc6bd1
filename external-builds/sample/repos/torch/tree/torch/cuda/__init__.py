"""Contract: HIP devices answer to `torch.cuda`, and a build for the CPU has the same questions."""

from torch import _C, version

__all__ = ["device_count", "get_arch_list", "is_available", "is_built"]


def device_count() -> int:
    """How many GPUs the HIP runtime offers; 0 without a GPU or in a CPU-only build."""
    return int(_C._cuda_getDeviceCount())


def is_available() -> bool:
    """Whether a kernel can be launched here at all."""
    return device_count() > 0


def is_built() -> bool:
    """Whether this torch was built for any GPU, present or not."""
    return version.hip is not None


def get_arch_list() -> list[str]:
    """The targets this torch holds code for, `gfx942`; empty where no GPU is available."""
    flags = _C._cuda_getArchFlags() if is_available() else None
    return flags.split() if flags else []
