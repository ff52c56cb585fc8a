import pytest
from inspection.test_inspect import BOMB
from invoking import invoke

HANDLER = "def handle(data, context):\n    return data\n"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("config", "labels", "words"),
    [
        (BOMB, '{"0": "a"}', "aliases"),
        ("a: !!python/object/apply:os.system ['id']\n", '{"0": "a"}', "tag"),
        ("a: !x\n", '{"0": "a"}', "tag"),
        ("a: 1\n", "[1, 2]", "labels"),
        ("a: 1\n", "[" * 100_000, "labels"),
    ],
)
def test_hostile_texts_are_exit_3_and_one_sentence(make_mar, config: str, labels: str, words: str, as_json: bool):
    mar = make_mar(HANDLER, files={"c.yaml": config, "index_to_name.json": labels}, configFile="c.yaml")
    assert words in invoke("inspect", str(mar), *(["--json"] if as_json else []), code=3).stdout


@pytest.mark.parametrize("config", ["a: 1\n", "a: &x [1]\nb: *x\n", "a: 'it! is & fine*'\n"])
def test_harmless_texts_are_no_finding(make_mar, config: str):
    mar = make_mar(HANDLER, files={"c.yaml": config, "index_to_name.json": '{"0": ["n1", "a"]}'}, configFile="c.yaml")
    invoke("inspect", str(mar))
