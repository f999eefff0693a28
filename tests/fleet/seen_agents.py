"""Agents as the database knows them, with what they hold and answered: for pages to show."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from controlplane.analytics.models import Minute, Residence, Series
from controlplane.analytics.partitions import partitions_ensure
from controlplane.fleet.models import Agent
from tenants.models import Namespace, Organisation
from tenants.services.namespaces import default_group

HASH, OTHER = "a" * 64, "b" * 64


def make_agent(name: str = "agent-1", **details: Any) -> Agent:
    """One that is ready and in sync, unless said otherwise."""
    engine = {"boot": "b1", "state": "ready", "why": None, "hash": HASH}
    heartbeat = {"engine": engine, "load": {"running": 2, "waiting": 1}}
    told: dict[str, Any] = {
        "kind": "engine",
        "group": default_group(),
        "token_hash": name.encode().ljust(32, b"."),
        "about": {
            "backend": "paged",
            "version": "0.1.0",
            "models": [{"name": "luminet-demo", "revision": "r", "kv_dtypes": ["fp8"], "context_tokens": 8192}],
            "kv_dtypes": ["fp8"],
            "pool": {"capacity_bytes": 200, "block_tokens": 16, "block_bytes": {}},
        },
        "heartbeat": {**heartbeat, "pool": {"capacity_bytes": 200, "used_bytes": 100}},
        "last_seen_at": timezone.now(),
        "desired_hash": HASH,
        "applied_hash": HASH,
        "applied_generation": 7,
    }
    return Agent.objects.create(id=name, **{**told, **details})


def make_vllm_agent(name: str = "agent-1", formats: tuple[str, ...] = ("fp8_e4m3", "fp8"), **details: Any) -> Agent:
    """One with vLLM, as its sidecar tells it."""
    model = {"name": "luminet-demo", "revision": "r", "kv_dtypes": [*formats], "context_tokens": 8192}
    about = {
        "backend": "vllm",
        "backend_version": "0.32.0",
        "version": "0.1.0",
        "models": [model],
        "kv_dtypes": [*formats],
        "computed_as": dict.fromkeys(formats[1:], formats[0]),
        "pool": {"capacity_bytes": 200, "block_tokens": 32, "block_bytes": {}},
    }
    return make_agent(name, about=about, **details)


def hold(agent: str, organisation: Organisation, slug: str, size: int = 0, **formats: int) -> None:
    """`formats`: bytes of each; left out where the agent tells none."""
    namespace = Namespace.objects.get(organisation=organisation, slug=slug)
    Residence.objects.create(
        agent=agent,
        namespace_id=namespace.pk,
        boot="b1",
        resident_bytes=size or sum(formats.values()),
        formats=formats,
        at=timezone.now(),
    )


def count_minute(
    agent: str,
    organisation: Organisation,
    slug: str,
    kv_dtype: str,
    *,
    prompt: int,
    cached: int,
    at: datetime | None = None,
) -> None:
    """One request that an agent answered."""
    minute = (at or timezone.now()).replace(second=0, microsecond=0)
    partitions_ensure([minute.date()])
    namespace = Namespace.objects.get(organisation=organisation, slug=slug)
    series, _ = Series.objects.get_or_create(
        agent=agent,
        organisation_id=organisation.pk,
        namespace_id=namespace.pk,
        model="m",
        kv_dtype=kv_dtype,
        kind="customer",
    )
    Minute.objects.create(
        series_id=series.pk, minute=minute, requests=1, prompt_tokens=prompt, cached_tokens=cached, times=[]
    )
