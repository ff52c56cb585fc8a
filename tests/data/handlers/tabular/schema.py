from dataclasses import dataclass


class SchemaError(ValueError):
    pass


@dataclass(frozen=True)
class Row:
    age: float
    income: float


def parse(value):
    if not isinstance(value, dict):
        raise SchemaError("not an object")
    return Row(float(value["age"]), float(value["income"]))
