"""Fetching the artifacts of a CI run of TheRock: find, choose, download, check and unpack them.

`fetch.fetch` takes a store and what is wanted of it, and leaves a tree that `cairn.rocm.package` reads.
"""
