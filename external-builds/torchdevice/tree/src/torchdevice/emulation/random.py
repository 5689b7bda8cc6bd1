"""Random numbers: one generator draws, that of the device that computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchdevice import errors, translation
from torchdevice.emulation import devices
from torchdevice.router import Route


def _default_generator(target: str) -> Any:
    return torch.mps._get_default_mps_generator() if target == "mps" else torch.default_generator


def _generator(device: Any = "cuda") -> Any:
    devices.ordinal(device)
    return _default_generator(translation.translate("cuda"))


def default_generators(route: Route) -> tuple[Any, ...]:
    """The value of `torch.cuda.default_generators`."""
    return (_default_generator(route.target),) * route.count


def manual_seed(seed: int) -> None:
    _generator().manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    _generator().seed()


seed_all = seed


def initial_seed() -> int:
    return int(_generator().initial_seed())


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(devices.device_count())]


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _set_rng_state_offset(offset: int, device: Any = "cuda") -> None:
    del offset, device
    raise errors.refusal("torch.cuda._set_rng_state_offset", "keep the whole state, by get_rng_state.")


def _get_rng_state_offset(device: Any = "cuda") -> int:
    del device
    raise errors.refusal("torch.cuda._get_rng_state_offset", "keep the whole state, by get_rng_state.")
