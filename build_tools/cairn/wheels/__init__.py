"""Everything that happens to a built wheel; knows nothing of git or of builds."""
