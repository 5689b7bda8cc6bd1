"""One bare local mirror per origin, shared by every checkout, from which checkouts borrow their objects.

`mirror.of` takes an origin and gives its `Mirror`; `Mirror.find` brings a branch, tag or commit into it,
and goes on where the connection was lost.
"""
