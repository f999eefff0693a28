"""What is good, spoiled by chance: documents with values out of place, bytes that were hit."""

import copy
import random
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

from tests.web.bad_bodies import odd_value

Place = tuple[Any, Any]  # a container, and where in it


def spoiled(chance: random.Random, good: Any) -> Any:
    """With one to three of its values replaced, left out or told twice, at any depth."""
    found = copy.deepcopy(good)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if places := list(_places(found)):
            _spoil(chance, *chance.choice(places))
    return found


def hit(chance: random.Random, good: bytes) -> bytes:
    """Cut, or with bytes that are others, twice there, or gone; seldom with nothing left that was good."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(600))
    bytes_ = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if not bytes_:
            break
        start = chance.randrange(len(bytes_))
        end = min(len(bytes_), start + chance.choice((1, 1, 4, 40)))
        match chance.randrange(4):
            case 0:
                bytes_[start] ^= 1 << chance.randrange(8)
            case 1:
                del bytes_[start:end]
            case 2:
                bytes_[start:start] = bytes_[start:end]
            case _:
                del bytes_[start:]
    return bytes(bytes_)


def _places(document: Any) -> Iterator[Place]:
    if isinstance(document, MutableMapping):
        for name, value in document.items():
            yield document, name
            yield from _places(value)
    elif isinstance(document, MutableSequence):
        for number, value in enumerate(document):
            yield document, number
            yield from _places(value)


def _spoil(chance: random.Random, within: Any, place: Any) -> None:
    match chance.randrange(5):
        case 0:
            del within[place]
        case 1 if isinstance(within, MutableMapping):
            within[str(odd_value(chance, depth=0))[:300]] = within[place]
        case _:
            within[place] = odd_value(chance, depth=2)
