"""Who built a file of what, and how anybody can check it: signed statements, from the bytes to the commits.

`attest` writes a statement about each wheel of a set, `chain` checks a wheel against everything that a store
(or a bundle of it) says of it, link by link.
"""
