"""Who vouches for an archive: signatures over its file, and attestations of what was checked of it."""
