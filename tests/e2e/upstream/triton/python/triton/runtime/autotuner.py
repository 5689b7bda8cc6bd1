"""Chooses between kernels."""


class OutOfResources(Exception):
    pass


class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


class Autotuner:
    pass


class Heuristics:
    pass
