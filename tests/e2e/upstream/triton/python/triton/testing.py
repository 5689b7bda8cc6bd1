"""Measures kernels."""
