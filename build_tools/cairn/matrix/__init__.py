"""What is built and tested when: release lines x families x Pythons x platforms, on which runners.

`legs` reads the `matrix.toml` that a fork may change, makes the matrix of it and hands it to a workflow.
"""
