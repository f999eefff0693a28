"""Which mutations of a source there are, how they change it, and which of them are drawn."""

import pytest

from tests.mutations.drawing import FROM_EACH, PACKAGES, draw, find_again
from tests.mutations.editing import Mutation, is_valid, mutations_of
from tests.mutations.running import CHUNK_SECONDS, FAILED, chunks

FILE = "tenants/made_up.py"
HEADER = '''"""A module."""
LIMIT = 3
log = object()


class Kept:
    size: int = 4

    def is_kept(self, number: "int" = 5) -> "bool":
        """A docstring."""
'''


def source_of(statement: str) -> bytes:
    return (HEADER + f"        {statement}\n").encode()


def mutated(statement: str) -> dict[str, str]:
    """The statement after each mutation, by operator."""
    source = source_of(statement)
    changed = {each.operator: each.applied(source).decode() for each in mutations_of(FILE, source)}
    assert all(text.startswith(HEADER) for text in changed.values())
    return {operator: text.removeprefix(HEADER).strip() for operator, text in changed.items()}


@pytest.mark.parametrize(
    ("statement", "operator", "changed"),
    [
        ("x = a < b", "< → <=", "x = a <= b"),
        ("x = (a) >= (b)", ">= → >", "x = (a) > (b)"),
        ("x = a == b", "== → !=", "x = a != b"),
        ("x = a in b", "in → not in", "x = a not in b"),
        ("x = a not  in b", "not in → in", "x = a in b"),
        ("x = a is b", "is → is not", "x = a is not b"),
        ("x = 'ü' and b", "and → or", "x = 'ü' or b"),
        ("x = not a", "not → ", "x =  a"),
        ("x = a + b", "+ → -", "x = a - b"),
        ("x //= b", "// → *", "x *= b"),
        ("x = 7", "7 → 8", "x = 8"),
        ("x = True", "True → False", "x = False"),
        ("x = 'word'", "'word' → \"\"", 'x = ""'),
        ("return a", "a → None", "return None"),
        ("call(a)", "call(a) → pass", "pass"),
        ("await call(a)", "await call(a) → pass", "pass"),
        ("if a or b: pass", "a or b → not (a or b)", "if not (a or b): pass"),
    ],
)
def test_operator_changes_one_place(statement: str, operator: str, changed: str) -> None:
    assert mutated(statement)[operator] == changed


@pytest.mark.parametrize(
    "statement",
    [
        "log.info('said', 1)",
        "x: 'int' = a",
        "x = cast('int', a)",
        "return None",
        "x = f'{a + 1:>9}'",
        "def f(a=1): ...",
    ],
)
def test_what_no_test_can_notice_stays(statement: str) -> None:
    assert mutated(statement) == {}


def test_place_is_named_by_function_and_line() -> None:
    source = source_of("x = (1 if a else\n             1)")
    first, second = mutations_of(FILE, source)
    assert (first.function, first.text, first.occurrence) == ("Kept.is_kept", "x = (1 if a else", 0)
    assert (second.line, second.statement) == (first.line + 1, first.line)
    assert first.key != second.key


def test_mutation_is_found_after_moves() -> None:
    (mutation,) = mutations_of(FILE, source_of("x = a < b"))
    moved = b"# A line more.\n" + source_of("y = c\n        x = a < b")
    again = find_again(mutation, moved)
    assert again is not None
    assert again.line == mutation.line + 2
    assert b"x = a <= b" in again.applied(moved)
    assert find_again(mutation, source_of("x = a > b")) is None


def made_up(package: str) -> list[Mutation]:
    """Four in each of forty functions."""
    functions = "".join(f"def f{number}():\n    return {number} + {number + 1}\n" for number in range(40))
    return mutations_of(f"{package}/made_up.py", functions.encode())


def test_draw_repeats_and_takes_covered_lines() -> None:
    mutations = {package: made_up(package) for package in PACKAGES}
    lines = {line: frozenset({"tests/unit/test_it.py"}) for line in range(1, 61)}
    tests = {f"{package}/made_up.py": lines for package in PACKAGES}
    drawn = draw(mutations, tests)
    assert drawn == draw(dict(reversed(mutations.items())), tests)
    assert drawn != draw(mutations, tests, seed=26)
    assert len({(each.file, each.function) for each in drawn}) == len(drawn) == FROM_EACH * len(PACKAGES)
    assert all(each.line <= 60 for each in drawn)


def test_invalid_mutation_is_recognised() -> None:
    assert is_valid(b"x = a if b else c")
    assert not is_valid(b"x = a if b else")


def test_cheap_files_run_first_after_the_killer() -> None:
    seconds = {"tests/unit/test_a.py": 9.0, "tests/e2e/test_b.py": CHUNK_SECONDS, "tests/unit/test_c.py": 1.0}
    assert list(chunks(seconds)) == [["tests/unit/test_c.py", "tests/unit/test_a.py"], ["tests/e2e/test_b.py"]]
    first, *others = chunks(seconds, "tests/integration/test_b.py::test_moved[1]")
    assert first == ["tests/e2e/test_b.py"]
    assert others == [["tests/unit/test_c.py", "tests/unit/test_a.py"]]


@pytest.mark.parametrize(
    ("line", "item"),
    [
        ("FAILED tests/unit/test_a.py::test_b[a - b] - assert 1 == 2", "tests/unit/test_a.py::test_b[a - b]"),
        ("ERROR tests/unit/test_a.py - ImportError: no", "tests/unit/test_a.py"),
        ("FAILED tests/unit/test_a.py::test_b", "tests/unit/test_a.py::test_b"),
        ("SUBFAILED[some page] tests/unit/test_a.py::test_b - KeyError: 'x'", "tests/unit/test_a.py::test_b"),
    ],
)
def test_failed_item_is_read(line: str, item: str) -> None:
    match = FAILED.search(f"short test summary info\n{line}\n")
    assert match
    assert match[1] == item
