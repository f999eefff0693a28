"""Transformations of one row of logits before sampling. Pure functions on numbers.

A row contains one position's scores for the whole vocabulary, float32, on the host. Nothing here writes to its input or
reads other rows: a request's result cannot depend on the rest of the batch. Ties are broken by token id, lower first,
so that a draw is deterministic.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine_agent.engine.outputs import Logprob, TokenLogprobs

Row: TypeAlias = NDArray[np.float32]
Ids: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

LEAST_TEMPERATURE = 1e-5  # below it a float32 cannot represent the quotient of two logits' difference
LEAST_REPETITION = 1e-30  # likewise: a much smaller value would be zero
LEAST_LOGPROB = -9999.0  # JSON cannot express minus infinity
_MOST = np.finfo(np.float32).max
_STRIDE = 512
_BIN_BITS = 20  # a float's upper twelve bits are its bin: sign, exponent, and three bits of the fraction
_ALL_BUT_SIGN = 0x7FFFFFFF


def is_sound(row: Row) -> bool:
    """Return whether the row has a likeliest token: no NaN, no plus infinity, and not everything forbidden."""
    return bool(np.isfinite(row.max()))


@np.errstate(over="ignore")
def penalised(
    row: Row, *, seen: Ids, repetition: float, used: Ids, counts: Row, frequency: float, presence: float
) -> Row:
    """Return the row with penalties.

    `repetition` lowers the score of every token `seen` so far. For tokens `used` in the answer, `frequency` is
    subtracted once per use and `presence` once.
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
    """Return the weight with which each token may be drawn: 1 for the likeliest, 0 for excluded ones."""
    weights: Row = np.exp((row - row.max()) / np.float32(max(temperature, LEAST_TEMPERATURE)))
    if 0 < top_k < len(row):
        weights *= largest(row, top_k)
    if top_p < 1:
        weights *= nucleus(weights, top_p)
    if min_p > 0:
        weights *= weights >= np.float32(min_p)
    return weights


def largest(row: Row, count: int) -> Mask:
    """Return a mask of the `count` largest numbers."""
    return _foremost(row, None, count)


def nucleus(weights: Row, share: float) -> Mask:
    """Return a mask of the fewest weights that together reach this share of the sum."""
    return _foremost(weights, weights, share * float(weights.sum(dtype=np.float64)))


def _foremost(row: Row, amounts: Row | None, target: float) -> Mask:
    """Return a mask of the largest numbers whose amounts (1 each for None) add up to `target`.

    Sorting a vocabulary would cost more than everything else here. So numbers are first divided into bins by their
    upper bits, and only the bin in which the sum is reached is sorted.
    """
    bits = (row + np.float32(0)).view(np.int32)  # minus zero becomes zero
    bins = (bits ^ ((bits >> 31) & _ALL_BUT_SIGN)) >> _BIN_BITS  # a float's bits rise with it above zero and fall below
    bins -= bins.min()
    cumulative = np.bincount(bins, weights=amounts)[::-1].cumsum()
    order = min(int(np.searchsorted(cumulative, target)), len(cumulative) - 1)
    border = len(cumulative) - 1 - order
    inside = np.flatnonzero(bins == border)
    inside = inside[np.argsort(-row[inside], kind="stable")]
    missing = target - (cumulative[order - 1] if order else 0)
    sums = np.arange(1, len(inside) + 1) if amounts is None else np.cumsum(amounts[inside], dtype=np.float64)
    mask = bins > border
    mask[inside[: int(np.searchsorted(sums, missing)) + 1]] = True
    return np.asarray(mask)


def drawn(weights: Row, chance: float) -> int:
    """Return the index on which `chance`, from 0 to below 1, falls when the weights are laid end to end."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _STRIDE), dtype=np.float64)
    ends = np.cumsum(sums)
    target = chance * ends[-1]
    part = _first_above(ends, target)
    inside = np.cumsum(weights[part * _STRIDE : (part + 1) * _STRIDE], dtype=np.float64)
    return part * _STRIDE + _first_above(inside, target - (ends[part - 1] if part else 0.0))


@np.errstate(over="ignore")
def token_logprobs(row: Row, token: int, alternatives: int) -> TokenLogprobs:
    """Return the model's own log probabilities, likeliest first: `row` is unmodified."""
    peak = row.max()
    scale = float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))

    def logprob(token_id: int) -> Logprob:
        return Logprob(token_id, max(float(row[token_id]) - scale, LEAST_LOGPROB))

    top = np.flatnonzero(largest(row, min(alternatives, len(row)))) if alternatives else np.empty(0, dtype=np.intp)
    ordered = top[np.argsort(-row[top], kind="stable")]
    return TokenLogprobs(logprob(token), tuple(logprob(int(token_id)) for token_id in ordered))


def _first_above(rising: NDArray[np.float64], target: float) -> int:
    """Return the first index with a sum above the target. Rounding may put a target on the last sum, never past it."""
    last = int(np.searchsorted(rising, rising[-1]))
    return min(int(np.searchsorted(rising, target, side="right")), last)
