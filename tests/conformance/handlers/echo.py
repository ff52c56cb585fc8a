"""Say how each row and its headers look from inside, types included."""

VOLATILE = {"Host", "Content-Length"}


def handle(data, context):
    if data is None:
        return None
    return [shown(row, context.get_all_request_header(idx)) for idx, row in enumerate(data)]


def shown(row, headers):
    cells = [f"{name} = {type(value).__name__} {value!r}" for name, value in row.items()]
    # Which header comes first is the Java map's affair.
    lines = [f"{name}: {value!r}" for name, value in sorted(headers.items()) if name not in VOLATILE]
    return "\n".join([*cells, "--", *lines])
