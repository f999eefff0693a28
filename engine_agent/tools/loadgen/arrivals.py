"""Arrival times of requests. They are decided before the first is sent, so a slow server gets no fewer requests."""

import math
import random


def arrival_seconds(count: int, *, rate: float, burstiness: float = 1.0, seed: int = 0) -> list[float]:
    """Return `count` moments from 0 on, at an average of `rate` per second.

    A burstiness of 1 is Poisson traffic; below 1 requests come in bursts, above 1 more evenly. An infinite rate sends
    all at once.
    """
    if math.isinf(rate):
        return [0.0] * count
    # Gamma-distributed gaps of shape k and mean 1/rate: their variation is 1/√k of the mean.
    random_ = random.Random(f"arrivals {seed}")
    moments, now = [], 0.0
    for _ in range(count):
        moments.append(now)
        now += random_.gammavariate(burstiness, 1 / (rate * burstiness))
    return moments
