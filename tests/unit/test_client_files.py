import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.client import checks, files
from controlplane.client.errors import ClientError
from controlplane.client.files import document_dump, document_load


def load(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "f.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return document_load(str(path))


def complaint(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(ClientError) as caught:
        load(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path}/f.yaml:").strip()


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def _both_loaders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(files, "_Loader", yaml.SafeLoader)


def test_yaml_and_json_mean_the_same(tmp_path: Path) -> None:
    wanted = {"version": 1, "organisations": {"acme": None}}
    assert load(tmp_path, "version: 1\norganisations:\n  acme:\n") == wanted
    assert load(tmp_path, "{version: 1, organisations: {acme: }}") == wanted
    assert load(tmp_path, '{"version":1,\n\t"organisations":{"acme":null}}') == wanted
    assert load(tmp_path, b"\xef\xbb\xbfversion: 1\norganisations: {acme: }\n") == wanted


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"version: 1")))
    assert document_load("-") == {"version": 1}


def test_anchors_and_merges_are_understood(tmp_path: Path) -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\n"
    assert load(tmp_path, text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: 'a' is given again; it was on line 1 already"),
        ("x:\n  - {k: 1, k: 2}", "line 2, column 12: 'k' is given again"),
        ('{"a": 1, "a": 2}', "'a' is given more than once"),
        ("no: 1", "line 1, column 1: no as a name is read as a bool; write it in quotes"),
        ("a:\n  2024: 1", "line 2, column 3: 2024 as a name is read as a int; write it in quotes"),
        ("a: 2026-01-01", "2026-01-01 is read as a timestamp here; write it in quotes if it is text"),
        ("a: !!python/object/apply:os.system [ls]", "line 1, column 4: a collection is read as"),
        ("a: !mine x", "x is read as"),
        ("a: [1", "line"),
        ("a: b: c", "line 1, column 5:"),
        ("a: 1\n---\nb: 2", "line 2, column 1:"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        (b"a: \xff", "is not UTF-8 at byte 3"),
        ("a: \x00", ""),
        ("a: !!bool x", "cannot be read"),
        ("a: !!int ''", "cannot be read"),
        ("&a [*a]", "line 1, column 1: is nested more than 30 levels deep, or contains itself"),
        ("a: " + "[" * 100 + "]" * 100, "is nested more than 30 levels deep"),
        ("? [a]\n: 1", "a collection as a name is read as a seq"),
    ],
)
def test_what_could_mean_two_things_is_refused_with_its_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in complaint(tmp_path, text)


DEEP = {
    "lists": "[" * 200_000,
    "mappings": "{a: " * 100_000,
    "blocks": "- " * 200_000,
    "names": "? " * 100_000,
    "json": '{"a":' + "[" * 200_000,
    "json that is whole": '{"a":' + "[" * 900 + "]" * 900 + "}",
    "aliases of aliases": "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000)),
    "merges of merges": "a0: &a0 {}\n" + "".join(f"a{n}: &a{n}\n  <<: *a{n - 1}\n" for n in range(1, 900)),
}


REFUSED_IN_TURN = """
import sys, yaml
from controlplane.client import errors, files
files._Loader = getattr(yaml, sys.argv[1])
for path in sys.argv[2:]:
    try:
        files.document_load(path)
    except errors.ClientError as error:
        print(error, flush=True)
"""


def test_depth_is_refused_before_anything_recurses(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """In a process of its own, one for all files: libyaml ends the one that composes such a file."""
    for kind, text in DEEP.items():
        (tmp_path / kind).write_text(text)
    paths = [str(tmp_path / kind) for kind in DEEP]
    arguments = [sys.executable, "-c", REFUSED_IN_TURN, files._Loader.__name__, *paths]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    for kind, path in zip(DEEP, paths, strict=True):
        with subtests.test(msg=kind):
            (refusal,) = [line for line in done.stdout.splitlines() if line.startswith(f"{path}:")]
            assert "is nested more than 30 levels deep" in refusal
    assert done.returncode == 0, done.stderr[-300:]


def test_thirty_levels_are_not_too_many(tmp_path: Path) -> None:
    for levels, is_fine in ((30, True), (31, False)):
        for text in ("[" * levels + "]" * levels, '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"):
            if is_fine:
                load(tmp_path, text)
            else:
                assert "is nested" in complaint(tmp_path, text)


def test_aliases_that_multiply_are_refused_before_they_do(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "once its aliases are written out" in complaint(tmp_path, "\n".join(lines))


def test_aliases_of_a_long_text_are_weighed(tmp_path: Path) -> None:
    text = "a: &a " + "x" * 100_000 + "\nb: [{}]"
    assert len(load(tmp_path, text.replace("{}", "*a," * 80))["b"]) == 80
    assert "8388608 bytes once its aliases are written out" in complaint(tmp_path, text.replace("{}", "*a," * 90))


def test_many_values_are_refused_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST_VALUES", 1000)
    for text in ("[" + "a," * 1001 + "]", "a: &a x\nb: [" + "*a," * 1000 + "]"):
        assert "values or 8388608 bytes" in complaint(tmp_path, text)


@pytest.mark.parametrize("number", ["1" + ":1" * 500_000, "1" + ":1" * 2000 + ".5", "9" * 5000, "0x" + "1" * 5000])
def test_numbers_that_take_long_to_read_are_not_read(tmp_path: Path, number: str) -> None:
    assert "is too long for a number" in complaint(tmp_path, f"a: {number}")
    assert load(tmp_path, f"a: '{number}'") == {"a": number}


def test_tags_of_ones_own_are_not_collected(tmp_path: Path) -> None:
    assert "%TAG means nothing here" in complaint(tmp_path, "%TAG !a! b\n" * 3 + "--- a")


def test_a_name_given_twice_among_very_many_is_found_at_once(tmp_path: Path) -> None:
    text = "{" + ",".join(f'"{n}":1' for n in range(100_000)) + ',"99999":1}'
    assert "'99999' is given more than once" in complaint(tmp_path, text)


def test_a_file_that_is_too_large_or_not_there_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 10)
    assert "is larger than 10 bytes" in complaint(tmp_path, "a: 12345678")
    with pytest.raises(ClientError, match="No such file"):
        document_load(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ClientError, match="directory"):
        document_load(str(tmp_path))


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=10,
    )
)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    text = document_dump({"v": value})
    assert files._yaml(text, "f") == {"v": value}


def test_a_dump_keeps_the_order_and_quotes_what_would_be_misread() -> None:
    assert document_dump({"version": 1, "organisations": {"no": {}, "1": None}}) == (
        "version: 1\norganisations:\n  'no': {}\n  '1': null\n"
    )


def test_a_dump_says_nothing_to_the_terminal_itself() -> None:
    document = {"name": "Zoë \x85\x9b2J\u202e", "more": "ü"}
    text = document_dump(document)
    assert text.replace("\n", "").isprintable()
    assert yaml.safe_load(text) == document
    assert document_dump({"name": "Zoë"}) == "name: Zoë\n"
