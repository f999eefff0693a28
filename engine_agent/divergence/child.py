"""Analyses one sample in a separate process: reads marks from stdin, and writes the findings as JSON.

It usually takes a second of a core, which a process that serves requests cannot spare.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine_agent.divergence.analysing import Sample, analyse, without_spans

_LENGTH_BYTES = 4


def samples_encode(samples: Sequence[Sample]) -> bytes:
    parts = (
        bytes([sample.is_whole]) + len(sample.marks).to_bytes(_LENGTH_BYTES, "little") + sample.marks
        for sample in samples
    )
    return b"".join(parts)


def samples_decode(data: bytes) -> list[Sample]:
    return list(_decoded(data))


def told_of(samples: Sequence[Sample]) -> Mapping[str, Any]:
    return asdict(without_spans(analyse(samples)))


def _decoded(data: bytes) -> Iterator[Sample]:
    offset = 0
    while offset < len(data):
        start = offset + 1 + _LENGTH_BYTES
        stop = start + int.from_bytes(data[offset + 1 : start], "little")
        yield Sample(data[start:stop], is_whole=bool(data[offset]))
        offset = stop


if __name__ == "__main__":
    sys.stdout.write(json.dumps(told_of(samples_decode(sys.stdin.buffer.read()))))
