import os
import re
import socket
import textwrap
import threading
import time
from pathlib import Path

import pytest
from workers import launch, one, predict, started

from marpack.errors import WorkerError
from marpack.protocol.messages import MAX_MESSAGE, Answered, Dying, FromWorker, Load, Pipe, Trouble
from marpack.runner.client import LoadError, Worker
from marpack.torchserve.http import Response

HANDLER = textwrap.dedent(
    """
    import ctypes, os, signal, subprocess, sys, time
    from ts.utils.util import PredictionException

    class Handler:
        def initialize(self, context):
            print("ready in", os.path.basename(os.getcwd()))
            self.count = 0

        def preprocess(self, data):
            return [bytes(row.get("body")).decode() for row in data]

        def handle(self, data, context):
            self.count += 1
            self.context = context
            return [self.answer(word) for word in self.preprocess(data)]

        def answer(self, word):
            print("handling", word)
            if word[0] == "=": return eval(word[1:])
            return getattr(self, word.split()[0], lambda *_: word)(*word.split()[1:])

        def chosen(self): raise PredictionException("no such cat", 404)
        def memory(self): raise MemoryError
        def cuda(self): raise RuntimeError("CUDA error: out of memory")
        def mute(self):
            class Mute(Exception):
                def __str__(self): raise ValueError("no words")
            raise Mute
        def realtime(self):
            os.kill(os.getpid(), signal.SIGRTMIN + 1)
            time.sleep(60)
        def scribbles(self, text):
            for descriptor in os.listdir("/proc/self/fd"):
                if "socket:" in os.path.realpath(f"/proc/self/fd/{descriptor}"):
                    os.write(int(descriptor), bytes.fromhex(text))
        def measures(self):
            self.context.metrics.add_counter("Seen", 1)
            pid = os.fork()
            if pid == 0:
                print("in the child")
                os._exit(0)
            os.waitpid(pid, 0)
            print("in the parent")
            self.context.metrics.add_counter("Counted", 1)
            return "measured"
        def redirects(self):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            print("to nobody")
            return "redirected"
        def silences(self): sys.stdout = None; return "None"
        def tees(self):
            class Tee:
                def write(self, text): sys.__stdout__.write(text)
            sys.stdout = Tee()
            return "None"
    """
)


def framed(message: object) -> bytes:
    """Return what a worker writes to send a message."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Pipe(ours, FromWorker).send(message)
        return theirs.recv(1 << 16)


ANSWERS = Answered(responses=(Response(status=200, body=b""),) * 2, stages={})
LAST = Dying(Trouble(kind="x", message="x"), ANSWERS.responses)


@pytest.fixture
def worker(make_folder):
    with started(Load(model_dir=str(make_folder(HANDLER)))) as worker:
        yield worker


def test_an_answer_comes_with_its_stages_and_its_prints(worker: Worker):
    outcome = predict(worker, one("hello"))
    assert outcome.responses[0].body == b"hello"
    assert outcome.stages["preprocess"] <= outcome.stages["handle"]
    assert outcome.logs.startswith("handling hello\n")


def test_metric_lines_come_among_the_prints_or_beside_them_in_their_order_and_are_nobody_elses(worker: Worker):
    outcome = predict(worker, one("measures"))
    known = ["handling", "in the child", "[METRICS]Seen", "in the parent"], ["[METRICS]Counted", "[METRICS]Prediction"]
    for lines, starts in zip((outcome.logs.splitlines(), outcome.metrics), known, strict=True):
        assert [next((start for start in starts if line.startswith(start)), line) for line in lines] == starts


def test_odd_habits_do_not_disturb_the_next_batch(worker: Worker):
    for word in ("=str(os.chdir('/'))", "=str(os.fork() and None)", "tees", "silences", "=str(os.closerange(0, 3))"):
        assert predict(worker, one(word), timeout=30).responses[0].body == b"None"
        again = predict(worker, one("hello"), timeout=30)
        assert (again.responses[0].body, again.died) == (b"hello", False)


def test_a_handler_may_lead_its_stdout_elsewhere(worker: Worker):
    redirected = predict(worker, one("redirects"))
    assert redirected.logs == "handling redirects\n"
    assert redirected.metrics[0].startswith("[METRICS]PredictionTime")
    for number in range(3):
        complained = predict(worker, one(f"=print('about', {number}, file=sys.stderr)"))
        assert complained.logs.startswith(f"about {number}\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_before_a_crash_is_not_lost(make_folder, unbuffered: str):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with started(Load(model_dir=str(make_folder(HANDLER))), environment=environment, forks=False) as worker:
        assert predict(worker, one("=os._exit(7)")).logs == "handling =os._exit(7)\n"


FAILURES = {
    "={}['missing']": (503, "Prediction failed", "KeyError"),
    "chosen": (404, "no such cat", "PredictionException"),
    "memory": (507, "Out of resources", "MemoryError"),
    "cuda": (507, "Out of resources", "RuntimeError"),
    "={1}": (503, "Unsupported model output data type.", "unserialisable-output"),
}


def test_failures_cost_one_batch_and_name_their_reason(worker: Worker):
    for word, (status, message, kind) in FAILURES.items():
        outcome = predict(worker, one(word))
        assert outcome.responses[0].status == status
        assert f'"message": "{message}"'.encode() in outcome.responses[0].body
        assert (outcome.troubles[0].kind, outcome.died) == (kind, False)
    assert predict(worker, one("=str(self.count)")).responses[0].body == b"6"


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        ("=sys.exit(3)", 500, "3"),
        ("=os._exit(7)", 500, "exit code 7"),
        ("=ctypes.string_at(0)", 500, "SIGSEGV"),
        ("=os.kill(os.getpid(), 9)", 507, "SIGKILL"),
        ("realtime", 500, "killed by SIGRTMIN+1"),
        ("scribbles 01000000c1", 500, "invalid message"),
        ("scribbles ffffffff", 500, "a message of 4,294,967,295 bytes"),
        (f"scribbles {framed(ANSWERS).hex()}", 500, "2 responses were written to a batch of 1"),
        (f"scribbles {framed(LAST).hex()}", 500, "2 responses were written to a batch of 1"),
        ("=time.sleep(60)", 500, "did not respond in time"),
        ("mute", 500, "no words"),
        ("=os.closerange(0, 100)", 500, "ended"),
        ("=self.context.set_response_header(0, 'X', 1)", 500, "X"),
    ],
)
def test_a_worker_that_dies_answers_as_the_server_and_says_why(worker: Worker, word: str, status: int, reason: str):
    outcome = predict(worker, one(word), timeout=1 if word in {"=time.sleep(60)", "mute"} else 30)
    assert outcome.died
    assert outcome.responses[0].status == status
    assert b'"Worker died."' in outcome.responses[0].body
    assert reason in outcome.troubles[0].message
    assert 0 < outcome.seconds < 60
    assert worker.process.ended()


def test_a_flood_of_output_is_shortened_and_never_blocks(worker: Worker):
    outcome = predict(worker, one("='%d' % sum(os.write(1, b'x' * 65536) for _ in range(300))"), timeout=20)
    assert outcome.responses[0].body == b"%d" % (300 << 16)
    assert re.search(r"\n… \d+ bytes", outcome.logs)
    assert len(outcome.logs) < 3 << 20
    assert predict(worker, one("after")).logs.startswith("handling after")


def test_a_worker_lives_on_after_the_thread_that_started_it(make_folder):
    workers: list[Worker] = []
    load = Load(model_dir=str(make_folder(HANDLER)))
    thread = threading.Thread(target=lambda: workers.append(started(load, forks=False)))
    thread.start()
    thread.join()
    (worker,) = workers
    with worker:
        assert not worker.process.ended(within=0.2)
        assert predict(worker, one("a")).responses[0].body == b"a"


@pytest.mark.parametrize(
    ("source", "stage", "kind", "words"),
    [
        ("def broken(:\n", "import", "SyntaxError", "invalid syntax"),
        ("import no_such_module_here\n", "import", "ModuleNotFoundError", "no_such_module_here"),
        ("class A:\n    def __init__(self, x): ...\n", "import", "TypeError", "__init__"),
        ("class A: ...\nclass B: ...\n", "import", "EntryPointError", "2 classes (A, B)"),
        ("def handle(data, context): raise ValueError('no weights')", "initialize", "ValueError", "no weights"),
        ("import sys\ndef handle(data, context): sys.exit(2)\n", "initialize", "SystemExit", "2"),
    ],
)
def test_a_handler_that_does_not_load_names_stage_and_reason(make_folder, source, stage, kind, words):
    with pytest.raises(LoadError) as caught:
        started(Load(model_dir=str(make_folder(source))))
    trouble = caught.value.trouble
    assert (trouble.stage, trouble.kind) == (stage, kind)
    assert words in trouble.message
    assert caught.value.exit_code == 4


def test_an_import_error_is_the_handlers_own_not_a_fallbacks(make_folder):
    folder = make_folder("import helper\n", files={"helper.py": "import nothing_of_this_name\n"})
    with pytest.raises(LoadError) as caught:
        started(Load(model_dir=str(folder)))
    assert [Path(frame.file).name for frame in caught.value.trouble.frames] == ["handler.py", "helper.py"]
    assert "requirements.txt" in str(caught.value.hint)


def test_a_worker_that_dies_or_hangs_while_loading_is_told(make_folder):
    folder = make_folder("import os\nprint('last words', flush=True)\nos._exit(9)\n")
    with pytest.raises(WorkerError, match="exit code 9") as caught:
        started(Load(model_dir=str(folder)))
    assert "last words" in caught.value.what
    (folder / "handler.py").write_text("import time\ntime.sleep(60)\n")
    start = time.monotonic()
    with pytest.raises(WorkerError, match="in time"):
        started(Load(model_dir=str(folder)), timeout=0.5)
    assert time.monotonic() - start < 55  # the handler sleeps for 60


def test_a_handler_that_writes_into_the_socket_while_it_loads_is_told(make_folder):
    source = f"""
        import os, time
        for descriptor in os.listdir("/proc/self/fd"):
            if "socket:" in os.path.realpath(f"/proc/self/fd/{{descriptor}}"):
                os.write(int(descriptor), bytes.fromhex("{framed(ANSWERS).hex()}"))
        time.sleep(60)
    """
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"\b2 responses .*\b0 ") as caught:
        started(Load(model_dir=str(make_folder(textwrap.dedent(source)))))
    assert "descriptor" in str(caught.value.hint)
    assert time.monotonic() - start < 55  # the handler sleeps for 60


@pytest.mark.slow
def test_as_much_is_taken_as_the_answers_may_have(make_folder):
    size = MAX_MESSAGE + 1
    source = f"def handle(data, context): return [b'x' * {size}]"
    with started(Load(model_dir=str(make_folder(source)), max_response_size=size)) as worker:
        outcome = predict(worker, one("a"))
    assert len(outcome.responses[0].body) == size


@pytest.mark.parametrize("entry", ["handler.py", "handler:handle"])
def test_a_function_is_initialized_with_none(make_folder, entry: str):
    source = (
        "calls = []\ndef handle(data, context):\n    calls.append(data)\n    return [str(calls[0])] if data else None\n"
    )
    with started(Load(model_dir=str(make_folder(source, entry=entry)))) as worker:
        assert predict(worker, one("x")).responses[0].body == b"None"


def test_memory_can_be_bounded(make_folder):
    source = "def handle(data, context):\n    return [str(len(bytearray(2 << 30)))] if data else None\n"
    with launch(max_memory=1 << 30) as worker:
        worker.load(Load(model_dir=str(make_folder(source))))
        assert predict(worker, one("x")).responses[0].status == 507


def test_a_handler_without_torch_never_waits_for_it(make_folder):
    source = "import sys\ndef handle(data, context):\n    return [str('torch' in sys.modules)] if data else None\n"
    with started(Load(model_dir=str(make_folder(source))), forks=False) as worker:
        assert predict(worker, one("x")).responses[0].body == b"False"


@pytest.mark.parametrize("config", [None, 3, "empty.yaml", "list.yaml", "nowhere.yaml"])
def test_a_config_that_the_server_refuses_is_refused(make_folder, config: object):
    files = {"empty.yaml": "# nothing\n", "list.yaml": "- 1\n"}
    folder = make_folder("def handle(data, context): ...\n", files=files, configFile=config)
    with pytest.raises(LoadError) as caught:
        started(Load(model_dir=str(folder)))
    assert caught.value.trouble.stage == "config"
