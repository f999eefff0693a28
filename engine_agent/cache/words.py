"""Readable sizes for messages and pages; values for programs stay in bytes. Pure."""

UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """Return for example "512.0 KiB", in the largest unit with a value of at least 1."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} bytes"
    size = float(size_bytes)
    for name in UNITS:
        size /= 1024
        if abs(size) < 1024 or name == UNITS[-1]:
            break
    return f"{size:,.1f} {name}"


def sizes_apart(one_bytes: int, other_bytes: int) -> tuple[str, str]:
    """Return the texts of two compared sizes, in exact bytes where they would look the same."""
    one_text, other_text = size_text(one_bytes), size_text(other_bytes)
    if one_text == other_text and one_bytes != other_bytes:
        return f"{one_bytes:,} bytes", f"{other_bytes:,} bytes"
    return one_text, other_text
