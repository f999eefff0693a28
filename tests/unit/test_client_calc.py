"""`luminet calc` at the terminal: what it prints, what it takes, what it refuses. No control plane is there to ask."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.client.calc_amounts import number_read, share_read, size_read
from controlplane.client.calc_report import billions, count, gigabytes, size
from kernels.calculator.accelerators import ACCELERATORS
from kernels.calculator.asked import asked, document
from kernels.calculator.calculating import calculate
from kernels.models.presets import PRESETS
from tests.support.luminet_command import luminet

Run = Callable[..., tuple[int, str, str]]
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 256,
}


LIKE = str.maketrans("×·−–", "x---")


def joined(out: str) -> str:
    """Sentences as they were before they were wrapped."""
    return " ".join(out.split())


@pytest.fixture
def calc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Its status, what it said and what it complained about; nobody answers anywhere."""
    monkeypatch.setenv("LUMINET_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("LUMINET_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = luminet(["calc", *arguments])
        except SystemExit as end:
            status = int(str(end.code))
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_a_line_for_each_format_with_units(calc: Run) -> None:
    status, out, _ = calc("--model", "llama-3.1-70b", "--context", "131072")
    assert status == 0
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert lines["bf16"] == ["bf16", "1.00", "320", "KiB", "40", "GiB"]
    assert lines["int4"] == ["int4", "3.76", "85", "KiB", "10.62", "GiB"]
    assert "8 × the truth: this model has 8 KV heads, not 64." in joined(out)
    assert "fp32" not in lines


def test_what_fits_and_how_fast_at_most_is_said_with_an_accelerator(calc: Run) -> None:
    machine = ("--accelerator", "h200", "--tensor-parallel", "8", "--concurrency", "32")
    status, out, _ = calc("--model", "llama-3.1-70b", "--context", "131072", "--kv-dtype", "bf16, int4", *machine)
    assert status == 0
    each = "8 × H200, each: 141 GB × 0.92 − weights 17.64 GB (bf16) − reserve 1.074 GB = 111 GB for KV."
    assert each in joined(out)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}  # of the second table
    assert lines["bf16"] == ["bf16", "2,710,144", "20", "209", "–", "768"]
    assert lines["int4"] == ["int4", "10,202,912", "77", "252", "2,428", "2,900"]
    assert "32 requests do not fit in bf16." in out


def test_formats_no_policy_may_name_stand_in_brackets(calc: Run) -> None:
    _, out, _ = calc("--model", "llama-3-8b", "--kv-dtype", "all")
    assert "(mxfp4)" in out
    assert "(fp32)" in out
    assert "not for policies" in out


def test_columns_line_up(calc: Run) -> None:
    _, out, _ = calc("--model", "llama-3-8b", "--kv-dtype", "all", "--accelerator", "h200")
    _, first, _, second, _ = out.split("\n\n")
    for table in (first.splitlines(), second.splitlines()):
        assert (len(table), len({len(line) for line in table})) == (16, 1)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_everything_fits_the_terminal(calc: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    machine = ("--accelerator", "h200", "--tensor-parallel", "8", "--concurrency", "32")
    _, out, _ = calc("--model", "llama-4-scout", "--context", "131072", "--kv-dtype", "all", *machine)
    sentences = [line for line in out.splitlines() if not line.startswith(("KV DTYPE", "(")) and "  " not in line]
    assert max(map(len, sentences)) in range(columns - 15, columns + 1)
    assert max(map(len, out.splitlines())) <= max(columns, 80)
    _, models, _ = calc("--models")
    assert max(map(len, models.splitlines())) <= max(columns, 80)


def test_numbers_and_their_units_stay_on_one_line(calc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in range(40, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        _, out, _ = calc("--model", "llama-3.1-70b", "--accelerator", "h200", "--tensor-parallel", "8")
        assert not any(line.startswith(("GB", "KV heads", "B parameters")) for line in out.splitlines())


def test_layers_of_several_kinds_are_told_apart(calc: Run) -> None:
    _, out, _ = calc("--model", "llama-4-scout", "--context", "100000")
    assert "36 keep a chunk of 8,192 tokens, 12 keep every token" in out
    _, kept, _ = calc("--model", "llama-4-scout", "--context", "131072", "--all-tokens", "--kv-dtype", "bf16")
    assert "24 GiB" in kept


def test_layers_with_heads_of_their_own_are_one_kind_to_people(calc: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "num_hidden_layers": 3, "num_key_value_heads": [1, 2, 4]}))
    _, out, _ = calc("--config", str(file))
    assert "3 layers · GQA, up to 4 heads, up to 4 KV heads of 64" in out
    assert "Of its layers" not in out
    file.write_text(json.dumps({**CONFIG, "model_type": "mistral", "num_key_value_heads": [1, 2], "sliding_window": 9}))
    assert "Of its layers 2 keep the last 9 tokens." in calc("--config", str(file))[1]


def test_json_is_the_documents_own(calc: Run) -> None:
    status, out, _ = calc("--model", "deepseek-v3", "--accelerator", "h200", "--tensor-parallel", "8", "--json")
    question = asked(model="deepseek-v3", accelerator="h200", tensor_parallel=8)
    assert status == 0
    assert json.loads(out) == document(question.shape, calculate(question))


def test_models_are_listed(calc: Run) -> None:
    status, out, _ = calc("--models")
    assert status == 0
    assert [line.split()[0] for line in out.split("\n\n")[0].splitlines()[1:]] == list(PRESETS)
    _, as_json, _ = calc("--models", "--json")
    assert [one["slug"] for one in json.loads(as_json)] == list(PRESETS)


def test_a_config_is_read_from_a_file_or_from_standard_input(
    calc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    status, out, _ = calc("--config", str(file))
    assert (status, "2 layers · GQA, 4 heads, 2 KV heads of 64" in out) == (0, True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CONFIG).encode())))
    assert calc("--config", "-")[1] == out


def test_another_accelerator_is_described_by_its_numbers(calc: Run) -> None:
    own = ("--memory", "24GiB", "--bandwidth", "1TB", "--weights", "5GB", "--reserve", "0", "--memory-utilisation", "1")
    status, out, _ = calc("--model", "llama-3-8b", *own)
    each = "1 × custom, each: 25.77 GB × 1 − weights 5 GB − reserve 0 GB = 20.77 GB"
    assert (status, each in joined(out)) == (0, True)


MEANT_FOR_A_MACHINE = {"--weights": "5GB", "--weights-dtype": "fp8", "--reserve": "0", "--memory-utilisation": "0.5"}


@pytest.mark.parametrize("option", MEANT_FOR_A_MACHINE)
def test_what_is_meant_for_a_machine_is_refused_without_one(calc: Run, option: str) -> None:
    status, out, complaint = calc("--model", "llama-3-8b", option, MEANT_FOR_A_MACHINE[option])
    assert (status, out) == (1, "")
    assert complaint == f"luminet: {option} needs an accelerator: add --accelerator, or --memory and --bandwidth\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_that_a_terminal_lacks_become_others(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ("--accelerator", "h200", "--tensor-parallel", "8", "--concurrency", "99")
    found = {}
    for form in (encoding, "utf-8"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=form))
        assert luminet(["calc", "--model", "llama-3.1-70b", "--kv-dtype", "all", *machine]) == 0
        found[form] = raw.getvalue().decode(form)
    assert found[encoding].translate(LIKE) == found["utf-8"].translate(LIKE)
    assert found[encoding] != found["utf-8"]


def test_json_is_escaped_where_signs_are_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert luminet(["calc", "--model", "llama-3-8b", "--json"]) == 0
    question = asked(model="llama-3-8b")
    assert json.loads(raw.getvalue()) == document(question.shape, calculate(question))


WRONG: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "give one of --model, --config, --models"),
    "two models": (["--model", "llama-3-8b", "--config", "x"], "give one of them"),
    "an unknown model": (["--model", "llama-9"], "model: 'llama-9' is not one of"),
    "an unknown format": (["--model", "llama-3-8b", "--kv-dtype", "fp6"], "--kv-dtype: 'fp6' is not one of"),
    "an unknown accelerator": (["--model", "llama-3-8b", "--accelerator", "tpu"], "accelerator: 'tpu' is not one of"),
    "a context in words": (["--model", "llama-3-8b", "--context", "long"], "'long' is no whole number"),
    "a size without a unit we know": (["--model", "llama-3-8b", "--memory", "24XB"], "'24XB' is no size"),
    "a share that is none": (["--model", "llama-3-8b", "--memory-utilisation", "nan"], "'nan' is no share"),
    "weights that do not fit": (
        ["--model", "llama-3-70b", "--accelerator", "h100"],
        "the smallest number that would do is 2",
    ),
    "a context beyond any": (
        ["--model", "llama-3-8b", "--context", "2147483647"],
        "--context: 2147483647 is not a whole number from 1 to 1,000,000,000",
    ),
    "a context that is hardly a number": (["--model", "llama-3-8b", "--context", "9" * 19], "of up to 18 digits"),
    "no request": (["--model", "llama-3-8b", "--concurrency", "0"], "--concurrency: 0 is not"),
    "a prefix that is too long": (
        ["--model", "llama-3-8b", "--context", "16", "--shared-prefix", "17"],
        "--shared-prefix: 17 is not at most 16, the context",
    ),
    "memory alone": (["--model", "llama-3-8b", "--memory", "24GB"], "--bandwidth is not there, though --memory is"),
    "bandwidth alone": (
        ["--model", "llama-3-8b", "--bandwidth", "1TB"],
        "--memory is not there, though --bandwidth is",
    ),
    "one accelerator and another": (
        ["--model", "llama-3-8b", "--accelerator", "h200", "--memory", "24GB"],
        "--accelerator: 'h200' is not the only one: --memory is of another",
    ),
    "weights said twice": (
        ["--model", "llama-3-8b", "--accelerator", "h200", "--weights", "1GB", "--weights-dtype", "fp8"],
        "give one of them",
    ),
    "no such file": (["--config", "/nowhere/config.json"], "No such file"),
    "a folder": (["--config", "/"], "Is a directory"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_a_line(calc: Run, case: tuple[list[str], str]) -> None:
    arguments, words = case
    status, out, complaint = calc(*arguments)
    assert (status, out) == (1, "")
    assert words in complaint.splitlines()[-1]
    assert "Traceback" not in complaint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b"[]", "config: a list of 0 is not an object"),
        (b"{}", "config.num_hidden_layers: null is not a whole number"),
        (json.dumps({**CONFIG, "hidden_size": 1e308}).encode(), "config.hidden_size: 1e+308 is not"),
        (json.dumps({**CONFIG, "num_key_value_heads": 3}).encode(), "3 is not a divisor of 4, the query heads"),
    ],
)
def test_a_config_that_is_none_is_refused(calc: Run, tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    status, out, complaint = calc("--config", str(file))
    assert (status, out) == (1, "")
    assert words in complaint
    assert len(complaint.splitlines()) == 1


UNCOUNTED = [
    (
        ["--accelerator", "h200"],
        "--parameters is not there: this config's parameters cannot be counted, so give their number or --weights",
    ),
    (["--active-parameters", "1B"], "--parameters is not there, though --active-parameters is"),
]


@pytest.mark.parametrize(("arguments", "words"), UNCOUNTED)
def test_parameters_that_nobody_knows_are_asked_for(
    calc: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768}))
    assert calc("--config", str(file), *arguments) == (1, "", f"luminet: {words}\n")


def test_numbers_are_read_with_their_units() -> None:
    assert [size_read(one) for one in ("7", "1.5GiB", "24GB", "4.8TB", "16 MiB")] == [
        7, 3 * 2**29, 24 * 10**9, 4_800 * 10**9, 2**24,
    ]  # fmt: skip
    assert [number_read(one) for one in ("124439808", "8.03B", "405B", "596M")] == [
        124_439_808, 8_030_000_000, 405 * 10**9, 596 * 10**6,
    ]  # fmt: skip
    assert share_read("0.92") == 0.92


def test_numbers_are_shown_with_their_units() -> None:
    assert [size(one) for one in (0, 16, 1023, 1024, 327_680, 11_408_506_880, 2**60)] == [
        "0 B", "16 B", "1023 B", "1 KiB", "320 KiB", "10.62 GiB", "1024 PiB",
    ]  # fmt: skip
    assert [gigabytes(one) for one in (0, 17_638_426_624, 141 * 10**9)] == ["0 GB", "17.64 GB", "141 GB"]
    assert [billions(one) for one in (None, 596_049_920, 8_030_261_248)] == ["–", "596 M", "8.03 B"]
    assert [count(one) for one in (None, 0, 12, 0.123, 1541.1)] == ["–", "0", "12", "0.12", "1,541"]


def test_the_help_names_every_accelerator(calc: Run) -> None:
    _, out, _ = calc("--help")
    assert all(name in out for name in ACCELERATORS)
