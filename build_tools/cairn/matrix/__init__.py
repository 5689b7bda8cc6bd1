"""What is built and tested when: release lines x families x Pythons x platforms, on which runners.

`matrix_toml` reads what a fork may change, `legs` makes the matrix of it and hands it to a workflow.
"""
