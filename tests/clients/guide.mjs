// What a guide for hosted engines shows, word for word but for the address, the key and the model, which are the caller's.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });

const { data, response } = await client.chat.completions
  .create({
    model,
    messages: [{ role: "user", content: "What does the module json do?" }],
    max_tokens: 4,
    extra_body: { kv_cache_dtype: "int4" },
  })
  .withResponse();

console.log(
  JSON.stringify({
    kv_dtype: response.headers.get("x-luminet-kv-dtype"),
    cache_hit: response.headers.get("x-luminet-cache-hit"),
    prompt_tokens: data.usage.prompt_tokens,
  }),
);
