import errno
import hashlib
import multiprocessing
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from project.read_back import contents

from marpack.archive.index import Index, index_digest
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.errors import BuildError, OutputExistsError, UnsafeArchiveError
from marpack.project.plan import Format, Plan, PlannedMember, Role, pack
from marpack.version import __version__

MakePlan = Callable[..., Plan]
FORMATS = [form for form in Format if form is not Format.SAGEMAKER]  # it leaves members out
ORDER = [
    "digits.pt",
    "assets/é/vocab.txt",
    "handler.py",
    "index_to_name.json",
    "MAR-INF/samples/seven.png",
    "MAR-INF/MANIFEST.json",
    "MAR-INF/marpack.json",
]
# What a process of its own does with `code`, the path `printed`, `output`, `weights` and `form`.
PROGRAM = """
import os, resource, sys
from pathlib import Path
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.errors import BuildError
from marpack.project.plan import Format, Plan, PlannedMember, Role, pack

plan = Plan(
    manifest=Manifest(model=ManifestModel(name="digits", handler="handler.py")),
    members=(PlannedMember("w.pt", Path(weights), Role.WEIGHTS), PlannedMember("handler.py", b"")),
    output=Path(output), format=Format(form), replace=True,
)
sys.stdout = open(printed, "w", buffering=1)
exec(code)
"""
PROCESSES = multiprocessing.get_context("forkserver")  # a fork costs a tenth of an interpreter's start
PROCESSES.set_forkserver_preload(["marpack.project.plan"])


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
TELL = """
try:
    pack(plan)
except BuildError as error:
    print(error.code, error.where, error.what, error.hint, sep="\\n")
"""


def start(code: str, printed: Path, output: Path, weights: Path, form: str) -> ForkServerProcess:
    """Start a process that runs code over a plan, and prints into a file."""
    values = {"code": code, "printed": str(printed), "output": str(output), "weights": str(weights), "form": str(form)}
    process = PROCESSES.Process(target=exec, args=(PROGRAM, values))
    process.start()
    return process


def run(code: str, printed: Path, output: Path, weights: Path, form: str = "default") -> list[str]:
    """Run code over a plan in a process of its own, and return the lines that it prints."""
    process = start(code, printed, output, weights, form)
    process.join(120)
    assert process.exitcode == 0
    return printed.read_text().splitlines()


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_holds_the_plan_and_what_describes_it(make_plan: MakePlan, sources: Path, form: Format) -> None:
    plan = make_plan(form)
    built = pack(plan)
    found = contents(built.path)
    assert sorted(found) == sorted(ORDER)
    for member in plan.members:
        assert found[member.name] == (member.source if isinstance(member.source, bytes) else member.source.read_bytes())
    assert Manifest.from_json(found["MAR-INF/MANIFEST.json"]) == plan.manifest
    size = sum(each.stat().st_size for each in (built.path, *built.path.rglob("*")) if each.is_file())
    assert (built.path, built.members, built.size) == (plan.output, 7, size)
    assert listing(built.path.parent) == [built.path.name]


def test_the_index_lists_every_other_member_and_its_sha256_is_the_digest(make_plan: MakePlan) -> None:
    built = pack(make_plan(samples=({"input": "seven.png"},), target="marpack"))
    found = contents(built.path)
    data = found.pop("MAR-INF/marpack.json")
    index = Index.from_json(data)
    assert [(each.name, each.size, each.sha256) for each in index.members] == [
        (name, len(found[name]), hashlib.sha256(found[name]).hexdigest()) for name in ORDER[:-1]
    ]
    assert built.content_digest == index_digest(data) == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert (index.samples, index.target) == (({"input": "seven.png"},), "marpack")
    assert index.provenance == {"builder": f"marpack {__version__}"}


def test_weights_come_first_on_a_page_and_the_index_at_the_end(make_plan: MakePlan) -> None:
    path = pack(make_plan()).path
    data = path.read_bytes()
    with zipfile.ZipFile(path) as zipped:
        assert zipped.namelist() == ORDER
        assert {each.compress_type for each in zipped.infolist()} == {zipfile.ZIP_STORED}
    assert data.index(bytes(range(256))) % 4096 == 0
    assert len(data) - data.index(b"handler.py") < 4096


def test_a_digest_is_that_of_the_content_whatever_the_form(make_plan: MakePlan) -> None:
    built = [pack(make_plan(form, replace=True)) for form in FORMATS]
    assert len({each.content_digest for each in built}) == 1
    assert FORMATS[:2] == [Format.DEFAULT, Format.ZIP_STORE]
    assert built[0].size == built[1].size


@pytest.mark.parametrize("form", [Format.DEFAULT, Format.TGZ])
def test_same_inputs_same_bytes_whatever_the_times_the_place_the_order_and_the_umask(
    make_plan: MakePlan, sources: Path, tmp_path: Path, form: Format
) -> None:
    first = pack(make_plan(form)).path.read_bytes()
    copy = tmp_path / "elsewhere"
    shutil.copytree(sources, copy)
    for each in copy.rglob("*"):
        os.utime(each, (1, 1))
        each.chmod(0o700)
    plan = make_plan(form, folder=copy, output=tmp_path / "another.name")
    umask = os.umask(0o077)
    try:
        second = pack(replace(plan, members=plan.members[::-1]))
    finally:
        os.umask(umask)
    assert second.path.read_bytes() == first


@given(
    files=st.dictionaries(
        st.text("abcxyz_.09é/", min_size=1, max_size=12).filter(
            lambda name: all(part.strip(".") for part in name.split("/"))
        ),
        st.tuples(st.binary(max_size=3000), st.sampled_from(Role), st.booleans()),
        max_size=6,
    )
)
def test_any_plan_is_read_back_the_same_in_every_form(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, Role, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    members = []
    for number, (name, (content, role, on_disk)) in enumerate(files.items()):
        path = folder / str(number)
        path.write_bytes(content)
        members.append(PlannedMember(name, path if on_disk else content, role))
    digests = set()
    for form, output in ((Format.DEFAULT, "a.mar"), (Format.TGZ, "a.tar.gz"), (Format.NO_ARCHIVE, "a")):
        plan = Plan(
            manifest=Manifest(model=ManifestModel(name="digits", handler="handler.py")),
            members=tuple(members),
            output=folder / output,
            format=form,
        )
        try:
            digests.add(pack(plan).content_digest)
        except UnsafeArchiveError:  # a file where another member needs a folder
            assert not plan.output.exists()
            return
        found = contents(plan.output)
        assert {name: found[name] for name in files} == {name: each[0] for name, each in files.items()}
        assert len(found) == len(files) + 2
    assert len(digests) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_progress_adds_up_to_the_plans_size(make_plan: MakePlan, form: Format) -> None:
    plan, steps = make_plan(form), []
    pack(plan, steps.append)
    assert sum(steps) == plan.size == 256 * 10_000 + 43 + 4 + 4 + 13
    assert max(steps) <= 1 << 20


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("change", ["grow", "shrink", "rewrite"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    make_plan: MakePlan, sources: Path, form: Format, change: str
) -> None:
    weights, plan = sources / "digits.pt", make_plan(form)

    def meanwhile(count: int) -> None:
        if change == "shrink":
            os.truncate(weights, 1 << 20)
        else:
            with weights.open("ab" if change == "grow" else "r+b") as file:
                file.write(b"x")

    with pytest.raises(BuildError) as caught:
        pack(plan, meanwhile)
    assert (caught.value.code, caught.value.where) == ("changed-file", str(weights))
    assert listing(plan.output.parent) == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "loop"])
def test_a_source_that_is_not_a_regular_file_is_named(
    make_plan: MakePlan, sources: Path, form: Format, kind: str
) -> None:
    plan, path = make_plan(form), sources / "handler.py"
    path.unlink()
    if kind != "missing":
        {"folder": path.mkdir, "fifo": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path)}[kind]()
    with pytest.raises(BuildError) as caught:
        pack(plan)
    assert caught.value.where == str(path)
    assert (caught.value.code == "unreadable-file") == (kind in {"missing", "loop"})
    assert listing(plan.output.parent) == []


UNREADABLE = Path("/sys/devices/software/power/autosuspend_delay_ms")  # opens, and fails when it is read


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs Linux's /sys")
def test_a_file_whose_bytes_cannot_be_read_is_named(make_plan: MakePlan) -> None:
    plan = make_plan(members=(PlannedMember("w.pt", UNREADABLE),))
    with pytest.raises(BuildError, match=os.strerror(errno.EIO)) as caught:
        pack(plan)
    assert (caught.value.code, caught.value.where) == ("unreadable-file", str(UNREADABLE))
    assert not plan.output.parent.exists()


def test_names_no_archive_may_hold_stop_everything(make_plan: MakePlan) -> None:
    for names in (["../x"], ["a", "a"], ["a", "A"], ["MAR-INF/MANIFEST.json"], ["mar-inf/x"], ["MAR-INF/marpack.json"]):
        plan = make_plan(members=tuple(PlannedMember(name, b"") for name in names))
        with pytest.raises(UnsafeArchiveError):
            pack(plan)
        assert listing(plan.output.parent) == []


def test_an_input_is_never_replaced_by_the_output(make_plan: MakePlan, sources: Path) -> None:
    with pytest.raises(OutputExistsError, match="would replace"):
        pack(make_plan(output=sources / "digits.pt", replace=True))
    (sources / "link.mar").symlink_to("handler.py")
    with pytest.raises(OutputExistsError, match="would replace"):
        pack(make_plan(output=sources / "link.mar", replace=True))
    (sources / "MAR-INF").mkdir()
    (sources / "MAR-INF/MANIFEST.json").touch()
    with pytest.raises(OutputExistsError, match="would replace"):
        pack(make_plan(Format.NO_ARCHIVE, output=sources, replace=True))
    assert (sources / "handler.py").read_text().startswith("def handle")


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_leaves_what_was_there(make_plan: MakePlan, sources: Path, tmp_path: Path, form: Format) -> None:
    before = contents(pack(make_plan(form)).path)
    output = make_plan(form).output
    (sources / "digits.pt").write_bytes(os.urandom(3_000_000))
    code, where, what, hint = run(LIMIT + TELL, tmp_path / "printed", output, sources / "digits.pt", form)
    assert " 3.0 MB" in hint
    assert (code, where) == ("unwritable-output", str(output))
    assert os.strerror(errno.EFBIG) in what
    assert contents(output) == before
    assert listing(output.parent) == [output.name]


@pytest.mark.parametrize("form", FORMATS)
def test_builds_of_one_target_at_once_all_end_whole(
    make_plan: MakePlan, sources: Path, tmp_path: Path, form: Format
) -> None:
    output = make_plan(form).output
    loop = "for _ in range(5):\n    pack(plan)"
    processes = [start(loop, tmp_path / "printed", output, sources / "digits.pt", form) for _ in range(3)]
    for process in processes:
        process.join(60)
    codes = [process.exitcode for process in processes]
    assert 0 in codes
    assert form is Format.NO_ARCHIVE or codes == [0, 0, 0]  # of builds of one folder, some may fail
    assert listing(output.parent) == [output.name]
    assert contents(output)["w.pt"] == (sources / "digits.pt").read_bytes()
    assert len(contents(output)) == 4


PEAK = "pack(plan)\nprint(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"  # KiB


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from Linux's /proc")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.slow
def test_memory_is_flat_whatever_the_size(tmp_path: Path, form: Format) -> None:
    peaks = []
    for size in (64 << 20, 1 << 30):
        with (tmp_path / "w.pt").open("wb") as file:
            file.truncate(size)
        (peak,) = run(PEAK, tmp_path / "printed", tmp_path / "out", tmp_path / "w.pt", form)
        peaks.append(int(peak) / 1024)
    assert max(peaks) < 60
    assert peaks[1] - peaks[0] < 3
