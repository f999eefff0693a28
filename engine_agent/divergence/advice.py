"""Advice on a part that varies, in one or two sentences."""

from engine_agent.divergence.findings import Finding


def advice(finding: Finding, looks_like: str | None = None) -> str:
    share, recurring = f"{finding.share:.0%}".replace("%", " %"), f"{finding.recurring_tokens:,}"
    hint = f"What varies there looks like {looks_like}. " if looks_like else ""
    return (
        f"{share} of the prompts differ first at token {finding.token:,}{_agrees(finding, recurring)}. {hint}"
        f"Move what varies to the end: hit rate {_percent(finding.hit_ratio_now)} → "
        f"{_percent(finding.hit_ratio_then)}."
    )


def values(finding: Finding) -> str:
    """Describe how many values the part has."""
    if finding.distinct >= finding.seen:
        return f"another value in each of {finding.seen:,}"
    return f"{finding.distinct:,} values in {finding.seen:,}"


def _agrees(finding: Finding, recurring: str) -> str:
    if not finding.recurring_tokens:
        return ", and agree again later"
    length = f"{finding.length_tokens:,} token{'s' * (finding.length_tokens != 1)} later"
    return f" and agree again {length}, for {recurring} tokens"


def _percent(ratio: float) -> str:
    return f"{int(ratio * 100 + 1e-9)} %"
