"""A store over HTTP, for one's own machine and for tests: `server.serving`."""
