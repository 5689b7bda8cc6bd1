"""A store over HTTP, for one's own machine, for the gate and for tests.

`server.serving` gives the address of a `Store` while a block runs. aiohttp reads the requests and keeps the
connections, `clients` limits them, and `site` finds the object and the form in which it is sent.
"""
