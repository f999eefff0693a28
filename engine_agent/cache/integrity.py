"""Check the cache's state for consistency: once a minute in production, after each step in tests.

It must agree with itself and with the storage. Looks at each run and each sequence once, and at pages only by slices
and sets.
"""

from collections import Counter
from collections.abc import Collection, Iterator

from engine_agent.cache.books import DEVICE, Books, Namespace
from engine_agent.cache.index import Run, Tree
from engine_agent.cache.pinning import covered_runs
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.tiers import Tier


def problems(books: Books, sequences: Collection[Sequence]) -> list[str]:
    all_problems: list[str] = []
    for namespace in books.namespaces.values():
        all_problems += _namespace_problems(books, namespace)
    all_problems += _hold_problems(sequences)
    all_problems += _page_problems(books, sequences)
    for tier in books.tiers:
        all_problems += _tier_problems(books, tier)
    return all_problems


def _namespace_problems(books: Books, namespace: Namespace) -> Iterator[str]:
    name, blocks, runs = namespace.namespace, 0, 0
    for tree in namespace.trees.values():
        for run in tree.runs():
            yield from (f"{name}: {problem}" for problem in _run_problems(run))
            if not run.is_hollow:
                blocks += len(run.digests)
                runs += 1
        if tree.is_retired or (not tree.top.children and not tree.pins):
            yield f"{name}: a tree that is retired or empty is still registered"
    for hold in namespace.holds:
        if hold.tree and not hold.tree.is_retired and namespace.trees.get(hold.tree.root) is not hold.tree:
            yield f"{name}: a sequence holds a tree that nobody finds"
    yield from _pin_problems(namespace)
    counters = namespace.counters
    removed_blocks = (
        counters.expired_blocks + counters.evicted_blocks + counters.quota_blocks
        + counters.purged_blocks + counters.disabled_blocks
    )  # fmt: skip
    if blocks != namespace.indexed_blocks or runs != namespace.runs:
        yield f"{name}: {blocks} blocks in {runs} runs, noted are {namespace.indexed_blocks} in {namespace.runs}"
    if counters.inserted_blocks != removed_blocks + blocks:
        yield f"{name}: {counters.inserted_blocks} blocks inserted, {removed_blocks} gone and {blocks} there"
    for tier, account in zip(books.tiers, namespace.accounts, strict=True):
        idle = sum(
            len(copy.pages) * tier.storage.page_bytes(copy.run.tree.kv_format)
            for listed in (account.idle, account.shadows)
            for copy in listed
        )
        if idle != account.idle_bytes:
            yield f"{name}: {idle} bytes idle in {tier.name}, noted are {account.idle_bytes}"


def _run_problems(run: Run) -> Iterator[str]:
    location = f"run at block {run.start}"
    if len(run.created) != len(run.digests) and not run.is_hollow:
        yield f"{location}: {len(run.digests)} digests and {len(run.created)} times of creation"
    if run.parent is None or run.parent.children.get(run.digests[0]) is not run or run.parent.end != run.start:
        yield f"{location}: not where its parent leads"
    if run.is_hollow and not run.children and not run.holders and not run.ghost:
        yield f"{location}: hollow, and leads nowhere"
    if not 0 <= run.strangers <= run.holders:
        yield f"{location}: {run.strangers} of {run.holders} holders are strangers"
    if sum(child.holders for child in run.children.values()) > run.holders:
        yield f"{location}: {run.holders} holders, fewer than below it"
    for level, copy in enumerate(run.copies):
        if copy and len(copy.pages) != len(run.digests):
            yield f"{location}: {len(copy.pages)} pages for {len(run.digests)} blocks"
        if copy and copy.is_listed and (run.holders or run.pins) and not any(run.copies[:level]):
            yield f"{location}: idle, with {run.holders} holders and {run.pins} pins"
        if copy and not copy.is_listed and not run.holders and not run.pins:
            yield f"{location}: in no list, and in nobody's use"


def _pin_problems(namespace: Namespace) -> Iterator[str]:
    """Check that each run counts exactly the active pins that cover it."""
    pinned: Counter[int] = Counter()
    for pin in namespace.pins.values():
        if pin.state == "active" and namespace.trees.get(pin.tree.root) is not pin.tree:
            yield f"{namespace.namespace}: pin {pin.pin_id} is on a tree that nobody finds"
        if pin.state == "active":
            pinned.update(id(run) for run in covered_runs(pin))
    for tree in namespace.trees.values():
        for run in tree.runs():
            if run.pins != pinned[id(run)]:
                yield f"{namespace.namespace}: {run.pins} pins noted, {pinned[id(run)]} cover the run at {run.start}"


def _hold_problems(sequences: Collection[Sequence]) -> Iterator[str]:
    """Check that each run has as many holders as there are sequences whose chain leads through it."""
    holder_counts: Counter[int] = Counter()
    runs: dict[int, Run] = {}
    for sequence in sequences:
        hold = sequence.hold
        run = hold.anchor if hold and hold.tree and not hold.tree.is_retired else None
        if hold and run and run.end != hold.depth:
            yield f"{sequence.namespace}: a sequence holds {hold.depth} blocks by a run that ends at {run.end}"
        while run and run.parent:
            holder_counts[id(run)] += 1
            runs[id(run)] = run
            run = run.parent
    for number, run in runs.items():
        if holder_counts[number] != run.holders:
            yield f"{run.tree.namespace}: {run.holders} holders noted, {holder_counts[number]} sequences hold the run"


def _page_problems(books: Books, sequences: Collection[Sequence]) -> Iterator[str]:
    """Check that each account is charged for exactly its own pages, and that the sum equals what the storage has
    allocated.

    The storage's own check verifies that no page is in the index twice, because it knows the one owner of each page.
    """
    charged: Counter[tuple[int, str]] = Counter()
    page_bytes = books.device.storage.page_bytes
    for tree in _trees(books):
        pages = sum(len(copy.pages) for run in tree.runs() if (copy := run.copies[DEVICE]))
        serial = books.namespaces[tree.namespace].accounts[DEVICE].serial
        charged[serial, tree.kv_format] += pages * page_bytes(tree.kv_format)
    loose: set[int] = set()
    for sequence in sequences:
        own_pages = set(_loose_pages(sequence)) - loose
        loose |= own_pages
        serial = sequence.owner.accounts[DEVICE].serial
        charged[serial, sequence.kv_format] += len(own_pages) * page_bytes(sequence.kv_format)
    accounts = {namespace.accounts[DEVICE].serial: namespace for namespace in books.namespaces.values()}
    accounts |= {sequence.owner.accounts[DEVICE].serial: sequence.owner for sequence in sequences}
    for serial, namespace in accounts.items():
        account = namespace.accounts[DEVICE]
        for kv_format in account.resident_by_format | {
            name: 0 for account_serial, name in charged if account_serial == serial
        }:
            recorded_bytes, actual_bytes = account.resident_by_format.get(kv_format, 0), charged[serial, kv_format]
            if recorded_bytes != actual_bytes:
                yield (
                    f"{namespace.namespace}: charged for {recorded_bytes} bytes of {kv_format} on the device, "
                    f"holds {actual_bytes}"
                )
        if account.resident_bytes != (total := sum(account.resident_by_format.values())):
            yield f"{namespace.namespace}: charged for {account.resident_bytes} bytes, {total} over all formats"
    used = books.device.storage.used_bytes
    if used != sum(charged.values()):
        yield f"the device has {used} bytes in use, {sum(charged.values())} are somebody's"
    if orphaned_pages := books.loose.keys() - loose:
        yield f"{len(orphaned_pages)} pages are noted as named by tables, and no table names them"


def _loose_pages(sequence: Sequence) -> Iterator[int]:
    """Iterate over the pages of a sequence's block table that are in no index."""
    hold = sequence.hold
    if hold is None or hold.tree is None or hold.tree.is_retired:
        yield from sequence.pages
        return
    yield from sequence.pages[hold.depth :]
    run = hold.anchor
    while run and run.parent:
        copy = run.copies[DEVICE]
        own_pages = sequence.pages[run.start : run.end]
        if run.strangers and (copy is None or copy.pages.tolist() != own_pages):
            yield from own_pages
        elif copy is None or copy.pages[0] != own_pages[0] or copy.pages[-1] != own_pages[-1]:
            yield -1  # neither its own nor the run's: charged to no account, so the sums will differ
        run = run.parent


def _tier_problems(books: Books, tier: Tier) -> Iterator[str]:
    yield from (f"{tier.name}: {problem}" for problem in tier.storage.check())
    evictable = sum(namespace.accounts[tier.level].evictable_bytes for namespace in books.namespaces.values())
    if evictable != tier.evictable_bytes:
        yield f"{tier.name}: {evictable} bytes can be evicted, noted are {tier.evictable_bytes}"
    for namespace in books.namespaces.values():
        account = namespace.accounts[tier.level]
        if account.over_limit_bytes and account.idle_bytes:
            excess_bytes = account.over_limit_bytes
            yield f"{namespace.namespace}: {excess_bytes} bytes over its limit of {tier.name}, with idle blocks"


def _trees(books: Books) -> Iterator[Tree]:
    for namespace in books.namespaces.values():
        yield from namespace.trees.values()
