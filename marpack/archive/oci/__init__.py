"""Archives in OCI registries: pushed, pulled and read by range, as OCI's distribution and image specifications have it.

Importing this raises MissingExtraError where the packages are not installed that only registries need.
"""

from marpack.errors import MissingExtraError

try:
    import oras.auth  # noqa: F401
    import requests  # noqa: F401
except ImportError as error:
    raise MissingExtraError(error.name or "oras", "oci", "talking to a registry") from error
