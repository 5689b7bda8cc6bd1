"""TUF for a store: who may release, and which state of each index is current.

`root` names the keys (offline), `online` signs what a commit makes, `client` is what a reader believes.
"""
