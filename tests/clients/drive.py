"""Drives a generated Python client, in the environment that generated it: what it sent and got, as JSON."""

import json
import sys

from luminet_client import AuthenticatedClient  # type: ignore[import-not-found]
from luminet_client.api.namespaces import namespace_create, namespace_purge  # type: ignore[import-not-found]
from luminet_client.api.numbers import stats_get  # type: ignore[import-not-found]
from luminet_client.api.organisations import organisation_create, organisation_purge  # type: ignore[import-not-found]
from luminet_client.api.people_and_keys import key_create  # type: ignore[import-not-found]
from luminet_client.api.policies import (  # type: ignore[import-not-found]
    namespace_policy_effective,
    namespace_policy_get,
    namespace_policy_preview_post,
    namespace_policy_put,
    namespace_policy_rollback,
    organisation_policy_put,
)
from luminet_client.models import (  # type: ignore[import-not-found]
    Guards,
    KeyCreate,
    KeyCreateScopesItem,
    NamespaceCreate,
    OrganisationCreate,
    Policy,
    PolicyKvDtype,
    PolicyPut,
    Purge,
    Rollback,
    RolloutSpec,
    RolloutSpecStrategy,
)

url, token = sys.argv[1:]
CHAT = ("acme", "chat")
client = AuthenticatedClient(base_url=f"{url}/api/v1", token=token, raise_on_unexpected_status=True)
organisation = organisation_create.sync(client=client, body=OrganisationCreate(slug="acme", name="Acme"))
namespace_create.sync("acme", client=client, body=NamespaceCreate(slug="chat"))
key = key_create.sync("acme", client=client, body=KeyCreate(name="ci", scopes=[KeyCreateScopesItem.POLICYREAD]))
inherited = PolicyPut(policy=Policy(kv_dtype=PolicyKvDtype.INT8))
organisation_policy_put.sync("acme", client=client, if_match='"0"', body=inherited)

publish = PolicyPut(policy=Policy(ttl_seconds=900))
preview = namespace_policy_preview_post.sync(*CHAT, client=client, body=publish)
published = namespace_policy_put.sync(*CHAT, client=client, if_match='"0"', body=publish)
level = namespace_policy_get.sync(*CHAT, client=client)
effective = namespace_policy_effective.sync(*CHAT, client=client)
canary = RolloutSpec(strategy=RolloutSpecStrategy.CANARY, guards=Guards(min_requests=5))
stepwise = namespace_policy_put.sync(
    *CHAT, client=client, if_match='"1"', body=PolicyPut(policy=Policy(weight=2.0), rollout=canary)
)
rolled_back = namespace_policy_rollback.sync(*CHAT, client=client, if_match='"2"', body=Rollback(revision=1))
purges = [
    namespace_purge.sync(*CHAT, client=client),
    namespace_purge.sync(*CHAT, client=client, body=Purge(include_pins=True)),
    organisation_purge.sync("acme", client=client),
]
stats = stats_get.sync("acme", client=client)

print(
    json.dumps(
        {
            "organisation": organisation.slug,
            "secret": key.secret[:4],
            "sent": publish.to_dict(),
            "canary": canary.to_dict(),
            "effects": preview.expected_effect,
            "published": published.policy.to_dict(),
            "level": level.policy.to_dict(),
            "effective": effective.policy.to_dict(),
            "origin": effective.origin.to_dict(),
            "stepwise": stepwise.revision,
            "rolled_back": rolled_back.policy.to_dict(),
            "purges": [str(one.operation) for one in purges],
            "requests": stats.requests,
        }
    )
)
