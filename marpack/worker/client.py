"""The parent's side of a worker: spawn, feed, time out, restart."""
