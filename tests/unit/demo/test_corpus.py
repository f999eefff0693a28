"""What is trained on and what is held out."""

import json
import platform
from pathlib import Path

import pytest

from engine_agent.tools.training import corpus, folder, heldout
from engine_agent.tools.training.corpus import Corpus, Document, fingerprints, is_held_out, read_corpus
from engine_agent.tools.training.entries import Entry, python_entries

SHARED = "This paragraph stands in two documents, and it is long enough to be recognised as the same text."
OWN = "This paragraph is only here, and nobody else has it, so it may be read by whoever wants to read it."


def name_that_is(held_out: bool) -> str:
    return next(name for name in (f"module:m{number}" for number in range(1000)) if is_held_out(name) is held_out)


@pytest.fixture(scope="module")
def real() -> Corpus:
    return read_corpus()


def test_a_held_out_document_is_never_trained_on(real: Corpus) -> None:
    held_out = {document.origin for document in real.held_out}
    assert {document.kind for document in real.held_out} == {"topic", "page", "source"}
    assert held_out.isdisjoint(document.origin for document in real.training)
    assert held_out.isdisjoint(f"module:{entry.module}" for entry in real.entries)


def test_no_paragraph_of_a_held_out_document_is_trained_on_under_another_name(real: Corpus) -> None:
    held_out = set[str]().union(*(fingerprints(document.text) for document in real.held_out))
    assert all(fingerprints(document.text).isdisjoint(held_out) for document in real.training)
    assert all(fingerprints(entry.doc).isdisjoint(held_out) for entry in real.entries)


def test_the_python_that_trained_the_model_still_has_the_recorded_corpus(real: Corpus) -> None:
    record = json.loads((folder.PATH / "training.json").read_text())
    made_with = (record["corpus"]["python"], record["machine"]["system"])
    if made_with != (platform.python_version(), platform.system()):
        pytest.skip(f"the model was trained with Python {made_with[0]} on {made_with[1]}")
    assert real.digest == record["corpus"]["sha256"]
    assert heldout.choose(real.held_out) == heldout.load()


def test_no_document_is_a_test_a_table_or_about_this_machine(real: Corpus) -> None:
    parts = {part for document in real.training for part in document.origin.partition(":")[2].split(".")}
    assert parts.isdisjoint({"test", "idlelib", "lib2to3", "turtledemo", "encodings", "pydoc_data", "site-packages"})
    assert not any("sysconfigdata" in document.origin for document in real.training)
    assert max(len(document.text) for document in real.training) <= corpus.LONGEST_SOURCE


def test_two_readings_of_one_library_have_one_digest_and_another_library_has_another(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(f'"""{OWN}"""\n' + "x = 1\n" * 100)
    first, second = (corpus.split(*corpus.read_documents(tmp_path)).digest for _ in range(2))
    (tmp_path / "package" / "__init__.py").write_text(f'"""{OWN}"""\n' + "x = 2\n" * 100)
    assert first == second != corpus.split(*corpus.read_documents(tmp_path)).digest


def test_a_paragraph_shared_with_a_held_out_document_is_cut_however_it_is_wrapped() -> None:
    secret = Document(name_that_is(True), "page", f"{SHARED}\n")
    quoting = Document(name_that_is(False), "page", f"{OWN}\n\n    {SHARED.replace(' and', chr(10) + '    and')}\n")
    split = corpus.split([secret, quoting], [])
    assert [document.text for document in split.training] == [f"{OWN}\n"]
    assert split.held_out == (secret,)


def test_an_entry_that_quotes_a_held_out_document_is_not_asked_about() -> None:
    secret, name = Document(name_that_is(True), "page", f"{SHARED}\n"), name_that_is(False).partition(":")[2]
    quoting, own = Entry(name, "f", "()", SHARED), Entry(name, "g", "()", OWN)
    assert corpus.split([secret], [quoting, own]).entries == (own,)


def test_entries_are_read_without_running_the_module() -> None:
    source = (
        '"""M."""\nraise SystemExit\nclass C:\n    """A class."""\n    def f(self, x=1):\n        """A method."""\n'
    )
    assert [(entry.name, entry.signature, entry.doc) for entry in python_entries("m", source)] == [
        ("m", "", "M."),
        ("m.C", "", "A class."),
        ("m.C.f", "(self, x=1)", "A method."),
    ]
