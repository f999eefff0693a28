// Drives a client made of openapi-typescript's types by openapi-fetch: what it got, as JSON. It has to type-check, strictly.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

function got<Data>(answer: { data?: Data; error?: unknown }): Data {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const [url, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: `${url}/api/v1`, headers: { Authorization: `Bearer ${token}` } });
const acme = { path: { org: "acme" } };
const chat = { path: { org: "acme", ns: "chat" } };
const revision = (number: number) => ({ ...chat, header: { "If-Match": `"${number}"` } });

got(await client.POST("/orgs", { body: { slug: "acme", name: "Acme" } }));
got(await client.POST("/orgs/{org}/namespaces", { params: acme, body: { slug: "chat" } }));
const key = got(await client.POST("/orgs/{org}/keys", { params: acme, body: { name: "ci", scopes: ["policy:read"] } }));
got(await client.PUT("/orgs/{org}/policy", {
  params: { ...acme, header: { "If-Match": '"0"' } },
  body: { policy: { kv_dtype: "int8" } },
}));

const policy: components["schemas"]["Policy"] = { ttl_seconds: 900 };
const body = { policy };
const preview = got(await client.POST("/orgs/{org}/namespaces/{ns}/policy/preview", { params: chat, body }));
const published = got(await client.PUT("/orgs/{org}/namespaces/{ns}/policy", { params: revision(0), body }));
const effective = got(await client.GET("/orgs/{org}/namespaces/{ns}/policy/effective", { params: chat }));
const canary: components["schemas"]["RolloutSpec"] = { strategy: "canary", guards: { min_requests: 5 } };
const stepwise = got(await client.PUT("/orgs/{org}/namespaces/{ns}/policy", {
  params: revision(1),
  body: { policy: { weight: 2 }, rollout: canary },
}));
const rolledBack = got(await client.POST("/orgs/{org}/namespaces/{ns}/policy/rollback", {
  params: revision(2),
  body: { revision: 1 },
}));
const purges = [
  got(await client.POST("/orgs/{org}/namespaces/{ns}/purge", { params: chat })),
  got(await client.POST("/orgs/{org}/namespaces/{ns}/purge", { params: chat, body: {} })),
  got(await client.POST("/orgs/{org}/purge", { params: acme, body: { include_pins: true } })),
];
const stats = got(await client.GET("/orgs/{org}/stats", { params: acme }));
const requests: number = stats.requests;
const table = got(await client.GET("/orgs/{org}/stats", {
  params: { ...acme, query: { format: "csv" } },
  parseAs: "text",
}));
const limits = got(await client.GET("/orgs/{org}/limits", { params: acme })).limits;
const maxKeys: number = limits.max_keys;

console.log(JSON.stringify({
  secret: key.secret?.slice(0, 4),
  effects: preview.expected_effect,
  published: published.policy,
  effective: effective.policy,
  origin: effective.origin,
  stepwise: stepwise.revision,
  rolled_back: rolledBack.policy,
  purges: purges.map((one) => one.operation),
  requests,
  table: table.split(",")[0],
  max_keys: maxKeys,
}));
