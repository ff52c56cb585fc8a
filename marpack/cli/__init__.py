"""One file per command: options → one library call → one render call → exit code."""
