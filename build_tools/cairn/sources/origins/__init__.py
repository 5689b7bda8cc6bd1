"""Origins that are described rather than hosted, as real git repositories: `materialize.materialise`."""
