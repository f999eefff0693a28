"""The preview of a publication: changes with their units, affected namespaces and agents, and warnings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.at import At
from controlplane.dashboard.policies.fields import INHERITED, labelled, value_words, what_words
from controlplane.dashboard.policies.form_fields import in_words
from controlplane.dashboard.policies.forms import MODELS
from controlplane.dashboard.policies.rows import origin_words
from controlplane.rollouts.enforcement import agents_preview
from controlplane.rollouts.services import rollout_warnings
from controlplane.rollouts.spec import RolloutSpec
from engine_agent.contracts.policy_fields import FIELDS, LABELS
from tenants.errors import FieldProblem
from tenants.policy import Change, Policy, Values, effective_values
from tenants.preview import AgentPool, PreviewWarning, ShareBand
from tenants.selectors import Preview, policy_preview

MOST_NAMED = 8
MOST_ROWS = 6
ShareRow = tuple[str, str, str, str, str, str]  # where, label, share, size, tokens, blocks
WARNINGS = {
    **{consequence.code: consequence.title for field in FIELDS.values() for consequence in field.consequences},
    "pins_without_caching": "Pins hold nothing",
    "no_room": "No room",
    "not_enforced": "Not enforced by every agent",
    "format_lacking": "Not on every agent",
    "format_unproven": "Not measured everywhere",
    "canary_alone": "Nothing to compare with",
}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One value before and after; `after` is empty if it is removed."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Previewed:
    diff: tuple[DiffLine, ...]
    unchanged: str  # shown if no value in force changes
    who: str
    shares: tuple[ShareRow, ...]
    unshown: int
    promised: str
    warnings: tuple[tuple[str, str], ...]  # each with its title


def previewed(
    scope: At, chain: Sequence[Values], policy: Policy, pools: Sequence[AgentPool], rollout: RolloutSpec | None = None
) -> tuple[Previewed, list[FieldProblem]]:
    """Return what publishing would do, as the REST API previews it, and the reasons to refuse it."""
    preview = policy_preview(actor=scope.actor, place=scope.place, policy=policy, pools=pools)
    agents = agents_preview(actor=scope.actor, place=scope.place, policy=policy)
    extra_warnings = rollout_warnings(place=scope.place, rollout=rollout)
    after = policy.said()
    own_changes = said_between(chain[-1], after)
    kv_dtype = effective_values((*chain[:-1], after))["kv_dtype"]
    table = (band_rows(preview.bands) or share_rows(preview, pools, kv_dtype)) if own_changes else []
    words = Previewed(
        diff=tuple(_diff_line(change, scope.kind) for change in preview.changes),
        unchanged=_unchanged(own_changes, preview.changes),
        who=who_words(preview) if preview.changes or preview.namespaces else "",
        shares=tuple(table[:MOST_ROWS]),
        unshown=max(0, len(table) - MOST_ROWS),
        promised=promised_words(preview),
        warnings=tuple(
            (WARNINGS.get(warning.code, "Mind"), labelled(_in_words(warning)))
            for warning in (*preview.warnings, *agents.warnings, *extra_warnings)
        ),
    )
    return words, [*preview.problems, *agents.problems]


def changes_words(number: int) -> str:
    return f"{counted(number, 'change')}, not published" if number else "No changes yet"


def draft_words(changes: int, problems: int) -> str:
    """Return the state of the draft. A value that is out of bounds or cannot be parsed counts as a problem."""
    return f"Not valid: {counted(problems, 'problem')}" if problems else changes_words(changes)


def blocked_words(problems: int) -> str:
    """Return why the draft cannot be published; empty if it can."""
    if not problems:
        return ""
    return f"Cannot be published: correct the {'problem' if problems == 1 else f'{problems} problems'} first."


def _unchanged(own_changes: Sequence[DiffLine], changes: Sequence[Change]) -> str:
    if not own_changes:
        return "What stands here is what is published."
    if changes:
        return ""
    return (
        "Nothing in force differs now: what is said anew is what holds already. It goes on holding when levels above "
        "change."
    )


def _diff_line(change: Change, kind: str) -> DiffLine:
    return DiffLine(
        what_words(change.field, change.model),
        f"{value_words(change.field, change.before)} ({_origin(kind, change.before_origin)})",
        f"{value_words(change.field, change.after)} ({_origin(kind, change.after_origin)})",
    )


def _origin(kind: str, origin: str) -> str:
    return "for this model" if origin == "model" else origin_words(kind, origin)


def said_between(before: Values, after: Values) -> list[DiffLine]:
    """Return the changes of the level's own values, even if nothing in force changes."""
    return list(_said_between(before, after))


def _said_between(before: Values, after: Values) -> Iterator[DiffLine]:
    yield from _differences(before, after, None)
    old, new = before.get(MODELS, {}), after.get(MODELS, {})
    for model in sorted({*old, *new}):
        yield from _differences(old.get(model, {}), new.get(model, {}), model)


def _differences(before: Values, after: Values, model: str | None) -> Iterator[DiffLine]:
    for name in FIELDS:
        old, new = before.get(name, INHERITED), after.get(name, INHERITED)
        if not FIELDS[name].is_same(old, new):
            yield DiffLine(what_words(name, model), value_words(name, old), value_words(name, new))


def diff_words(lines: Sequence[DiffLine]) -> list[str]:
    """Return each change as "TTL: 5 min → 10 min"."""
    return [f"{line.what}: {line.before} → {line.after}" for line in lines] or ["It says what the one before it said."]


def who_words(preview: Preview) -> str:
    """Return "Something else comes into force in 2 namespaces: acme/default, acme/chat; on 2 engines: …"."""
    if not preview.namespaces:
        return "In no namespace is anything else in force: each says otherwise itself."
    names = ", ".join(preview.namespaces_named[:MOST_NAMED])
    hidden_names = preview.namespaces - min(MOST_NAMED, len(preview.namespaces_named))
    where = f"{counted(preview.namespaces, 'namespace')}: {names}{f' and {hidden_names} more' if hidden_names else ''}"
    if not preview.is_served:
        return f"Something else comes into force in {where}. No agent serves it yet."
    if not preview.agents:
        return f"Something else comes into force in {where}."
    agents = ", ".join(preview.agents[:MOST_NAMED])
    hidden = len(preview.agents) - MOST_NAMED
    served = f"{counted(len(preview.agents), 'engine')}: {agents}{f' and {hidden} more' if hidden > 0 else ''}"
    return f"Something else comes into force in {where}; on {served}."


def promised_words(preview: Preview) -> str:
    group_share = preview.group_share
    if group_share is None:
        return ""
    promised = f"{100 * group_share.promised:.3g} % of each pool is promised to everybody together, pins included"
    return f"{promised}; {100 * group_share.at_most:.3g} % is the most."


def share_rows(preview: Preview, pools: Sequence[AgentPool], kv_dtype: str) -> list[ShareRow]:
    """Return each share that is neither nothing nor the whole pool. Agents with equal pools share a row."""
    sizes: Mapping[str, Any] = {pool.agent: pool.block_bytes.get(kv_dtype, 0) for pool in pools}
    groups: dict[tuple[str, float, int, int, int], list[str]] = {}
    for agent_share in preview.shares:
        key = (
            agent_share.field,
            agent_share.share,
            agent_share.blocks,
            agent_share.tokens,
            agent_share.blocks * sizes.get(agent_share.agent, 0),
        )
        groups.setdefault(key, []).append(agent_share.agent)
    return [
        (
            agents[0] if len(agents) == 1 else f"each of {counted(len(agents), 'agent')}",
            LABELS[field],
            f"{100 * share:.4g} %",
            bytes_text(size),
            f"{tokens:,}",
            f"{blocks:,}",
        )
        for (field, share, blocks, tokens, size), agents in groups.items()
    ]


def band_rows(bands: Sequence[ShareBand]) -> list[ShareRow]:
    """Return each share as members read it, in ranges."""
    return [
        (
            "each agent",
            LABELS[band.field],
            f"{100 * band.share:.4g} %",
            f"{bytes_text(band.bytes_least)} to {bytes_text(band.bytes_most)}",
            f"{band.tokens_least:,} to {band.tokens_most:,}",
            "",
        )
        for band in bands
    ]


def _in_words(warning: PreviewWarning) -> str:
    if warning.code == "expires_now":
        return in_words(warning.message)
    return warning.message
