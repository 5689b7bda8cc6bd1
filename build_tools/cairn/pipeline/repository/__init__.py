"""A repository of one's own that runs nights on GitHub: what `cairn ci init` writes, and `check` looks for.

`shipped` has the files of Cairn's own checkout, `workflows` fits them to a repository, `aws` makes the
policies of roles, `github` the settings; `init` puts it together, and `check` compares.
"""
