"""The Python API: what the commands do, by the same names, with results that show themselves in a notebook.

In a copy of `examples/digits`:

>>> import marpack
>>> from pathlib import Path
>>> built = marpack.build(".")
>>> built
BuildReport('digits.mar', 18 members, 68.1 kB)
>>> with marpack.open(built.path) as archive:
...     archive.manifest.model.handler
'handler.py'
>>> with marpack.load(built.path) as model:
...     answer = model.predict(Path("samples/seven.png"))
>>> answer.status, max(answer.json(), key=answer.json().get)
(200, '7')
"""
