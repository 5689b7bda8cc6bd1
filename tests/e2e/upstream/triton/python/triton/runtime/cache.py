"""Kernels that were compiled before."""


def triton_key():
    return "3.5.0"
