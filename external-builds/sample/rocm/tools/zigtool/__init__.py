"""Contract: the compiler tools of a ROCm SDK, as thin drivers over the clang and lld inside ziglang.

Standard library only, Python 3.9 or later: they run under whatever `python3` comes first on PATH.
"""
