"""The artifacts of a CI run of TheRock, fetched: found, chosen, downloaded, checked, and unpacked.

`fetch.fetch` takes a store and what is wanted of it, and leaves a tree that `cairn.rocm.package` reads.
"""
