"""Backends, by their names: without their compilers."""

backends = {}
