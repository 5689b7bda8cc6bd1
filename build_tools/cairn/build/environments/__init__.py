"""Build requirements: resolved to exact files, installed, and kept in environments that builds share.

`ready` gives an environment that has what a `Content` names, and `give_back` says that it is no longer used;
`resolve` finds the exact files, `pip_install` installs them.
"""

from cairn.build.environments.pool import Content, at, give_back, ready, root, trim

__all__ = ["Content", "at", "give_back", "ready", "root", "trim"]
