"""The errors that the metrics cache raises in handlers; names and bases are the contract's."""

import yaml


class GeneralMetricsCacheError(Exception):
    """Anything else that went wrong in the metrics cache."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Generic error: {message}")


class MetricsCacheIOError(OSError):
    """The metrics file cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Error reading file: {message}")


class MetricsCachePyYamlError(yaml.YAMLError):
    """The metrics file is not YAML."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Error parsing file: {message}")


class MetricsCacheTypeError(TypeError):
    """A metric's name, unit or type is of the wrong type."""


class MetricsCacheValueError(ValueError):
    """A unit is none of those that its kind of metric knows."""


class MetricsCacheKeyError(KeyError):
    """There is no such metric."""
