"""Exceptions and deaths of a handler (contract §5)."""

from conformance.probe import Probe, asked, handler

_CODES = (0, 100, 101, 200, 201, 204, 299, 304, 400, 404, 413, 418, 431, 451, 499, 500, 503, 507, 508, 599, 600, 1000)

_MESSAGES = {
    "plain": "'no such class'",
    "empty": "''",
    "accents": "'caf\\u00e9 \\u20ac \\U0001f600'",
    "quotes": "'\"a\" \\\\ / b'",
    "html": "'<b>&amp;=\\'</b>'",
    "controls": "''.join(map(chr, range(32))) + chr(127)",
    "separators": "'a\\u2028b\\u2029c\\u0085d\\ufeff'",
}

_EXCEPTIONS = {
    "value-error": "raise ValueError('x')",
    "assertion": "assert False",
    "division": "1 / 0",
    "import": "import no_such_module",
    "stop-iteration": "raise StopIteration",
    "recursion": "def f(): f()\nf()",
    "os-error": "raise OSError(28, 'No space left on device')",
    "memory": "raise MemoryError",
    "memory-subclass": "class M(MemoryError): pass\nraise M('x')",
    "cuda": "raise RuntimeError('CUDA error: out of memory')",
    "cuda-value-error": "raise ValueError('no CUDA here')",
    "cuda-lower-case": "raise RuntimeError('cuda')",
    "cuda-in-prediction": "raise PredictionException('CUDA', 404)",
    "cuda-out-of-memory": "import torch; raise torch.cuda.OutOfMemoryError('CUDA out of memory')",
    "prediction-default": "raise PredictionException('m')",
    "prediction-true": "raise PredictionException('m', True)",
    "prediction-subclass": "class P(PredictionException): pass\nraise P('m', 422)",
    "prediction-chained": "try: 1 / 0\nexcept Exception as e: raise PredictionException('m', 422) from e",
    "prediction-after-setting": (
        "context.set_response_status(201, 'x'); context.set_response_header(0, 'a', 'b');"
        "raise PredictionException('m', 500)"
    ),
    "group": "raise ExceptionGroup('g', [ValueError('a')])",
    "group-cuda": "raise ExceptionGroup('CUDA', [ValueError('a')])",
    "missing-key": "data[0]['nope']",
    "syntax": "answer = (",
    "unserialisable-after-setting": (
        "context.set_response_status(201, 'x'); context.set_response_header(0, 'a', 'b'); answer = {1}"
    ),
    "print-and-fail": "print('said before failing'); raise ValueError('x')",
}

# Each costs the server a worker's start, a second or two. SIGKILL is not among them: the server answers 507 or 500,
# as its frontend happens to see the exit code before the closed socket or after.
_DEATHS = {
    "system-exit": "raise SystemExit(0)",
    "os-exit": "os._exit(3)",
    "str-raises": "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
    "header-value-number": "context.set_response_header(0, 'a', 1)",
    "status-negative": "context.set_response_status(-1, '')",
    "phrase-newline": "context.set_response_status(201, 'a\\r\\nb: c')",
}

_MORE_DEATHS = {
    "keyboard-interrupt": "raise KeyboardInterrupt",
    "base-exception": "raise BaseException('x')",
    "terminated": "import signal; os.kill(os.getpid(), signal.SIGTERM)",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "header-value-newline": "context.set_response_header(0, 'a', 'b\\r\\nc: d')",
    "header-name-blank": "context.set_response_header(0, 'a b', 'c')",
    "content-type-none": "context.set_response_content_type(0, None)",
    "status-text": "context.set_response_status('200', '')",
    "prediction-code-negative": "raise PredictionException('m', -1)",
    "prediction-code-none": "raise PredictionException('m', None)",
    "prediction-code-text": "raise PredictionException('m', '404')",
    "prediction-message-none": "raise PredictionException(None, 404)",
    "surrogate": "answer = '\\ud800'",
    "circular": "answer = []; answer.append(answer)",
}

EXCEPTIONS = asked(
    "exceptions",
    handler("evaluate"),
    {f"code-{code}": f"raise PredictionException('told', {code})" for code in _CODES}
    | {f"message-{name}": f"raise PredictionException({text}, 500)" for name, text in _MESSAGES.items()}
    | _EXCEPTIONS,
)


def _deaths(name: str, sources: dict[str, str], *, settled: bool = False) -> Probe:
    bodies = {death: f"answer = 'lost'\n{source}" for death, source in sources.items()}
    return asked(name, handler("evaluate"), {**bodies, "alive-again": "answer = 'alive'"}, settled=settled)


_HANGS = {
    "sleeps": "import time; time.sleep(60)",
    "phrase-not-ascii": "answer = 'lost'; context.set_response_status(201, 'caf\\u00e9')",
    "type-not-ascii": "answer = 'lost'; context.set_response_content_type(0, 'text/\\u00e9')",
    "alive-again": "answer = 'alive'",
}

PROBES = (
    EXCEPTIONS,
    _deaths("deaths", _DEATHS),
    _deaths("more-deaths", _MORE_DEATHS, settled=True),
    asked("hangs", handler("evaluate"), _HANGS, options={"response_timeout": 2}),
)
