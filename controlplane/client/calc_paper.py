"""Where `luminet calc` writes: how wide that is, and what stands for signs that it cannot show."""

import codecs
import io
import json
import shutil
from typing import TextIO

from controlplane.client.tables import Paper

COLUMNS_UNWATCHED = 80
FOR_PEOPLE, FOR_PROGRAMS = "luminet-calc-people", "luminet-calc-programs"
LIKE = {"×": "x", "·": "-", "−": "-", "–": "-"}


def columns_of() -> int:
    return shutil.get_terminal_size((COLUMNS_UNWATCHED, 24)).columns


def paper_for(stream: TextIO, *, is_json: bool) -> Paper:
    """Signs that the stream's encoding lacks become others that mean the same, in JSON its own escapes."""
    codecs.register_error(FOR_PEOPLE, _alike)
    codecs.register_error(FOR_PROGRAMS, _escaped)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=FOR_PROGRAMS if is_json else FOR_PEOPLE)
    return Paper(stream)


def _alike(error: UnicodeError) -> tuple[str, int]:
    text, end = _lacking(error)
    return "".join(LIKE.get(one, "?") for one in text), end


def _escaped(error: UnicodeError) -> tuple[str, int]:
    text, end = _lacking(error)
    return json.dumps(text)[1:-1], end


def _lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end], error.end
