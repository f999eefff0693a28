"""The headline of the audit page, which counts the records. Pure."""

from controlplane.dashboard.frame.words import counted


def counted_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(total: int, *, shown: int, is_asked: bool, has_more: bool, is_first: bool) -> str:
    if is_asked and not has_more and is_first:
        return f"{counted_text(shown, 'record')} {'fits' if shown == 1 else 'fit'}" if shown else "No record fits"
    if is_asked:
        return f"More than {shown:,} records fit; the newest are shown first" if is_first else "Older records that fit"
    verb = "was" if total == 1 else "were"
    return f"{counted(total, 'thing') if total < 1000 else f'{total:,} things'} {verb} done on this installation"
