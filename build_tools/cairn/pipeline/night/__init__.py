"""A night: one manifest, built for each leg of a matrix, staged, tested, promoted and reported.

Each job of the nightly workflow is one call here. Their shared state is in the store, below `nights/<id>/`:
no promotion depends on a job's outputs or artifacts.
"""
