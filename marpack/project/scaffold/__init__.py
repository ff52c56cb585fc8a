"""Projects made rather than written: from a template, from the files of a folder, or from an archive."""
