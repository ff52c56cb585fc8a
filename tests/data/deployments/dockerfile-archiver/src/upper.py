"""Respond with the text of each request, in capital letters."""


class Text:
    def initialize(self, context):
        self.version = context.manifest["model"]["modelVersion"]

    def handle(self, data, context):
        rows = [row.get("body") or row.get("data") for row in data]
        texts = [row if isinstance(row, str) else bytes(row).decode() for row in rows]
        return [f"{self.version}: {text.upper()}" for text in texts]
