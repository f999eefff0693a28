"""The block manager: plain ints, an injected clock, no torch, no I/O, one thread.

Read from the face down: `manager` (with `sequences`, `waiting`) speaks of requests and block tables; `prefixes` of
digests and pages; `holds`, `departures` and `pinning` change the state in `books`; under them `index` and `keys` say
what there is, `expiry`, `quota`, `eviction` and `tiers` how long and for whom, `reasons`, `ledger`, `events` and `gaps`
what is remembered; `pool` keeps the pages behind `storage`, and `operations` is what the engine has to do to their
bytes.

Words that are used everywhere: a *run* is consecutive blocks of one chain that live alike; it is *hollow* when its
pages are gone and its place is not. A sequence *holds* the runs of its chain; it is a *stranger* to one whose pages
were computed anew after its own had expired. *Loose* pages are in block tables but in no index. A *shadow* is a copy in
a lower tier of what is also in a better one. Chains of equal prompts in different KV formats are *kin*.
"""
