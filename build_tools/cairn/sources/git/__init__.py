"""The `git` program and working repositories, isolated from the user's configuration.

`command.run` runs git and turns its failures into errors; `repository.Repository` is one working tree with
its git directory; `url` compares origins, and resolves relative ones; `lock.hold` keeps
other runs out of a checkout.
"""
