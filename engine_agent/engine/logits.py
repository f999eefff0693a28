"""What may be done to one row of logits before a token is drawn from it. Numbers in, numbers out; nothing is kept.

A row is one position's scores for the whole vocabulary, float32, on the host. Nothing here writes to the row it is
given, and nothing looks beyond it: what a request gets cannot depend on who else is in the batch. Equal numbers are
told apart by their token ids, lower first, so that a draw has one answer.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine_agent.engine.outputs import Logprob, TokenLogprobs

Row: TypeAlias = NDArray[np.float32]
Ids: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

LEAST_TEMPERATURE = 1e-5  # below it a float32 cannot hold the quotient of two logits' difference
LEAST_REPETITION = 1e-30  # likewise: its next neighbours would be nought
LEAST_LOGPROB = -9999.0  # JSON has no word for minus infinity
_MOST = np.finfo(np.float32).max
_STRIDE = 512
_BIN_BITS = 20  # a float's upper twelve bits are its bin: sign, exponent, and three of the fraction
_ALL_BUT_SIGN = 0x7FFFFFFF


def is_sound(row: Row) -> bool:
    """Whether a likeliest token can be named at all: no NaN, no plus infinity, and not everything forbidden."""
    return bool(np.isfinite(row.max()))


@np.errstate(over="ignore")
def penalised(
    row: Row, *, seen: Ids, repetition: float, used: Ids, counts: Row, frequency: float, presence: float
) -> Row:
    """`repetition` divides what speaks for every token `seen` so far; the other two are taken from those `used` in the
    answer, once for each use and once for all.
    """
    row = row.copy()
    if repetition != 1:
        old, by = row[seen], np.float32(max(repetition, LEAST_REPETITION))
        row[seen] = np.minimum(np.where(old > 0, old / by, old * by), _MOST)
    if frequency or presence:
        row[used] -= np.float32(frequency) * counts + np.float32(presence)
    return row


@np.errstate(over="ignore")
def candidates(row: Row, *, temperature: float, top_k: int, top_p: float, min_p: float) -> Row:
    """The weight with which each token may be drawn. The likeliest weighs 1; what may not be drawn weighs nothing."""
    weights: Row = np.exp((row - row.max()) / np.float32(max(temperature, LEAST_TEMPERATURE)))
    if 0 < top_k < len(row):
        weights *= largest(row, top_k)
    if top_p < 1:
        weights *= nucleus(weights, top_p)
    if min_p > 0:
        weights *= weights >= np.float32(min_p)
    return weights


def largest(row: Row, count: int) -> Mask:
    """Where the `count` largest numbers are."""
    return _foremost(row, None, count)


def nucleus(weights: Row, share: float) -> Mask:
    """Where the fewest weights are that together reach this share of all."""
    return _foremost(weights, weights, share * float(weights.sum(dtype=np.float64)))


def _foremost(row: Row, amounts: Row | None, wanted: float) -> Mask:
    """Where the largest numbers are, as many as it takes for their amounts, of 1 each for None, to add up to this.

    Sorting a vocabulary would cost more than all else here. So numbers are first told apart by their upper bits, and
    only those in the bin where the sum is reached are put in order.
    """
    bits = (row + np.float32(0)).view(np.int32)  # minus nought is nought
    bins = (bits ^ ((bits >> 31) & _ALL_BUT_SIGN)) >> _BIN_BITS  # a float's bits rise with it, below nought they fall
    bins -= bins.min()
    reached = np.bincount(bins, weights=amounts)[::-1].cumsum()
    order = min(int(np.searchsorted(reached, wanted)), len(reached) - 1)
    border = len(reached) - 1 - order
    inside = np.flatnonzero(bins == border)
    inside = inside[np.argsort(-row[inside], kind="stable")]
    missing = wanted - (reached[order - 1] if order else 0)
    sums = np.arange(1, len(inside) + 1) if amounts is None else np.cumsum(amounts[inside], dtype=np.float64)
    mask = bins > border
    mask[inside[: int(np.searchsorted(sums, missing)) + 1]] = True
    return np.asarray(mask)


def drawn(weights: Row, chance: float) -> int:
    """The place where this chance, of 0 to below 1, falls when the weights lie one behind the other."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _STRIDE), dtype=np.float64)
    ends = np.cumsum(sums)
    target = chance * ends[-1]
    part = _first_above(ends, target)
    inside = np.cumsum(weights[part * _STRIDE : (part + 1) * _STRIDE], dtype=np.float64)
    return part * _STRIDE + _first_above(inside, target - (ends[part - 1] if part else 0.0))


@np.errstate(over="ignore")
def token_logprobs(row: Row, token: int, alternatives: int) -> TokenLogprobs:
    """Of the model itself: `row` is as it came. Likeliest first."""
    peak = row.max()
    scale = float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))

    def logprob(place: int) -> Logprob:
        return Logprob(place, max(float(row[place]) - scale, LEAST_LOGPROB))

    top = np.flatnonzero(largest(row, min(alternatives, len(row)))) if alternatives else np.empty(0, dtype=np.intp)
    ordered = top[np.argsort(-row[top], kind="stable")]
    return TokenLogprobs(logprob(token), tuple(logprob(int(place)) for place in ordered))


def _first_above(rising: NDArray[np.float64], target: float) -> int:
    """The first place where a sum exceeds the target; rounding may put a target on the last sum, never behind it."""
    last = int(np.searchsorted(rising, rising[-1]))
    return min(int(np.searchsorted(rising, target, side="right")), last)
