"""What the audit page says of the trail: how much there is, and what looking at the whole chain found. Pure."""

from dataclasses import dataclass

from controlplane.dashboard.frame.words import counted
from tenants.audit import Verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """The chain's verdict in a sentence; `head` is what to keep elsewhere."""

    sentence: str
    tone: str
    head: str
    advice: str


def checked(verdict: Verdict, *, seconds: float, remembered: str) -> Checked:
    records = counted_text(verdict.records, "record")
    if verdict.problem is not None:
        before = f"{records} before it {'is' if verdict.records == 1 else 'are'} as written"
        advice = "Export the trail, compare it with your last export, and treat it as an incident."
        return Checked(f"The chain is broken: {verdict.problem}. {before}.", "bad", verdict.head, advice)
    kept = ", and the head you gave is part of it" if remembered else ""
    sentence = f"The chain is whole: {records}, each as it was written{kept}. Looked at in {seconds:.1f} s."
    advice = "Keep the head elsewhere: given here later, it also shows whether the trail’s end was cut off."
    return Checked(sentence, "ok", verdict.head, advice)


def counted_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(total: int, *, shown: int, is_asked: bool, has_more: bool, is_first: bool) -> str:
    if is_asked and not has_more and is_first:
        return f"{counted_text(shown, 'record')} {'fits' if shown == 1 else 'fit'}" if shown else "No record fits"
    if is_asked:
        return f"More than {shown:,} records fit; the newest are shown first" if is_first else "Older records that fit"
    verb = "was" if total == 1 else "were"
    return f"{counted(total, 'thing') if total < 1000 else f'{total:,} things'} {verb} done on this installation"
