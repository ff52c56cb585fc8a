"""What a receiver needs to trust an archive: whose it is, that it was checked, and what is in it."""
