"""The format itself: names, manifest, index of digests, readers and writers. Knows no project and no torch."""
