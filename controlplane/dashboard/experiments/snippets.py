"""Code for developers to copy: a first request in three languages that prints its cache hit. Pure.

No snippet contains a secret: the key comes from the environment, and its prefix shows which key to use.
"""

from dataclasses import dataclass
from typing import Final

NO_GATEWAY: Final = "https://your-gateway"
NO_KEY: Final = "lmk_"
NO_MODEL: Final = "your-model"


@dataclass(frozen=True, slots=True)
class Snippet:
    slug: str
    label: str
    before: str
    code: str


def snippets(*, gateway: str, prefix: str, model: str, namespace: str) -> tuple[Snippet, ...]:
    base, key, model = f"{gateway or NO_GATEWAY}/v1", f"{prefix or NO_KEY}…", model or NO_MODEL
    header_namespace = "" if namespace == "default" else namespace
    return (
        Snippet("python", "Python", "pip install openai", _python(base, key, model, header_namespace)),
        Snippet("javascript", "JavaScript", "npm install openai", _javascript(base, key, model, header_namespace)),
        Snippet("curl", "curl", "", _curl(base, key, model, header_namespace)),
    )


def _python(base: str, key: str, model: str, namespace: str) -> str:
    header_option = f'\n    default_headers={{"x-luminet-namespace": "{namespace}"}},' if namespace else ""
    return f"""import os
from openai import OpenAI

client = OpenAI(
    base_url="{base}",
    api_key=os.environ["LUMINET_API_KEY"],  # {key}{header_option}
)
raw = client.chat.completions.with_raw_response.create(
    model="{model}",
    messages=[
        {{"role": "system", "content": "Everything that never changes."}},
        {{"role": "user", "content": "What changes, last."}},
    ],
)
print(raw.headers["x-luminet-cache-hit"], "% of the prompt came from the cache")
print(raw.parse().choices[0].message.content)"""


def _javascript(base: str, key: str, model: str, namespace: str) -> str:
    header_option = f'\n  defaultHeaders: {{ "x-luminet-namespace": "{namespace}" }},' if namespace else ""
    return f"""import OpenAI from "openai";

const client = new OpenAI({{
  baseURL: "{base}",
  apiKey: process.env.LUMINET_API_KEY, // {key}{header_option}
}});
const {{ data, response }} = await client.chat.completions
  .create({{
    model: "{model}",
    messages: [
      {{ role: "system", content: "Everything that never changes." }},
      {{ role: "user", content: "What changes, last." }},
    ],
  }})
  .withResponse();
console.log(response.headers.get("x-luminet-cache-hit"), "% of the prompt came from the cache");
console.log(data.choices[0].message.content);"""


def _curl(base: str, key: str, model: str, namespace: str) -> str:
    header_option = f'  -H "x-luminet-namespace: {namespace}" \\\n' if namespace else ""
    return f"""# LUMINET_API_KEY: {key}
curl -sS -D - "{base}/chat/completions" \\
  -H "Authorization: Bearer $LUMINET_API_KEY" \\
  -H "Content-Type: application/json" \\
{header_option}  -d '{{
    "model": "{model}",
    "messages": [
      {{"role": "system", "content": "Everything that never changes."}},
      {{"role": "user", "content": "What changes, last."}}
    ]
  }}'"""
