"""marpack.yaml or flags → Project → Plan: everything that can be wrong is found here."""
