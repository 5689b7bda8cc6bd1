"""The compiler tools of the miniature ROCm: thin drivers over the clang and lld inside ziglang.

Standard library only, Python 3.9 or later: they run under whatever `python3` comes first on PATH.
"""
