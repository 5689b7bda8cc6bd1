"""Splitting a wheel into a host wheel and one device wheel for each processor, and joining them again.

`split.split` takes a wheel with device code and writes the parts; `join.join` takes a host wheel and some or
all of its device wheels. docs/reference/device-wheels.md describes the files.
"""
