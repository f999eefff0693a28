"""The output of `luminet calc`: its width, and substitutes for characters that the stream cannot encode."""

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
    """Return a console that replaces characters the encoding lacks: by similar ones, in JSON by escapes."""
    codecs.register_error(FOR_PEOPLE, _alike)
    codecs.register_error(FOR_PROGRAMS, _escaped)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=FOR_PROGRAMS if is_json else FOR_PEOPLE)
    return Paper(stream)


def _alike(error: UnicodeError) -> tuple[str, int]:
    text, end = _lacking(error)
    return "".join(LIKE.get(character, "?") for character in text), end


def _escaped(error: UnicodeError) -> tuple[str, int]:
    text, end = _lacking(error)
    return json.dumps(text)[1:-1], end


def _lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end], error.end
