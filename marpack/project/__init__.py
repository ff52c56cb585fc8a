"""marpack.yaml or the original archiver's flags → Project → Plan: what goes in, from where, under which name."""
