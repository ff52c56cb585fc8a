"""Static checks of what goes, or went, into an archive: nothing executed, nothing unpickled."""
