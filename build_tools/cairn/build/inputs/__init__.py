"""The inputs of a build: its tree, leftovers of earlier builds, variables, compilers.

All of it is in the key that `build.plan` computes: what may change a wheel and is not here is a defect. Of
the caller's environment a backend sees what `cairn.isolation` lets through; `variables` adds what the stack
and the user set.
"""
