"""What goes into a build: its tree, what earlier builds left there, variables, compilers.

All of it is in the key that `build.plan` computes: what may change a wheel and is not here is a defect.
"""
