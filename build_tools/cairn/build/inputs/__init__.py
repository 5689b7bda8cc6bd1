"""The inputs of a build: its tree, leftovers of earlier builds, variables, compilers.

All of it is in the key that `build.plan` computes: what may change a wheel and is not here is a defect.
"""
