"""A store over HTTP, for one's own machine and for tests.

It takes the folder of a store; `server.serving` gives its address while a block runs. `negotiation` is what a
client gets of what there is: HTML or JSON, all or a part.
"""
