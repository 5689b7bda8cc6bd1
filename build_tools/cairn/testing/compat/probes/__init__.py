"""The probes: what a row of a compatibility page claims, tried out in a process of its own.

They run in the tested interpreter, from a copy of this folder, and know the standard library and what is
tested, not Cairn. `harness` is what the process starts with.
"""
