"""Provenance: signed statements of who built a file from which commits, and how to verify them.

`attest` writes a statement about each wheel of a set, `chain` checks a wheel against everything that a store
(or a bundle of it) says of it, link by link.
"""
