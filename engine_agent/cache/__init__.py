"""The block manager: plain ints, an injected clock, no torch, no I/O, one thread.

Start reading at `manager` (with `sequences` and `waiting`), which works on requests and block tables. `prefixes` works
on digests and pages. `holds`, `departures` and `pinning` change the state in `books`. `index` and `keys` say which
blocks exist; `expiry`, `quota`, `eviction` and `tiers` how long they stay and for which namespace; `reasons`, `ledger`,
`events` and `gaps` record what happened. `pool` allocates the pages behind `storage`, and `operations` lists what the
engine must do to their bytes.

Terms: a *run* is a stretch of consecutive blocks of one chain with the same lifetime; it is *hollow* when it keeps its
position in the tree but has no pages. A sequence *leases* the runs of its chain (`Hold`). It is a foreign holder of a
run (`strangers`) when the run's pages were recomputed after the sequence's own had expired. *Loose* pages are in block
tables but in no index. A *shadow* is a copy in a lower tier of a run that also has a copy in a higher tier. Chains of
equal prompts in different KV formats are *kin*.
"""
