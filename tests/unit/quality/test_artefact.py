"""What other programs believe: it comes back as it was saved, and nothing else does."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality.artefact import SCHEMA, Artefact, _digest, load_artefact, save_artefact
from tests.unit.quality.making import make_artefact, make_measurement

CHECKOUT = Path(__file__).parents[3]
BACKEND = "torch-cpu"
FILE = "quality-torch-cpu.json"


def changed(folder: Path, **fields: Any) -> None:
    """Change fields, and the digest with them: as one who knows how would."""
    content = json.loads((folder / FILE).read_text())
    del content["digest"]
    content = {name: value for name, value in (content | fields).items() if value is not ...}
    (folder / FILE).write_text(json.dumps(content | {"digest": _digest(content)}))


def test_an_artefact_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    artefact = make_artefact(make_measurement(), make_measurement("int4", scale_set="c" * 64, verdict="failed"))
    path = save_artefact(artefact, tmp_path)
    assert path == tmp_path / FILE
    assert load_artefact(tmp_path, backend=BACKEND, model_revision="a" * 64) == artefact
    assert json.loads(path.read_text())["schema"] == SCHEMA


def test_a_run_of_the_suite_comes_back_as_it_was_saved(artefact: Artefact, tmp_path: Path) -> None:
    save_artefact(artefact, tmp_path)
    assert load_artefact(tmp_path, backend=BACKEND, model_revision=artefact.model_revision) == artefact


def test_another_models_artefact_is_refused(tmp_path: Path) -> None:
    save_artefact(make_artefact(), tmp_path)
    with pytest.raises(ToolError, match="model_revision: expected other, found aaaa"):
        load_artefact(tmp_path, backend=BACKEND, model_revision="other")


@pytest.mark.parametrize(
    ("old", "new"), [('"passed"', '"failed"'), ("0.01", "0.02"), ('"int8"', '"int4"'), ("true", "false")]
)
def test_a_figure_changed_by_hand_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    path = save_artefact(make_artefact(), tmp_path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ToolError, match="digest: does not fit"):
        load_artefact(tmp_path, backend=BACKEND)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ToolError, match="is no JSON"):
        load_artefact(tmp_path, backend=BACKEND)


MEASURED = json.loads(json.dumps({"kv_format": "int8"}))
BAD: list[tuple[dict[str, Any], str]] = [
    ({"schema": "luminet/quality/2"}, "schema: is not luminet/quality/1"),
    ({"documents": ...}, "documents: is missing"),
    ({"documents": "30"}, "documents: '30' is no int"),
    ({"documents": True}, "documents: True is no int"),
    ({"is_quick": 0}, "is_quick: 0 is no bool"),
    ({"seconds": None}, "seconds: None is no float"),
    ({"versions": {"torch": 2}}, r"versions\.torch: 2 is no str"),
    ({"more": 1}, "more: is no field of"),
    ({"measurements": {}}, r"measurements: \{\} is no list"),
    ({"measurements": [MEASURED]}, r"measurements\[0\]\.scale_set: is missing"),
    ({"measurements": [3]}, r"measurements\[0\]: 3 is no dict"),
]


@pytest.mark.parametrize(("fields", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_is_no_artefact_is_refused_by_field(fields: dict[str, Any], problem: str, tmp_path: Path) -> None:
    save_artefact(make_artefact(), tmp_path)
    changed(tmp_path, **fields)
    with pytest.raises(ToolError, match=problem):
        load_artefact(tmp_path, backend=BACKEND)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("verdict",), "perfect", r"measurements\[0\]\.verdict: 'perfect' is none of passed, failed, unresolved"),
        (("needle", "0.9"), "all", r"needle\.0\.9: 'all' is no float"),
        (("findings",), "fine", r"measurements\[0\].findings: 'fine' is no list"),
        (("findings",), [3], r"findings: 3 is no str"),
        (("axes", "plain"), {}, r"axes\.plain\.perplexity: is missing"),
        (("axes", "plain", "agreement"), "1", r"axes\.plain\.agreement: '1' is no float"),
    ],
)
def test_what_is_no_measurement_is_refused_by_field(
    path: tuple[str, ...], value: object, problem: str, tmp_path: Path
) -> None:
    saved = save_artefact(make_artefact(), tmp_path)
    rows = json.loads(saved.read_text())["measurements"]
    place = rows[0]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    changed(tmp_path, measurements=rows)
    with pytest.raises(ToolError, match=problem):
        load_artefact(tmp_path, backend=BACKEND)


def test_only_what_passed_may_serve() -> None:
    calibrated = make_measurement("int4", scale_set="c" * 64)
    artefact = make_artefact(
        make_measurement("int4", verdict="unresolved"), calibrated, make_measurement("fp8", verdict="failed")
    )
    assert artefact.may_serve("int4", "c" * 64)
    assert not artefact.may_serve("int4")
    assert not artefact.may_serve("int4", "d" * 64)
    assert not artefact.may_serve("fp8")
    assert not artefact.may_serve("int8")
    assert artefact.of("int4", "c" * 64) == calibrated


def test_a_blind_run_and_a_quick_one_let_nothing_through() -> None:
    assert make_artefact().may_serve("int8")
    assert not make_artefact(is_control_rejected=False).may_serve("int8")
    assert not make_artefact(is_quick=True).may_serve("int8")


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_where_pages_are_not_exact_nothing_may_serve(name: str) -> None:
    """int8 is compared with bf16 through the same pages: what is wrong with both shows in the floor alone."""
    other = next(one for one in ("fp32", "bf16") if one != name)
    measurements = [make_measurement("int8"), make_measurement(name, verdict="failed"), make_measurement(other)]
    assert not replace(make_artefact(), measurements=tuple(measurements)).may_serve("int8")
    assert not replace(make_artefact(), measurements=(make_measurement("int8"), make_measurement(other))).may_serve(
        "int8"
    )
    assert make_artefact().may_serve("int8")


def test_another_backends_artefact_is_refused(tmp_path: Path) -> None:
    path = save_artefact(make_artefact(), tmp_path)
    with pytest.raises(FileNotFoundError):
        load_artefact(tmp_path, backend="triton-cuda")
    path.rename(tmp_path / "quality-triton-cuda.json")
    with pytest.raises(ToolError, match="backend: expected triton-cuda, found torch-cpu"):
        load_artefact(tmp_path, backend="triton-cuda")


def test_it_is_read_without_anything_that_computes() -> None:
    heavy = ("torch", "numpy", "triton")
    code = f"import sys, engine_agent.tools.quality.artefact; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
