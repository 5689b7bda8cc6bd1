"""A night: one manifest, built for each leg of a matrix, staged, tested, promoted, and told of.

Each job of the nightly workflow is one call here. What they agree on lies in the store, below `nights/<id>/`:
nothing that decides over a promotion comes from a job's outputs or artifacts.
"""
