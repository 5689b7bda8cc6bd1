"""Every computation runs on the CPU, and on the GPU where there is one."""

from collections.abc import Callable, Iterator

import pytest
import torch

RecordProperty = Callable[[str, object], None]


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, then the first GPU; see `gpu`."""
    if request.param == "cpu":
        return torch.device("cpu")
    found: torch.device = request.getfixturevalue("gpu")
    return found


@pytest.fixture
def gpu(record_property: RecordProperty) -> Iterator[torch.device]:
    """The first GPU; a test that passed on it says on which, as property `device`."""
    if not torch.cuda.is_available():
        pytest.skip("no device")
    torch.cuda.empty_cache()
    yield torch.device("cuda", 0)
    torch.cuda.synchronize()
    record_property("device", gpu_name())


@pytest.fixture
def translated() -> bool:
    """Whether TorchDevice stands in for the GPU (`cairn test smoke --translate`)."""
    return torch.cuda.is_available() and gpu_name() == "emulated"


@pytest.fixture
def real_gpu(gpu: torch.device, *, translated: bool) -> torch.device:
    """The first GPU, for what nothing can stand in for."""
    if translated:
        pytest.skip("TorchDevice stands in for the GPU")
    return gpu


def gpu_name() -> str:
    """The first GPU's gfx name on ROCm, else what the driver calls it."""
    properties = torch.cuda.get_device_properties(0)
    name = getattr(properties, "gcnArchName", "") or properties.name
    return name.partition(":")[0]
