"""Read configuration files, YAML or JSON: safely, and with an error that names the line if it is ambiguous."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from controlplane.client.checks import LARGEST, TOO_DEEP, NodeChecks, outline_check, refuse
from controlplane.client.depth import is_too_deep
from controlplane.client.errors import ClientError
from engine_agent.contracts.strict_json import UnsafeJson, loads

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times faster, if installed
_TAG_DIRECTIVE = re.compile(r"^%TAG\b", re.MULTILINE)  # libyaml compares each with all before it


def document_load(name: str) -> Any:
    """Return the file's content; `-` reads standard input."""
    text = _text(name)
    source = "standard input" if name == "-" else name
    value = _json(text, source) if text.lstrip().startswith("{") else None
    return _yaml(text, source) if value is None else value


def document_dump(document: Any) -> str:
    """Return the document as YAML: Unicode as it is, unless it contains characters that would control a terminal."""
    text = _dumped(document, as_is=True)
    return text if text.replace("\n", "").isprintable() else _dumped(document, as_is=False)


def _dumped(document: Any, *, as_is: bool) -> str:
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=as_is, width=120))


def _text(name: str) -> str:
    try:
        content = sys.stdin.buffer.read(LARGEST + 1) if name == "-" else _read(Path(name))
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    if len(content) > LARGEST:
        raise ClientError(f"{name}: is larger than {LARGEST} bytes, the most a control plane takes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ClientError(f"{name}: is not UTF-8 at byte {error.start}") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _json(text: str, name: str) -> Any:
    """Return the JSON value, or None if the text is not JSON: YAML has braces, too."""

    try:
        value = loads(text)
    except UnsafeJson as problem:
        raise ClientError(f"{name}: {str(problem.path[-1])[:60]!r} {problem.message}") from None
    except (ValueError, RecursionError):
        return None
    if is_too_deep(value):
        raise ClientError(f"{name}: {TOO_DEEP}")
    return value


def _yaml(text: str, name: str) -> Any:
    if _TAG_DIRECTIVE.search(text):
        raise ClientError(f"{name}: %TAG means nothing here: leave it out")
    try:
        outline_check(yaml.parse(text, Loader=_Loader), name)
        with _loading(text) as loader:
            node = loader.get_single_node()
            if node is None:
                raise ClientError(f"{name}: is empty")
            NodeChecks(name).node(node)
            return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        refuse(name, error.problem_mark or error.context_mark, str(error.problem or error.context))
    except yaml.YAMLError as error:
        raise ClientError(f"{name}: {error}") from None
    except (ValueError, LookupError) as error:  # such as `!!bool x`: a tag that does not fit its value
        raise ClientError(f"{name}: cannot be read, does a tag call something what it is not? ({error})") from None


@contextmanager
def _loading(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        yield loader
    finally:
        loader.dispose()
