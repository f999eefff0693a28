"""Accelerators by their data sheets: memory and bandwidth of one. GB and TB are 10^9 and 10^12 bytes, as there.

What a driver reports differs by a few per cent: whoever knows it gives memory and bandwidth instead of a name.
Standard library only: the control plane imports this.
"""

from dataclasses import dataclass

from kernels.shapes import MOST_BYTES, is_number, refused, whole

GB, TB = 10**9, 10**12


@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: float

    def __post_init__(self) -> None:
        whole("memory_bytes", self.memory_bytes, least=1, most=MOST_BYTES)
        speed: object = self.bandwidth_bytes_per_second
        if not is_number(speed, most=MOST_BYTES):
            raise refused("bandwidth_bytes_per_second", speed, f"a number above 0 and up to {MOST_BYTES:,}")


ACCELERATORS: dict[str, Accelerator] = {
    "a100": Accelerator("A100 80 GB SXM", 80 * GB, 2039 * GB),
    "b200": Accelerator("B200", 180 * GB, 8 * TB),  # of HGX B200: 1.44 TB in eight
    "b300": Accelerator("B300", 288 * GB, 8 * TB),
    "h100": Accelerator("H100 80 GB SXM", 80 * GB, 3.35 * TB),
    "h200": Accelerator("H200", 141 * GB, 4.8 * TB),
    "l40s": Accelerator("L40S", 48 * GB, 864 * GB),
    "mi300x": Accelerator("MI300X", 192 * GB, 5.3 * TB),
    "rtx-4090": Accelerator("RTX 4090", 24 * GB, 1008 * GB),
}


def accelerator_named(name: object) -> Accelerator:
    """Raises InvalidArgument for a name none has."""
    found = ACCELERATORS.get(name) if isinstance(name, str) else None
    if found is None:
        raise refused("accelerator", name, f"one of {', '.join(ACCELERATORS)}")
    return found
