"""Leases: sequences lease the blocks they match in the index, add the blocks they fill, and release both.

A sequence leases its chain from the root down, so all blocks above a block in use are in use. Its namespace is charged
before pages are taken. A failed attempt restores everything, including the eviction order.
"""

from collections.abc import Sequence

from engine_agent.cache.books import DEVICE, Books, Hold, Namespace
from engine_agent.cache.departures import Departures
from engine_agent.cache.index import Chain, Run, TierCopy, Tree, add_run
from engine_agent.cache.keys import Digests, common_blocks
from engine_agent.cache.operations import Load
from engine_agent.cache.pinning import Pinning
from engine_agent.cache.tiers import Refused


class Holds:
    def __init__(self, books: Books, departures: Departures, pinning: Pinning) -> None:
        self._books = books
        self._departures = departures
        self._pinning = pinning

    def grab(self, hold: Hold, path: list[Run], depth: int, *, more_pages: int, now: float) -> list[int] | Refused:
        """Lease the first `depth` blocks of a path, take `more_pages`, and return all pages in order.

        Runs that exist only in a lower tier are loaded. On Refused, nothing is leased, taken or renewed.
        """
        books = self._books
        if path and depth < path[-1].end:
            path[-1] = books.split(path[-1], depth - path[-1].start)
        loads = [run for run in path if not run.copies[DEVICE]]
        needed = more_pages + sum(len(run.digests) for run in loads)
        if refused := self._refusal(hold, path, needed):
            return refused
        for run in path:
            self._use(hold.namespace, run)
        taken_pages = self.take(hold, needed, now)
        if path:  # eviction may have split a run of it, where a part of its host copy was evicted
            path = path[-1].from_root()
        if isinstance(taken_pages, Refused):  # only possible with mixed formats
            for run in reversed(path):
                self._unuse(hold.namespace, run)
            return taken_pages
        for run in loads:
            self._load(hold.namespace, run, taken_pages[: len(run.digests)])
            del taken_pages[: len(run.digests)]
        pages: list[int] = []
        for run in path:
            run.hits += 1
            copy = run.copies[DEVICE]
            assert copy
            pages += copy.pages.tolist()
        if path:
            hold.tree, hold.anchor, hold.depth = path[-1].tree, path[-1], depth
        hold.namespace.holds.add(hold)
        return pages + taken_pages

    def _refusal(self, hold: Hold, path: list[Run], pages: int) -> Refused | None:
        """Return why the pages cannot be taken, before the path is leased, so that a failed attempt costs little."""
        device, page_bytes = self._books.device, self._books.device.storage.page_bytes(hold.kv_format)
        reused_pages = sum(len(copy.pages) for run in path if (copy := run.copies[DEVICE]) and copy.is_listed)
        return (
            device.refusal(hold.namespace.accounts[DEVICE], pages * page_bytes, reused_pages * page_bytes)
            if pages
            else None
        )

    def take(self, hold: Hold, pages: int, now: float) -> list[int] | Refused:
        """Take pages for future blocks."""
        device = self._books.device
        return device.take(hold.namespace.accounts[DEVICE], hold.kv_format, pages, self._departures.evictor(now))

    def fill(self, hold: Hold, chain: Chain, pages: list[int], upto: int, now: float) -> None:
        """Make the written blocks up to `upto` matchable.

        `pages` is the sequence's block table. Where another sequence uses the same block, the table names that
        sequence's pages afterwards, unless tables are fixed.
        """
        if not hold.keeps:
            return
        namespace, digests = hold.namespace, chain.digests
        depth = hold.depth
        upto = self._own_alone(pages, depth, upto)
        if upto <= depth:  # and no empty tree is created
            return
        run = hold.anchor or self.tree_at(namespace, chain).top
        while depth < upto:
            child = run.children.get(digests[depth])
            if child is None:
                run, depth = self._add(hold, run, digests[depth:upto], pages[depth:upto], now), upto
            elif self._departures.expire(namespace, child, now):
                if not depth:  # expiry may have removed the tree with its last run
                    run = self.tree_at(namespace, chain).top
            else:
                shared = common_blocks(digests, depth, child.digests, upto)
                if shared < len(child.digests):
                    child = self._books.split(child, shared)
                self._meet(hold, child, pages, now)
                run, depth = child, depth + shared
        hold.tree, hold.anchor, hold.depth = run.tree, run, depth

    def fork(self, parent: Hold, child: Hold, pages: Sequence[int]) -> None:
        """Lease for another block table that names all of these pages."""
        parent.namespace.holds.add(child)
        child.keeps, child.purge = parent.keeps, parent.purge
        if child.purge:
            child.purge.holds_left += 1
        loose = self._books.loose
        if parent.tree and parent.tree.is_retired:
            private: Sequence[int] = pages
        else:
            child.tree, child.anchor, child.depth = parent.tree, parent.anchor, parent.depth
            private = pages[parent.depth :]
            run = parent.anchor
            while run and run.parent:
                run.holders += 1
                if self._is_stranger(run, pages):
                    run.strangers += 1
                    private = [*private, *pages[run.start : run.end]]
                run = run.parent
        for page in private:
            loose[page] = loose.get(page, 1) + 1

    def let_go(self, hold: Hold, pages: Sequence[int], now: float) -> None:
        """Release a sequence: runs that no other sequence leases become idle, and its private pages are freed."""
        namespace, departures = hold.namespace, self._departures
        namespace.holds.discard(hold)
        if hold.tree and hold.tree.is_retired:
            departures.let_go_pages(namespace, hold.kv_format, pages, hold.purge)
        else:
            departures.let_go_pages(namespace, hold.kv_format, pages[hold.depth :], hold.purge)
            self._release_chain(hold, pages, now)
        hold.tree = hold.anchor = None
        hold.depth = 0
        hold.keeps = False
        if hold.purge:
            hold.purge.holds_left -= 1
        departures.keep_within_limit(namespace, now)

    def tree_at(self, namespace: Namespace, chain: Chain) -> Tree:
        tree = namespace.trees.get(chain.root)
        if tree is None:
            tree = Tree(namespace.namespace, chain.root, chain.kv_format, chain.kin, len(self._books.tiers))
            namespace.add_tree(tree)
        return tree

    def _release_chain(self, hold: Hold, pages: Sequence[int], now: float) -> None:
        namespace, stamp = hold.namespace, self._books.next_stamp()
        zero = self._books.limits.zero_expired
        run = hold.anchor
        while run and run.parent:
            above = run.parent
            run.holders -= 1
            if self._is_stranger(run, pages):
                run.strangers -= 1
                own_pages = pages[run.start : run.end]
                self._departures.let_go_pages(namespace, hold.kv_format, own_pages, hold.purge, zero=zero)
            if not run.holders and not run.pins:
                self._departures.rest(namespace, run, now, stamp)
            run = above

    def _is_stranger(self, run: Run, pages: Sequence[int]) -> bool:
        """Return whether this table names other pages than the run has, from before the run expired."""
        if not run.strangers:
            return False
        copy = run.copies[DEVICE]
        return copy is None or copy.pages[0] != pages[run.start]

    def _use(self, namespace: Namespace, run: Run) -> None:
        run.holders += 1
        for tier, copy in zip(self._books.tiers, run.copies, strict=True):
            if copy and copy.is_listed and not self._is_shadow(run, tier.level):
                account = namespace.accounts[tier.level]
                account.remove(copy, tier.storage.page_bytes(run.tree.kv_format))
                tier.changed(account)

    def _unuse(self, namespace: Namespace, run: Run) -> None:
        run.holders -= 1
        if run.holders or run.pins:
            return
        for tier, copy in zip(self._books.tiers, run.copies, strict=True):
            if copy and not copy.is_listed:
                account = namespace.accounts[tier.level]
                account.put_back(copy, tier.storage.page_bytes(run.tree.kv_format))
                tier.changed(account, got_older=True)

    def _is_shadow(self, run: Run, level: int) -> bool:
        return any(run.copies[:level])

    def _load(self, namespace: Namespace, run: Run, pages: list[int]) -> None:
        """Load a run from the highest lower tier to the device. The copy there stays as a shadow."""
        books, kv_format = self._books, run.tree.kv_format
        tier, source = next((t, c) for t, c in zip(books.tiers, run.copies, strict=True) if c)
        books.operations.extend(Load(kv_format, was, page) for was, page in zip(source.pages, pages, strict=True))
        run.copies[DEVICE] = copy = TierCopy(run, pages)
        books.device.storage.assign(pages, copy)
        account = namespace.accounts[tier.level]
        account.add_shadow(source, tier.storage.page_bytes(kv_format))
        tier.changed(account)
        books.events.publish("loaded", run, run.digests, tier=DEVICE)
        namespace.counters.loaded_blocks += len(pages)

    def _add(self, hold: Hold, parent: Run, fresh: Digests, own_pages: list[int], now: float) -> Run:
        """Add new blocks: to the run above them if only this sequence uses it, or as a new run."""
        namespace, storage, blocks = hold.namespace, self._books.device.storage, len(own_pages)
        namespace.counters.inserted_blocks += blocks
        namespace.indexed_blocks += blocks
        if self._may_lengthen(hold, parent):
            copy = parent.copies[DEVICE]
            assert copy
            parent.digests += fresh
            parent.created += [now] * blocks
            copy.pages.extend(own_pages)
            storage.assign(own_pages, copy)
            self._books.events.publish("stored", parent, fresh, tier=DEVICE)
            return parent
        run = add_run(parent, fresh)
        run.holders = 1
        namespace.runs += 1
        self._settle(namespace, run, own_pages, hold.cap_seconds, now)
        self._books.events.publish("stored", run, fresh, tier=DEVICE)
        if run.tree.pins:
            self._pinning.cover(namespace, run)
        return run

    def _may_lengthen(self, hold: Hold, run: Run) -> bool:
        return bool(
            run.parent
            and not run.children
            and run.holders == 1
            and not run.strangers
            and not run.hits  # a hit run may be worth demotion; the blocks after it have not been hit yet
            and not run.pins
            and run.end >= run.tree.pinned_blocks
            and run.cap_seconds == hold.cap_seconds
            and run.copies[DEVICE]
            and not any(run.copies[1:])
        )

    def _meet(self, hold: Hold, run: Run, pages: list[int], now: float) -> None:
        """Handle a block that the sequence wrote and the index knows: in use, idle or hollow."""
        namespace, blocks = hold.namespace, len(run.digests)
        own_pages = pages[run.start : run.end]
        copy = run.copies[DEVICE]
        if run.is_hollow:
            namespace.counters.inserted_blocks += blocks
            namespace.indexed_blocks += blocks
            namespace.runs += 1
            namespace.ghosts.revive(run)
            run.hits = 0
            self._settle(namespace, run, own_pages, hold.cap_seconds, now)
            self._books.events.publish("stored", run, run.digests, tier=DEVICE)
        elif copy and (run.holders or run.pins):
            if self._books.limits.tables_are_fixed:
                run.strangers += 1  # the sequence keeps its own pages until it releases them
            else:
                pages[run.start : run.end] = copy.pages
                self._departures.let_go_pages(namespace, hold.kv_format, own_pages, hold.purge)
            namespace.counters.shared_blocks += blocks
        else:
            self._replace(namespace, run, own_pages, max(run.cap_seconds, hold.cap_seconds), now)
        run.holders += 1

    def _replace(self, namespace: Namespace, run: Run, own_pages: list[int], cap_seconds: float, now: float) -> None:
        """Give a run recomputed pages and a new creation time. An equal copy in a lower tier stays as a shadow."""
        kv_format = run.tree.kv_format
        was_on_device = run.copies[DEVICE]
        for tier, copy in zip(self._books.tiers, run.copies, strict=True):
            if not copy or (copy.is_listed and self._is_shadow(run, tier.level)):
                continue
            account, page_bytes = namespace.accounts[tier.level], tier.storage.page_bytes(kv_format)
            if copy.is_listed:
                account.remove(copy, page_bytes)
            if tier.level > DEVICE:
                account.add_shadow(copy, page_bytes)
            tier.changed(account)
        if was_on_device:
            self._books.device.give_back(namespace.accounts[DEVICE], kv_format, was_on_device.pages)
        else:
            self._books.events.publish("loaded", run, run.digests, tier=DEVICE)
        self._settle(namespace, run, own_pages, cap_seconds, now)

    def _settle(self, namespace: Namespace, run: Run, pages: list[int], cap_seconds: float, now: float) -> None:
        """Set the run's device pages, written now."""
        run.copies[DEVICE] = copy = TierCopy(run, pages)
        self._books.device.storage.assign(pages, copy)
        run.created = [now] * len(pages)
        run.cap_seconds = cap_seconds
        self._books.note_birth(namespace, run)
        self._books.await_end(namespace, run)

    def _own_alone(self, pages: Sequence[int], depth: int, upto: int) -> int:
        """Return up to which block only this table names the pages. Pages shared with a fork stay unindexed."""
        loose = self._books.loose
        if loose:
            for block in range(depth, upto):
                if loose.get(pages[block], 1) > 1:
                    return block
        return upto
