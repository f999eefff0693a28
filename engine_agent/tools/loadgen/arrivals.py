"""When requests arrive. Decided before the first is sent: whoever answers slowly gets no fewer of them."""

import math
import random


def arrival_seconds(count: int, *, rate: float, burstiness: float = 1.0, seed: int = 0) -> list[float]:
    """`count` moments from 0 on, `rate` a second in the mean. A burstiness of 1 is Poisson traffic; below it requests
    come in bursts, above it ever more evenly. An infinite rate sends all at once.
    """
    if math.isinf(rate):
        return [0.0] * count
    # Gaps of shape k and mean 1/rate: their variation is 1/√k of the mean.
    random_ = random.Random(f"arrivals {seed}")
    moments, now = [], 0.0
    for _ in range(count):
        moments.append(now)
        now += random_.gammavariate(burstiness, 1 / (rate * burstiness))
    return moments
