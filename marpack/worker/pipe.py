"""Frames on the worker's pipe: a length of four bytes, little-endian, then msgpack."""
