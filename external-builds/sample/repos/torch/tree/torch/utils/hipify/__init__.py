"""Turning CUDA sources into HIP sources. Needs the standard library only."""
