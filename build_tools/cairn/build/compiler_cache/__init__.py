"""ccache and sccache in front of every compiler of a build, with keys that are correct for device code too.

Takes the variables of a build and gives those that put the cache in front (`session.open_session`), and its
statistics afterwards. `session` also finds or installs the program and reads what it counted, `compilers`
says which compilers there are and how they are told apart, `launchers` writes the scripts, and gives headers
of installed wheels one path for all environments.
"""
