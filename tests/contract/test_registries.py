"""A KV format is one codec file and an entry, a backend is one folder: toys of both work in a copy of the tree."""

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_agent.backends.registry import UnknownBackend, backend_entry
from engine_agent.backends.vllm.formats import VLLM_FORMATS
from kernels.formats import BASELINE, FLOOR, KV_FORMATS, OFFERED
from tests.engines.processes import engine, state_folder
from tests.toys.tree import CHECKOUT, Tree

TOYS = CHECKOUT / "tests" / "toys"
FORMAT = "toy8"
VECTOR = 'TOY8 = VectorFormat("toy8", bits=8, header_bytes=4, codec="toy8")\n'
ENTRY = '        KvFormat("toy8", TOY8, TOY8, is_offered=True, hint="a toy"),\n'
ABOVE = {  # what they stand above
    VECTOR: 'INT2 = VectorFormat("int2"',
    ENTRY: '        KvFormat("int2", INT2, INT2)',
}
SOURCE = ("controlplane", "engine_agent", "kernels", "tenants", "templates")
MOST_TYPED_AGAIN = (
    5  # of the names that policies know, in one literal: a choice, such as the demo's, and no list of all
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """With the toy format."""
    made = Tree.copied(tmp_path_factory.mktemp("tree"))
    shutil.copy(TOYS / "format" / "toy8.py", made.folder / "kernels" / "codecs")
    for line, below in ABOVE.items():
        made.insert("kernels/formats.py", line, before=below)
    return made


@pytest.fixture(scope="module")
def known(tree: Tree) -> dict[str, Any]:
    """What that tree makes of it."""
    found: dict[str, Any] = json.loads(tree.python("-m", "tests.toys.format.looking", FORMAT))
    assert found["kernels"]["folder"] == str(tree.folder)
    return found


def test_toy_format_touches_two_files(tree: Tree) -> None:
    assert tree.changed() == ["kernels/codecs/toy8.py", "kernels/formats.py"]


def test_toy_format_round_trips(known: dict[str, Any]) -> None:
    assert 0 < known["kernels"]["round_trip"] < 0.01
    assert 0 < known["kernels"]["attention"] < 0.01


def test_toy_format_is_a_policy_value(known: dict[str, Any]) -> None:
    assert known["policy"] == {"kv_dtype": FORMAT, "request_kv_dtypes": [FORMAT]}
    assert known["schema"] == known["bounds"] == [*OFFERED, FORMAT]
    assert known["own_bounds"] == {"kv_dtype": {"allowed": [FORMAT]}}
    assert known["agent"] == [FORMAT]


def test_toy_format_is_a_choice_on_pages(known: dict[str, Any]) -> None:
    assert known["choices"] == known["calculator_form"] == [*OFFERED, FORMAT]
    assert known["hint"] == "a toy"
    assert f'value="{FORMAT}"' in known["bounds_form"]


def test_toy_format_is_calculated(known: dict[str, Any]) -> None:
    assert known["bytes_per_token"][FORMAT] == 32 * 8 * 2 * (128 + 4)  # layers, heads, key and value


def test_toy_format_is_simulated_and_gated(known: dict[str, Any]) -> None:
    assert known["simulated"] == [*OFFERED, FORMAT]
    assert "loosest" in known["gate"]


def test_toy_format_serves_a_request(tree: Tree, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"kv_dtype": FORMAT}), encoding="utf-8")
    with (
        state_folder() as state,
        engine("--policy", str(policy), state=state, folder=tree.folder, environment=tree.environment) as running,
    ):
        prompt = "The quick brown fox jumps over the lazy dog. " * 4
        first, again = (running.complete(prompt) for _ in range(2))
    assert (first.status, again.status) == (200, 200), first.body
    assert first.headers["x-luminet-kv-dtype"] == FORMAT
    assert first.json["choices"] == again.json["choices"]
    assert float(again.headers["x-luminet-cache-hit"]) > 50


# Backends

SERVED = "import json; from engine_agent.backends.registry import *; print(json.dumps({}))"


@pytest.fixture(scope="module")
def tree_with_backend(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    made = Tree.copied(tmp_path_factory.mktemp("tree"))
    toy = made.folder / "engine_agent" / "backends" / "toy"
    shutil.copytree(TOYS / "backend" / "toy", toy, ignore=shutil.ignore_patterns("__pycache__"))
    return made


def test_toy_backend_touches_one_folder(tree_with_backend: Tree) -> None:
    folder = "engine_agent/backends/toy"
    assert tree_with_backend.changed() == [f"{folder}/__init__.py", f"{folder}/entry.py"]


def test_toy_backend_serves_a_request(tree_with_backend: Tree) -> None:
    with (
        state_folder() as state,
        engine(
            "--backend", "toy", state=state, folder=tree_with_backend.folder, environment=tree_with_backend.environment
        ) as running,
    ):
        answer = running.complete("The quick brown fox")
        card = running.admin("GET", "/stats").json["model"]
    assert answer.status == 200, answer.body
    assert answer.json["usage"]["completion_tokens"] > 0
    assert (card["backend"], card["backend_version"]) == ("toy", "1")
    assert any("unpacking the toy" in line for line in running.logged)


def test_toy_backend_is_offered_by_commands(tree_with_backend: Tree) -> None:
    asked = "(backend_names(), measured_as('toy', has_accelerator=True))"
    assert json.loads(tree_with_backend.python("-c", SERVED.format(asked))) == [["paged", "toy", "vllm"], "toy-gpu"]
    code = (
        "import os; from controlplane.stack.config import read_stack_config as read; print(read(os.environ).backends)"
    )
    environment = {"LUMINET_BACKENDS": "paged,toy"}
    assert tree_with_backend.python("-c", code, **environment).strip() == "('paged', 'toy')"


def test_packages_backend_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """As pip installs it: a module, and beside it what it is called."""
    package = tmp_path / "somebodys_backend"
    shutil.copytree(TOYS / "backend" / "toy", package, ignore=shutil.ignore_patterns("__pycache__"))
    about = tmp_path / "somebodys_backend-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-backend\nVersion: 1\n", encoding="utf-8")
    points = (
        "[luminet.backends]\nsomebodys = somebodys_backend.entry:BACKEND\npaged = somebodys_backend.entry:BACKEND\n"
    )
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    asked = (
        "(backend_names(), backend_entry('somebodys').open.__module__, backend_entry('paged').open.__module__, "
        "measured_as('unheard_of', has_accelerator=False))"
    )
    found = json.loads(Tree(CHECKOUT).python("-c", SERVED.format(asked), PYTHONPATH=f"{CHECKOUT}:{tmp_path}"))
    assert found == [
        ["paged", "vllm", "somebodys"],
        "somebodys_backend.entry",
        "engine_agent.backends.paged.entry",
        "unheard_of",
    ]


def test_unknown_backend_names_those_there_are() -> None:
    with pytest.raises(UnknownBackend, match="'abacus' is not a backend\\. Use one of: paged, vllm"):
        backend_entry("abacus")


# The list of formats


def literals(tree: ast.AST) -> Iterator[set[object]]:
    """The constants in each tuple, list and set, and the keys of each dictionary."""
    for node in ast.walk(tree):
        elements = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
        yield {one.value for one in elements if isinstance(one, ast.Constant)}


def test_formats_are_listed_in_the_registry_alone() -> None:
    exempt = {CHECKOUT / "kernels" / "formats.py", CHECKOUT / "engine_agent" / "backends" / "vllm" / "formats.py"}
    paths = {path for part in SOURCE for path in (CHECKOUT / part).rglob("*.py")} - exempt
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    lists = [
        path
        for path, text in texts.items()
        if sum(name in text for name in OFFERED) > MOST_TYPED_AGAIN  # parsing takes long
        for values in literals(ast.parse(text))
        if len(values & {*OFFERED}) > MOST_TYPED_AGAIN
    ]
    assert lists == []


def test_vllms_formats_are_in_the_registry() -> None:
    assert VLLM_FORMATS.keys() <= {*OFFERED}


def test_every_offered_format_has_a_hint_and_a_gate() -> None:
    assert [name for name in OFFERED if not KV_FORMATS[name].hint or KV_FORMATS[name].gate is None] == []
    assert {BASELINE, *FLOOR} <= KV_FORMATS.keys()
