"""A store over HTTP, for one's own machine and for tests.

It takes any `Store`; `server.serving` gives its address while a block runs. `clients` has the connections; a
request goes through `request` (what was asked), `address` (which object that is) and `answers` (what is said
to it, by `negotiation`).
"""
