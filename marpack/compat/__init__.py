"""The ts.* names, mapped onto our own modules in the worker."""
