"""What a handler touches, as its worker tells it: each case is a handler's own code, run in a worker of its own."""

import http.server
import json
import re
import sqlite3
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gate.archives import launch
from workers import one, predict

from marpack.protocol.messages import Access, Load, Touched
from marpack.runner.client import LoadError

SOURCE = """
import os
{top}

class Handler:
    def initialize(self, context):
{initialize}

    def handle(self, data, context):
{handle}
        return [b"" for _ in data]
"""
Traced = Callable[..., list[str]]
Told = Callable[[str], list[str]]
EXECUTES = """
import os

def handle(data, context):
    if data:
        exec(bytes(data[0]["body"]).decode(), {"os": os})
    return [b"" for _ in data or ()]
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files that were there before the worker, in the temporary folder."""
    folder = tmp_path_factory.mktemp("old")
    for number in range(10):
        (folder / str(number)).write_text("x")
    sqlite3.connect(folder / "a.db").execute("create table a (b)").connection.close()
    time.sleep(0.05)
    return folder


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory, old: Path) -> Iterator[Told]:
    """Return a function that has one worker execute code, and tells what it touched for the first time."""
    folder = tmp_path_factory.mktemp("model")
    model = {"modelName": "p", "modelVersion": "1", "handler": "handler.py"}
    (folder / "MAR-INF").mkdir()
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": model}))
    (folder / "handler.py").write_text(EXECUTES)
    (folder / "packed.txt").write_text("x")
    with launch() as worker:
        assert worker.load(Load(model_dir=str(folder), trace=True)).touched == ()

        def execute(code: str) -> list[str]:
            outcome = predict(worker, one(textwrap.dedent(code)))
            assert not outcome.troubles, outcome.troubles
            return [f"{each.kind} {each.target}" for each in outcome.touched]

        yield execute


@pytest.fixture
def traced(make_folder) -> Traced:
    """Return a function that runs a handler's code and tells what it touched, as "stage kind target"."""

    def run(handle: str = "", *, top: str = "", initialize: str = "pass", batches: int = 1) -> list[str]:
        bodies = {"initialize": initialize, "handle": handle or "pass"}
        spelt = {name: textwrap.indent(textwrap.dedent(body), " " * 8) for name, body in bodies.items()}
        folder = make_folder(SOURCE.format(top=top, **spelt), files={"packed.txt": "x"})
        with launch() as worker:
            found = list(worker.load(Load(model_dir=str(folder), trace=True)).touched)
            for _ in range(batches):
                outcome = predict(worker, one("1"))
                assert not outcome.troubles or "dies" in handle, outcome.troubles
                found += outcome.touched
        return [f"{each.stage} {each.kind} {each.target}" for each in found]

    return run


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server on this machine."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"weights")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


ALLOWED = {
    "nothing": "pass",
    "its archive": "open('packed.txt').close(); os.listdir(); open('written.txt', 'w').close()",
    "packages": "import json.tool, PIL.ImageDraw, importlib.metadata as m; list(m.entry_points()); m.version('torch')",
    "torch": "import torch; torch.ones(2).relu(); torch.save(torch.ones(2), 't.pt'); torch.load('t.pt')",
    "devices": "open('/dev/urandom', 'rb').read(1); open('/dev/null', 'w').write('x'); os.urandom(2)",
    "the machine": "import platform; platform.platform(); open('/proc/cpuinfo').close(); os.listdir('/sys/devices')",
    "its own process": """
        open('/proc/self/status').read(); open(f'/proc/{os.getpid()}/maps').read(); open('/proc/self/environ').read()
        open('/proc/thread-self/comm').read(); os.listdir('/proc/self/task'); os.listdir('/proc')
        """,
    "its own extended attributes": "os.listxattr('packed.txt')",
    "a pair of sockets": "import socket; [each.close() for each in socket.socketpair()]",
    "time and language": "import zoneinfo, locale, mimetypes; zoneinfo.ZoneInfo('Europe/Berlin'); mimetypes.init()",
    "CA files": "import ssl; ssl.create_default_context(); import certifi; certifi.contents()",
    "libc": "import ctypes; ctypes.CDLL(None); ctypes.CDLL('libc.so.6'); ctypes.pythonapi",
    "a temporary folder": """
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/a")
            with open(folder + "/a/b", "w") as file:
                file.write("x")
            os.rename(folder + "/a/b", folder + "/a/c")
            assert open(folder + "/a/c").read() == "x" and os.listdir(folder + "/a") == ["c"]
        with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
            file.write(b"x")
            open(named.name).close()
        """,
    "a database of its own": """
        import sqlite3, tempfile
        sqlite3.connect(":memory:").close()
        sqlite3.connect("file::memory:?cache=shared", uri=True).close()
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                sqlite3.connect(folder + "/a.db").execute("create table if not exists a (b)").connection.close()
        """,
    "itself by name": "import socket; socket.getaddrinfo('localhost', 80); socket.gethostbyname('127.0.0.1')",
    "a descriptor": "read, write = os.pipe(); open(write, 'w').close(); open(read).close()",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_every_server_has_is_passed_over(executed: Told, what: str):
    assert executed(ALLOWED[what]) == []


NEEDS = {  # each of its own: a thing is told once
    "open('/etc/passwd').close()": ["read /etc/passwd"],
    "open(b'/etc/group').close()": ["read /etc/group"],
    "import pathlib; pathlib.Path('/etc/fstab').open()": ["read /etc/fstab"],
    "os.open('/nowhere/os', os.O_RDONLY)": ["read /nowhere/os"],
    "before = os.getcwd(); os.chdir('/usr')\ntry: open('none')\nfinally: os.chdir(before)": ["read /usr/none"],
    "os.symlink('/nowhere/link', 'here'); open('here')": ["read /nowhere/link"],
    "import json; open(os.path.dirname(json.__file__) + 10 * '/..' + '/nowhere/up')": ["read /nowhere/up"],
    "list(os.scandir('/opt')); os.listdir('/opt')": ["read /opt"],
    "open('/nowhere/w', 'w')": ["write /nowhere/w"],
    "open('/nowhere/r+', 'r+')": ["write /nowhere/r+", "read /nowhere/r+"],
    "open('/nowhere/a', 'a')": ["write /nowhere/a"],
    "open('/nowhere/__pycache__/x.bin', 'w')": ["write /nowhere/__pycache__/x.bin"],
    "os.mkdir('/nowhere/mkdir')": ["write /nowhere/mkdir"],
    "os.remove('/nowhere/remove')": ["write /nowhere/remove"],
    "os.rmdir('/nowhere/rmdir')": ["write /nowhere/rmdir"],
    "os.truncate('/nowhere/truncate', 0)": ["write /nowhere/truncate"],
    "os.rename('/nowhere/x', '/nowhere/y')": ["write /nowhere/x", "write /nowhere/y"],
    "os.link('/nowhere/source', 'target')": ["read /nowhere/source"],
    "os.symlink('x', '/nowhere/made')": ["write /nowhere/made"],
    "os.chmod('/nowhere/chmod', 1)": ["write /nowhere/chmod"],
    "os.utime('/nowhere/utime')": ["write /nowhere/utime"],
    "os.chown('/nowhere/chown', -1, -1)": ["write /nowhere/chown"],
    "os.lchown('/nowhere/lchown', -1, -1)": ["write /nowhere/lchown"],
    "os.setxattr('/nowhere/setxattr', 'user.a', b'')": ["write /nowhere/setxattr"],
    "os.removexattr('/nowhere/removexattr', 'user.a')": ["write /nowhere/removexattr"],
    "os.getxattr('/nowhere/getxattr', 'user.a')": ["read /nowhere/getxattr"],
    "os.listxattr('/nowhere/listxattr')": ["read /nowhere/listxattr"],
    "open('/proc/1/environ')": ["read /proc/1/environ"],
    "open(f'/proc/{os.getppid()}/mem', 'rb')": ["read /proc/PARENT/mem"],
    "open('/proc/1/task/1/cmdline')": ["read /proc/1/task/1/cmdline"],
    "os.listdir('/proc/1')": ["read /proc/1"],
    "import sqlite3; sqlite3.connect('/nowhere/x.db')": ["write /nowhere/x.db"],
    "import sqlite3; sqlite3.connect('file:/nowhere/y.db?mode=ro', uri=True)": ["write /nowhere/y.db"],
    "open(b'/nowhere/\\xff')": ["read /nowhere/\\udcff"],
    "import importlib.util as u; u.module_from_spec(u.spec_from_file_location('m', '/nowhere/m.so'))": [
        "read /nowhere/m.so"
    ],
    "os.system('true')": ["run sh -c true"],
    "import subprocess; subprocess.run(['true', '-x'])": ["run true"],
    "import subprocess; subprocess.run('true; true', shell=True)": ["run sh -c true; true"],
    "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)": ["run /bin/true"],
    "os.execv('/nowhere/exec', ['exec'])": ["run /nowhere/exec"],
    "os.spawnv(os.P_WAIT, '/nowhere/spawn', ['spawn'])": ["run fork"],
    "import ctypes; ctypes.CDLL('libz.so.1')": ["load libz.so.1"],
    "import ctypes; ctypes.CDLL('/nowhere/lib.so')": ["load /nowhere/lib.so"],
    "import socket; socket.socket().connect(('127.0.0.2', 1))": ["connect 127.0.0.2:1"],
    "import socket; socket.socket(socket.AF_INET6).connect(('::1', 1))": ["connect ::1:1"],
    "import socket; socket.socket(socket.AF_UNIX).connect('/run/none.sock')": ["connect /run/none.sock"],
    "import socket; socket.socket(socket.AF_UNIX).connect('\\0none')": ["connect @none"],
    "import socket; socket.socket(2, socket.SOCK_DGRAM).sendto(b'', ('127.0.0.2', 9))": ["connect 127.0.0.2:9"],
    "import socket; socket.create_server(('127.0.0.2', 0)).close()": ["listen 127.0.0.2:0"],
    "import socket; socket.socket(socket.AF_INET6).bind(('::1', 0))": ["listen ::1:0"],
    "import socket; socket.socket().listen()": ["listen 0.0.0.0:0"],
    "import socket; socket.socket(2, socket.SOCK_DGRAM).bind(('127.0.0.3', 0))": ["listen 127.0.0.3:0"],
    "import socket; socket.socket(socket.AF_UNIX).bind('/nowhere/listen.sock')": ["listen /nowhere/listen.sock"],
    "import socket; socket.socket(socket.AF_UNIX).bind('\\0bound')": ["listen @bound"],
    "import sys; sys.audit('os.rename', 1.5, 1.5, -1, -1)": ["unknown os.rename: TypeError"],
    "import socket; socket.gethostbyname('one.invalid')": ["resolve one.invalid"],
    "import socket; socket.getaddrinfo('two.invalid', 80)": ["resolve two.invalid"],
}


@pytest.mark.parametrize("code", NEEDS)
def test_what_lies_elsewhere_is_told(executed: Told, code: str):
    failing = f"try: exec({code!r})\nexcept Exception: pass"
    assert [re.sub(r"(?<=/proc/)(?!1/)\d+(?=/mem)", "PARENT", each) for each in executed(failing)] == NEEDS[code]


DOWNLOADS = {
    "import urllib.request; urllib.request.urlopen('http://localhost:{port}/x').read()": "localhost",
    "import torch; torch.hub.download_url_to_file('http://127.0.0.1:{port}/x', 'x.pt', progress=False)": "127.0.0.1",
    "import fsspec; fsspec.open('http://127.0.0.1:{port}/bucket/key').open().read()": "127.0.0.1",
}


@pytest.mark.parametrize("code", DOWNLOADS)
def test_a_download_is_told_by_the_name_that_was_asked_for(executed: Told, port: int, code: str):
    assert f"connect {DOWNLOADS[code]}:{port}" in executed(code.format(port=port))


def test_multiprocessing_is_told_whichever_way_it_starts_processes(traced: Traced):
    code = "import multiprocessing as m; p = m.get_context('spawn').Process(target=print); p.start(); p.join()"
    assert {each.split()[1] for each in traced(code)} == {"run"}


TEMPORARY = {  # of a file that was there before
    "open('{old}').close()": ["read"],
    "os.rename('{old}', '{old}x'); open('{old}x').close()": ["write"],
    "os.link('{old}', 'linked'); open('linked').close()": ["read"],
    "open('{old}', 'a').write('y'); open('{old}').close()": ["write"],
    "open('{old}', 'r+').close()": ["write", "read"],
    "os.chmod('{old}', 0o600); open('{old}').close()": ["write"],
    "open('{old}', 'w').write('y'); open('{old}').close()": [],
    "os.remove('{old}')": [],
}


@pytest.mark.parametrize(("number", "code"), list(enumerate(TEMPORARY)))
def test_of_the_temporary_folder_only_what_was_there_before_counts(executed: Told, old: Path, number: int, code: str):
    file = old / str(number)
    assert executed(code.format(old=file)) == [f"{kind} {file}" for kind in TEMPORARY[code]]
    database = old / "a.db"
    if not number:
        assert executed(f"import sqlite3; sqlite3.connect('{database}')") == [f"read {database}"]


def test_modules_from_elsewhere_are_told_and_their_bytecode_is_not(traced: Traced, tmp_path: Path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text("x = 1")
    time.sleep(0.05)
    top = f"import sys; sys.path.append({str(tmp_path / 'lib')!r}); import mine"
    assert [each for each in traced(top=top) if "pycache" not in each] == [f"import read {tmp_path}/lib/mine.py"]


def test_each_thing_is_told_once_a_stage(traced: Traced):
    code = "open('/etc/passwd').close()"
    found = traced(code, top=code, initialize=code, batches=3)
    assert found == [f"{stage} read /etc/passwd" for stage in ("import", "initialize", "handle")]


def test_threads_are_watched_between_the_batches_too(traced: Traced):
    initialize = """
        import threading
        self.go = threading.Event()
        def later():
            self.go.wait()
            open("/etc/passwd").close()
        self.thread = threading.Thread(target=later, daemon=True)
        self.thread.start()
        """
    assert traced("self.go.set(); self.thread.join()", initialize=initialize) == ["handle read /etc/passwd"]


@pytest.mark.parametrize(
    ("code", "start"),
    [("open('/etc/passwd').close(); raise SystemExit('dies')", "handle read /etc/passwd"),
     ("os._exit(3)  # dies", "handle unknown")],
)  # fmt: skip
def test_what_a_handler_touches_before_it_dies_is_told_and_of_one_that_is_gone_nothing(traced, code, start):
    (found,) = traced(code)
    assert found.startswith(start)


def test_too_much_is_never_nothing(traced: Traced):
    code = "for number in range(1100):\n    try: open(f'/nowhere/{number}')\n    except OSError: pass"
    found = traced(code)
    assert len(found) == 1001
    assert found[-1].startswith("handle unknown ")


def test_untraced_nothing_is_told(make_folder):
    folder = make_folder("def handle(data, context):\n    open('/etc/passwd').close()\n    return data")
    with launch() as worker:
        assert worker.load(Load(model_dir=str(folder))).touched == predict(worker, one("1")).touched == ()


def test_a_failure_to_load_tells_what_was_touched_before(make_folder):
    folder = make_folder("open('/etc/passwd').close()\nraise ValueError")
    with launch() as worker, pytest.raises(LoadError) as caught:
        worker.load(Load(model_dir=str(folder), trace=True))
    assert caught.value.touched == (Touched(Access.READ, "/etc/passwd", "import"),)
