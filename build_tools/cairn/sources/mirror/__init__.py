"""One bare local mirror an origin, shared by every checkout: `mirror.of` gives it, `fetch` fills it."""
