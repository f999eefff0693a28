"""Bodies for alerts and alert rules."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StringConstraints

from controlplane.alerts.services import LARGEST, LONGEST_FOR, LONGEST_SILENCE
from controlplane.alerts.webhooks import URL_LENGTH
from controlplane.api.schemas.base import FutureMoment, Given, OneTimeSecret, Taken, example
from controlplane.api.schemas.tenants import ID, WHEN, GroupSlug, Name

AlertState = Annotated[
    Literal["firing", "resolved"], Field(description="`firing` until the value has come back, and stayed for a while.")
]
MetricName = Literal[
    "pool_use",
    "hit_ratio",
    "evictions",
    "preemptions",
    "silence",
    "drift",
    "disk_wait",
    "clock_skew",
    "reconciliation",
    "reconciliation_age",
    "audit_anchors",
    "audit_anchor_age",
    "isolation",
    "isolation_timing",
    "integrity",
    "refused_rows",
]
Unit = Annotated[
    Literal["share", "times", "seconds", "count", "tokens"],
    Field(description="What value and threshold are of: `share` is 0 to 1, `times` a multiple of the usual."),
]
Comparison = Annotated[Literal["above", "below"], Field(description="Beyond the threshold is above it, or below it.")]
Number = Annotated[float, Field(ge=0, le=LARGEST)]
Threshold = Annotated[Number, Field(strict=False, description="In the metric's unit. The value itself is not beyond.")]
ClearsAt = Annotated[
    Number | None,
    Field(strict=False, description="How far it has to come back; null: a tenth further back than the threshold."),
]
Seconds = Annotated[int, Field(ge=0, le=LONGEST_FOR)]
ForSeconds = Annotated[Seconds, Field(description="How long on end the value has to be beyond before it fires.")]
ClearForSeconds = Annotated[
    Seconds,
    Field(description="How long on end it has to be back before that is over; customers' rules take 60 or more."),
]
LeastTokens = Annotated[
    int, Field(ge=0, le=int(LARGEST), description="With fewer prompt tokens in 15 minutes nothing is known.")
]
WebhookUrl = Annotated[
    str,
    StringConstraints(max_length=URL_LENGTH),
    Field(description="Told that it fires and that it is over; https. Empty: nobody is told."),
]
Place = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9-]{1,63}(/[a-z0-9-]{1,63})?$"),
    Field(description="`fleet`, an organisation, or organisation/namespace. Left out: all that is the caller's."),
]
AlertNote = Annotated[str, StringConstraints(max_length=500), Field(description="What is being done about it.")]

EVENT = {"at": WHEN, "what": "fired", "by": None, "words": None, "value": 0.31}
ALERT = {
    "id": ID,
    "rule": "A namespace misses more than it hits",
    "rule_id": ID,
    "built_in": "hit_ratio_low",
    "metric": "hit_ratio",
    "unit": "share",
    "place": "acme/chat",
    "agent": None,
    "state": "firing",
    "value": 0.31,
    "has_data": True,
    "comparison": "below",
    "threshold": 0.5,
    "words": "acme/chat: 31.0 % of its prompt tokens came from the cache in the last 5 minutes; "
    "the rule is below 50.0 % for 15 min.",
    "next_step": "See by which reason its tokens were missed.",
    "since": WHEN,
    "fired_at": WHEN,
    "resolved_at": None,
    "silenced_until": None,
    "acknowledged": {"by": "kim@acme.example", "at": WHEN, "note": "Prompt template is being changed"},
    "history": [EVENT],
}
RULE = {
    "id": ID,
    "built_in": None,
    "name": "Chat is cold",
    "scope": "namespace",
    "place": "acme/chat",
    "metric": "hit_ratio",
    "unit": "share",
    "comparison": "below",
    "threshold": 0.7,
    "clears_at": 0.77,
    "for_seconds": 600,
    "clear_for_seconds": 60,
    "least_prompt_tokens": 5000,
    "enabled": True,
    "webhook_url": "https://hooks.acme.example/luminet",
    "created_by": "ci",
    "created_at": WHEN,
}
SECRET = "lmw_" + "0" * 43 + "2Kx9aB"


class AlertEventShown(Given):
    """One line of an alert's history."""

    model_config = ConfigDict(json_schema_extra=example(**EVENT))

    at: datetime
    what: Literal["fired", "resolved", "acknowledged", "silenced", "unsilenced", "delivered", "not_delivered"]
    by: str | None = Field(description="Null: Luminet itself.")
    words: str | None
    value: float | None


class AcknowledgedShown(Given):
    """Who has seen it."""

    model_config = ConfigDict(json_schema_extra=example(by="kim@acme.example", at=WHEN, note=""))

    by: str
    at: datetime
    note: str


class AlertShown(Given):
    """One time that a rule fired for one place."""

    model_config = ConfigDict(json_schema_extra=example(**ALERT))

    id: UUID
    rule: str = Field(description="The rule's name, as it was when it fired.")
    rule_id: UUID | None = Field(description="Null where the rule is gone, or not the caller's to see.")
    built_in: str | None = Field(description="Which built-in rule it is; null: one that somebody made.")
    metric: MetricName
    unit: Unit
    place: str = Field(description="What it is about: an agent, or organisation/namespace.")
    agent: str | None
    state: AlertState
    value: float = Field(description="The newest that was known; once it is over, the one that ended it.")
    has_data: bool = Field(description="Whether anything is known right now. Without, an alert stays what it was.")
    comparison: Comparison
    threshold: float
    words: str = Field(description="What was the matter when it fired, as a sentence.")
    next_step: str
    since: datetime = Field(description="When the value went beyond the threshold.")
    fired_at: datetime
    resolved_at: datetime | None
    silenced_until: datetime | None
    acknowledged: AcknowledgedShown | None
    history: list[AlertEventShown] = Field(description="Oldest first.")


class AlertAcknowledge(Taken):
    """Says that somebody looks after it."""

    model_config = ConfigDict(json_schema_extra=example(note="Prompt template is being changed"))

    note: AlertNote = ""


ACKNOWLEDGE = AlertAcknowledge()  # without a body


class AlertSilence(Taken):
    """Give one of the two. `seconds`: 0 ends a silence."""

    model_config = ConfigDict(json_schema_extra=example(seconds=7_200))

    until: FutureMoment | None = Field(default=None, description="Until when nothing is sent of it.")
    seconds: Annotated[int, Field(ge=0, le=int(LONGEST_SILENCE.total_seconds()))] | None = Field(
        default=None, description="The same from now on."
    )


class AlertRuleCreate(Taken):
    """`place` and `group` say what it watches; a rule about agents takes the fleet or a group."""

    model_config = ConfigDict(
        json_schema_extra=example(
            name="Chat is cold",
            place="acme/chat",
            metric="hit_ratio",
            comparison="below",
            threshold=0.7,
            for_seconds=600,
            least_prompt_tokens=5000,
            webhook_url="https://hooks.acme.example/luminet",
        )
    )

    name: Name
    place: Place | None = None
    group: GroupSlug | None = Field(default=None, description="Watch this agent group alone. For operators.")
    metric: MetricName = Field(description="What is measured; docs/alerts.md says where and how.")
    comparison: Comparison
    threshold: Threshold
    clears_at: ClearsAt = None
    for_seconds: ForSeconds = 300
    clear_for_seconds: ClearForSeconds = 60
    least_prompt_tokens: LeastTokens = 0
    enabled: bool = Field(default=True, description="Whether it is evaluated; one that is not fires nothing.")
    webhook_url: WebhookUrl = ""


class AlertRuleUpdate(Taken):
    """What is left out stays. With another `threshold` and no `clears_at`, that follows."""

    model_config = ConfigDict(json_schema_extra=example(threshold=0.6, enabled=True))

    name: Name | None = None
    threshold: Threshold | None = None
    clears_at: ClearsAt = None
    for_seconds: ForSeconds | None = None
    clear_for_seconds: ClearForSeconds | None = None
    least_prompt_tokens: LeastTokens | None = None
    enabled: bool | None = Field(default=None, description="Whether it is evaluated; one that is not fires nothing.")
    webhook_url: WebhookUrl | None = None
    rotate_secret: bool = Field(default=False, description="Whether webhooks are signed with a new secret from now on.")


class AlertRuleShown(Given):
    """When something is an alert."""

    model_config = ConfigDict(json_schema_extra=example(**RULE))

    id: UUID
    built_in: str | None = Field(description="Built-in rules can be changed and disabled, not deleted.")
    name: str
    scope: Literal["fleet", "group", "organisation", "namespace"]
    place: str
    metric: MetricName
    unit: Unit
    comparison: Comparison
    threshold: float
    clears_at: float
    for_seconds: int
    clear_for_seconds: int
    least_prompt_tokens: int
    enabled: bool
    webhook_url: str | None
    created_by: str
    created_at: datetime


class AlertRuleMade(AlertRuleShown):
    """With the secret that its webhooks are signed with, where that is new: it is shown now and never again."""

    model_config = ConfigDict(json_schema_extra=example(**RULE, webhook_secret=SECRET))

    webhook_secret: OneTimeSecret
