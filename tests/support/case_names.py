"""Names of cases in a loop with subtests."""

MOST = 60  # characters of a value


def case_name(*values: object) -> str:
    """Name a case by its values, each cut to what a person reads: one may be a megabyte long."""
    return ", ".join(map(_shortened, values))


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of so many digits that Python does not write it
        text = f"a long {type(value).__name__}"
    return text if len(text) <= MOST else f"{text[:MOST]}…"
