import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cli.running import marpack, results
from command import command
from workers import runs

HANDLER = textwrap.dedent(
    """
    import os, shutil, time
    def handle(data, context):
        if data is None:
            print("ready"); return
        print("rows", len(data))
        return [answer(row, context, index) for index, row in enumerate(data)]

    def answer(row, context, index):
        body = row.get("body", row.get("data"))
        if body == "raise": return {}["gone"]
        if body == "exit": os._exit(1)
        if body == "removes":
            shutil.rmtree(os.getcwd())
            os._exit(1)
        if body == "sleep": time.sleep(60)
        if body == "pid": return str(os.getpid())
        if body == "raw": return b"\\x00\\xff"
        context.set_response_content_type(index, "application/json")
        return {"type": type(body).__name__, "text": str(body), "x": context.get_request_header(index, "X")}
    """
)


@pytest.fixture
def mar(make_mar) -> str:
    return str(make_mar(HANDLER))


COUNTER = """
import os
def handle(data, context):
    if data is None:
        return
    with open("counter", "a") as file:
        file.write("x")
    if data[0]["body"] == "exit":
        os._exit(1)
    return [str(os.path.getsize("counter"))]
"""


def test_each_run_begins_with_what_is_packed_and_a_worker_finds_what_the_one_before_it_wrote(make_mar):
    path = str(make_mar(COUNTER))
    for _ in range(2):
        found = results(path, "--data", "a", "--data", "exit", "--data", "a", code=1)
        assert [item["body"] for item in found if item["status"] == 200] == ["1", "3"]


def test_broken_json_is_sent_as_text_and_that_is_said(mar: str):
    done = marpack("run", mar, "--data", '{"a": 1', "--data", "plain")
    assert done.stderr.count("(data-as-text)") == 1


def test_json_tells_everything(mar: str):
    report = json.loads(marpack("run", mar, "--data", '{"a": 1}', "-H", "X=y", "--json").stdout)
    assert report["target"] == "torchserve"
    assert report["load_logs"] == "ready\n"
    (item,) = report["results"]
    assert json.loads(item["body"]) == {"type": "dict", "text": "{'a': 1}", "x": "y"}
    assert (item["status"], item["content_type"], item["body_encoding"]) == (200, "application/json", "text")
    assert item["logs"] == "rows 1\n"
    assert item["metrics"][0].startswith("PredictionTime.Milliseconds:")
    assert report["summary"]["inputs"] == 1


def test_one_bad_input_never_costs_the_others(mar: str):
    words = ["a", "raise", "b", "exit", "c", "removes", "d"]
    told = results(mar, *[word for text in words for word in ("--data", text)], code=1)
    assert [item["status"] for item in told] == [200, 503, 200, 500, 200, 500, 200]
    assert told[1]["troubles"][0]["kind"] == "KeyError"
    assert told[3]["restarted"]


def test_a_name_that_is_not_utf8_is_told_in_letters_that_are(mar: str, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in (b"a.txt", b"b\xff.txt", b"c.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x")
    names = [f"{folder}/{name}" for name in ("a.txt", "b\\udcff.txt", "c.txt")]
    for answered in (3, 0):  # the second time, the log holds them all
        lines = marpack("run", mar, "--input", str(folder), "--jsonl", "--resume", str(tmp_path / "r.jsonl")).stdout
        assert [json.loads(line)["input"] for line in lines.splitlines()] == names[:answered]
    assert [json.loads(line)["input"] for line in (tmp_path / "r.jsonl").read_text().splitlines()] == names


def test_what_was_typed_is_sent_byte_for_byte(mar: str):
    (item,) = results(mar, "--data", os.fsdecode(b"\xff"))
    assert json.loads(item["body"])["text"] == str(bytearray(b"\xff"))
    (item,) = results(mar, "--form", os.fsdecode(b"data=\xff"))
    assert json.loads(item["body"])["text"] == str(bytearray(b"\xff"))


def test_a_model_folder_whose_name_is_not_utf8_is_said(make_folder, tmp_path: Path):
    folder = make_folder(HANDLER).rename(tmp_path / "m\udcff")
    done = marpack("run", str(folder), "--data", "a", "--json", code=4)
    assert "not UTF-8" in done.stderr


def test_a_form_is_one_request_and_stdin_an_input(mar: str, tmp_path: Path):
    (form,) = results(mar, "--form", "data=v", "--form", "k=w")
    assert json.loads(form["body"])["type"] == "bytearray"
    (piped,) = results(mar, "--input", "-", "--content-type", "text/plain", stdin="from a pipe")
    assert json.loads(piped["body"])["text"] == "from a pipe"


def test_fail_fast_stops_at_the_first_that_falls_short(mar: str):
    assert len(results(mar, "--data", "raise", "--data", "a", "--fail-fast", code=1)) == 1


def test_a_timeout_costs_its_input(mar: str):
    told = results(mar, "--data", "sleep", "--data", "a", "--timeout", "1", code=1)
    assert [item["status"] for item in told] == [500, 200]


def test_the_handlers_prints_are_shown_on_demand(mar: str):
    assert "│ rows 1" in marpack("run", mar, "--data", "a", "--logs").stdout
    assert "│ rows 1" not in marpack("run", mar, "--data", "a").stdout


def test_a_handler_that_does_not_load_is_exit_4(make_mar):
    path = str(make_mar("def handle(data, context):\n    raise OSError('no disk')\n"))
    trouble = json.loads(marpack("run", path, "--data", "x", "--json", code=4).stdout)["trouble"]
    assert (trouble["kind"], trouble["message"]) == ("OSError", "no disk")


USAGE = [
    "--input",
    "--requests nowhere.jsonl",
    "--form novalue",
    "--data x --requests r",
    "--data x --json --jsonl",
    "--data x --header XZ\x00:y",
    "--data x --device cuda:77",
    "--data x --max-memory lots",
    "--data x --timeout 0",
    "--data x --content-type \udcff",
    "--data x --in-process --env isolated",
    "--data x --watch --json",
    "--data x --repeat 2 --output out",
    "--data x --warmup 2",
    "--data x --report -",
    "--data x --unpacked",
]


@pytest.mark.parametrize("words", USAGE)
def test_wrong_usage_names_the_option_or_its_value(mar: str, tmp_path: Path, words: str):
    done = marpack("run", mar, *words.split(), cwd=tmp_path, code=2)
    named = re.findall(r"\w[\w.]+", words.replace("--data x", "").encode("unicode_escape").decode())
    assert any(word in done.stderr for word in named)
    assert done.stdout == "" or "--json" in words
    assert list(tmp_path.iterdir()) == [Path(mar)]


LARGE = 6_553_501  # bytes: one more than the server's default settings let through


def test_a_request_larger_than_the_server_takes_is_its_413(make_mar, tmp_path: Path):
    mar = str(make_mar("def handle(data, context):\n    return [str(len(row['body'])) for row in data or []]"))
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(LARGE)
    (told,) = results(mar, "--input", "large.bin", cwd=tmp_path, code=1)
    assert (told["status"], told["body"], told["troubles"][0]["kind"]) == (413, "", "request-too-large")
    assert "--max-request-size" in told["troubles"][0]["hint"]
    (told,) = results(mar, "--input", "large.bin", "--max-request-size", "7M", cwd=tmp_path)
    assert (told["status"], told["body"]) == (200, str(LARGE))


def test_an_answer_larger_than_the_server_takes_costs_its_worker_and_its_batch(make_mar):
    mar = str(make_mar("def handle(data, context):\n    return [b'x' * row['body'] for row in data or []]"))
    words = ["--data", "3", "--data", str(LARGE), "--data", "4", "--batch-size", "2"]
    told = results(mar, *words, code=1)
    assert [item["status"] for item in told] == [500, 500, 200]
    assert told[1]["troubles"][0]["kind"] == "answer-too-large"
    assert [item["status"] for item in results(mar, *words, "--max-response-size", "7M")] == [200, 200, 200]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_keeps_what_is_answered_and_leaves_no_process(mar: str, sign: signal.Signals):
    words = command("run", mar, "--data", "pid", "--data", "sleep", "--jsonl")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        start = time.monotonic()
        process.send_signal(sign)
        assert process.wait(60) == 130
        assert time.monotonic() - start < 50  # the handler sleeps for 60
    assert not runs(int(answer["body"]))


# The main thread waits: one that has ended would be a Python on its way out, where no further thread begins.
IN_A_THREAD = """
import sys, threading, marpack
thread = threading.Thread(target=lambda: marpack.load(sys.argv[1]).predict())
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends a process with its parent")
def test_a_worker_ends_with_a_process_that_is_killed_whatever_it_is_at(make_mar, tmp_path: Path):
    place = tmp_path / "pid"
    endless = f"""
        import os, time
        def handle(data, context):
            if data is None: return
            with open({str(place)!r} + "~", "w") as file: file.write(str(os.getpid()))
            os.rename({str(place)!r} + "~", {str(place)!r})
            until = time.monotonic() + 90
            while time.monotonic() < until: pass
    """
    mar = str(make_mar(textwrap.dedent(endless)))
    with subprocess.Popen([sys.executable, "-c", IN_A_THREAD, mar], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not place.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.kill()
    while runs(int(place.read_text())):
        assert time.monotonic() < until, "the worker is still alive"
        time.sleep(0.05)


def test_an_envelope_is_the_servers_setting_not_the_manifests(make_mar):
    mar = str(make_mar("def handle(data, context):\n    return data if data else None\n", envelope="body"))
    (plain,) = results(mar, "--data", "x")
    assert json.loads(plain["body"]) == {"body": "x"}
    (enveloped,) = results(mar, "--data", "x", "--envelope", "body")
    assert enveloped["body"] == "x"
    (ours,) = results(mar, "--data", "x", "--target", "marpack")
    assert ours["body"] == "x"


def test_a_handlers_message_cannot_steer_the_terminal(make_mar):
    source = "def handle(data, context):\n    if data: raise ValueError('\\x1b[31mred\\x07 [bold]x[/]')\n"
    done = marpack("run", str(make_mar(source)), "--data", "x", code=1)
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "[bold]x[/]" in done.stdout


def test_what_reads_stdin_fails_at_once_and_says_why(make_mar):
    mar = str(make_mar("def handle(data, context):\n    return data and [input()]\n"))
    (told,) = results(mar, "--data", "x", code=1)
    assert (told["status"], told["troubles"][0]["kind"]) == (500, "stdin")
    assert "--pdb" in told["troubles"][0]["hint"]
