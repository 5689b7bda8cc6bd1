"""Which commit of which repository is meant: flag, then the pin in the torch checkout, then the default.

`read` reads upstream's files, `resolve.wanted` decides.
"""
