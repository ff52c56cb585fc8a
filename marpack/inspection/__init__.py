"""Archive → facts and findings, as data; nothing is executed or unpickled."""
