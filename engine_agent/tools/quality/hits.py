"""Check that a prefix hit gives exactly the result of a recomputation: the same bytes, the same logits.

One request reads a whole document. A second reads the document's beginning and a few more tokens, as an earlier request
of the same tenant would have. A third hits that beginning in pages and computes the rest. Its pages and logits are
compared with those of the first, bit by bit.

Attention on a CPU adds up in an order that depends on the extent of its tile of queries. So chunks end at multiples of
`TILE_TOKENS`, and the last one is padded with unused tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine_agent.tools.quality.reading import Pages, Reader, Row

TILE_TOKENS = 64
CUTS = (16, 48, 64, 80, 176, 240)
MORE = 5  # tokens that the earlier request reads beyond the common beginning
TOKENS = 256


def hit_equals_miss(reader: Reader, document: Tensor, cuts: Sequence[int] = CUTS) -> list[int]:
    """Return the cuts at which anything differs, ideally none. `document` is [tokens]."""
    length = len(document)
    rows = Pages(reader.layout, 3, -(-length // TILE_TOKENS) * TILE_TOKENS, document.device)
    whole, earlier, later = (rows.of(number) for number in range(3))
    block = reader.layout.block_tokens
    logits = _read(reader, rows.arena, whole, document, 0, length)
    wrong_cuts = []
    for cut in (cut for cut in cuts if cut < length):
        assert cut % block == 0, "a prefix is found in whole blocks"
        _read(reader, rows.arena, earlier, document, 0, min(cut + MORE, length))
        shared = earlier[: cut // block] + later[cut // block :]
        hit_logits = _read(reader, rows.arena, shared, document, cut, length)
        is_same = torch.equal(hit_logits, logits[cut:])
        size = reader.layout.page_bytes
        for whole_page, shared_page in list(zip(whole, shared, strict=True))[: length // block]:
            is_same &= torch.equal(
                rows.arena[whole_page : whole_page + size], rows.arena[shared_page : shared_page + size]
            )
        if not is_same:
            wrong_cuts.append(cut)
    return wrong_cuts


def _read(reader: Reader, arena: Tensor, pages: list[int], document: Tensor, begin: int, end: int) -> Tensor:
    """Return the logits of the tokens from `begin` to `end`."""
    hidden_parts = []
    while begin < end:
        stop = (begin // TILE_TOKENS + 1) * TILE_TOKENS
        tokens = document.new_zeros(stop - begin)
        tokens[: min(stop, end) - begin] = document[begin : min(stop, end)]
        hidden = reader.step(arena, [Row(pages, begin, stop)], tokens)
        hidden_parts.append(hidden[: min(stop, end) - begin])
        begin = stop
    return reader.model.logits(torch.cat(hidden_parts))
