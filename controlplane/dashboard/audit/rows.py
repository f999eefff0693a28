"""Records of the audit trail as pages show them: actor, action, target, and changed values. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.policies.fields import POLICY_PATH, value_words, what_words

MOST_CHANGES = 12  # of one record; the page counts the rest
MOST_WORDS = 160  # characters of one value
KINDS = {
    "operator": "operator",
    "operator-token": "operator's token",
    "member": "member",
    "key": "key",
    "visitor": "by a link",
    "system": "Luminet itself",
}
DEEDS = {
    "agent.enrol": "Agent joined",
    "agent.revoke": "Agent shut out",
    "agent.rotate-token": "Agent's token renewed",
    "agent.update": "Agent changed",
    "backup.endings": "Endings carried over from a copy of the trail",
    "backup.restore": "Brought back from a backup",
    "bounds.set": "Bounds set",
    "cache.purge": "Cache purged",
    "group.create": "Agent group created",
    "group.delete": "Agent group deleted",
    "join-token.create": "Join token created",
    "join-token.revoke": "Join token revoked",
    "key.create": "Key created",
    "key.revoke": "Key revoked",
    "limits.set": "Limits set",
    "member.invite": "Member invited",
    "member.invite-again": "Member invited again",
    "member.join": "Member joined",
    "member.remove": "Member removed",
    "member.update": "Member's role changed",
    "namespace.create": "Namespace created",
    "namespace.delete": "Namespace deleted",
    "namespace.remove": "Namespace's rows removed",
    "namespace.update": "Namespace changed",
    "operator-token.create": "Operator's token created",
    "operator-token.revoke": "Operator's token revoked",
    "operator.create": "Operator created",
    "operator.take-over": "Operator's account taken over",
    "organisation.create": "Organisation created",
    "organisation.delete": "Organisation deleted",
    "organisation.remove": "Organisation's rows removed",
    "organisation.update": "Organisation changed",
    "password.change": "Password changed",
    "password.reset": "Password reset",
    "password.reset-link": "Link to a new password issued",
    "pin.create": "Pin created",
    "pin.delete": "Pin removed",
    "policy.publish": "Policy published",
    "policy.rollback": "Policy rolled back",
    "prices.set": "Prices set",
    "quality.override": "Quality verdict overridden",
    "quality.record": "Quality recorded",
}
MISSING = object()


@dataclass(frozen=True, slots=True)
class TrailChange:
    """One changed value; None where none existed. `field` is its path or a label."""

    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class TrailRow:
    """One record. `view` is from tenants.audit.record_seen, without what this reader may not see."""

    view: Mapping[str, Any]
    changes: Sequence[TrailChange]
    unshown: int

    @property
    def kind(self) -> str:
        kind: str = self.view["actor"]["kind"]
        return KINDS.get(kind, kind)

    @property
    def deed(self) -> str:
        verb: str = self.view["verb"]
        return DEEDS.get(verb) or verb.replace(".", " ").replace("-", " ").capitalize()


def trail_row(record: Mapping[str, Any]) -> TrailRow:
    changes = list(changes_of(record["before"], record["after"]))
    return TrailRow(record, changes[:MOST_CHANGES], max(0, len(changes) - MOST_CHANGES))


def changes_of(before: Any, after: Any) -> Iterator[TrailChange]:
    """Yield the changed values, sorted by path; for a new object without empty values."""
    old, new = dict(_values(before, "")), dict(_values(after, ""))
    is_new = before is None
    for field in sorted({*old, *new}):
        was, became = old.get(field, MISSING), new.get(field, MISSING)
        if was != became and not (is_new and became in (None, "", [])):
            yield _change(field, was, became)


def _change(path: str, was: Any, became: Any) -> TrailChange:
    """Return the change. A policy's value reads as on the policy page."""
    match = POLICY_PATH.fullmatch(path)
    if match is None:
        return TrailChange(path or "value", _words(was), _words(became))
    name = match["field"]
    before, after = (None if value is MISSING else value_words(name, value) for value in (was, became))
    return TrailChange(what_words(name, match["model"]), before, after)


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path. A list of plain values is one leaf; an empty object has none."""
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _values(child, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(child, Mapping | list) for child in value):
        for number, child in enumerate(value, 1):
            yield from _values(child, f"{path}.{number}" if path else str(number))
    elif value is not None or path:
        yield path, value


def _words(value: Any) -> str | None:
    if value is MISSING:
        return None
    text = _plain(value)
    return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 1]}…"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_plain(element) for element in value) or "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
