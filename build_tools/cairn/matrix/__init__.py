"""The build and test matrix: release lines x families x Pythons x platforms, and their runners.

`matrix_toml` reads the `matrix.toml` that a fork may change; `legs` makes the matrix of it, and hands it to a
workflow.
"""
