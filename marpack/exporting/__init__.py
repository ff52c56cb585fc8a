"""Archives turned into what other platforms deploy: a folder that stands alone, for each of them."""
