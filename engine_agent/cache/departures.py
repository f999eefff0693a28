"""Removal of blocks: they are evicted, demoted, expired or purged. Pages that left the index in use are freed later.

Each departure is recorded in the namespace's ghosts and counters, in the ledger and in the events.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from engine_agent.cache.books import DEVICE, Books, Namespace, Purge
from engine_agent.cache.expiry import age_ends, idle_ends, life_ends
from engine_agent.cache.index import Ghost, GoneReason, Run, TierCopy, Tree, prune
from engine_agent.cache.keys import Digests
from engine_agent.cache.ledger import Cause, Pair
from engine_agent.cache.operations import Demote
from engine_agent.cache.quota import Account
from engine_agent.cache.tiers import Evict, Refused, Tier


class Departures:
    def __init__(self, books: Books) -> None:
        self._books = books

    def evict(
        self, tier: Tier, account: Account, copy: TierCopy, blocks: int, cause: Cause, asker: Account, *, now: float
    ) -> None:
        """Evict the last `blocks` of an idle run: demote them if the policy allows it, otherwise drop them."""
        books, run = self._books, copy.run
        namespace = books.namespaces[account.namespace]
        if blocks < len(run.digests):
            books.split(run, len(run.digests) - blocks)
        if self._demotes(namespace, tier, run, now):
            self._demote(namespace, tier, run, asker, cause, now)
        elif self._has_other(run, tier):
            self._record(namespace, tier, run, asker, cause, now, is_kept=True)
            books.events.publish("removed", run, run.digests, tier=tier.level)
            self._drop_copy(namespace, tier, copy)
        else:
            self._record(namespace, tier, run, asker, cause, now)
            self.vacate(namespace, run, Ghost(_gone(cause), asker.namespace, now))

    def evictor(self, now: float) -> Evict:
        return partial(self.evict, now=now)

    def expire(self, namespace: Namespace, run: Run, now: float) -> int:
        """Remove the expired part of a run from the index and return its number of blocks."""
        if run.is_hollow or run.pins or life_ends(run, namespace.policy) > now:
            return 0
        if run.holders or idle_ends(run, namespace.policy) > now:  # so its age has ended; later blocks may be younger
            seconds = age_ends(run, namespace.policy) - run.created[0]
            old = bisect_right(run.created, now, key=lambda created: created + seconds)
            if old < len(run.digests):
                run = self._books.split(run, old)
        blocks = len(run.digests)
        self.vacate(namespace, run, Ghost("expired", None, now), zero=self._books.limits.zero_expired)
        return blocks

    def vacate(self, namespace: Namespace, run: Run, ghost: Ghost, *, zero: bool = False) -> None:
        """Remove a run from the index in all tiers. Sequences that use its pages keep them until they release them."""
        books = self._books
        levels = [level for level, copy in enumerate(run.copies) if copy]
        for level in levels:
            books.events.publish("removed", run, run.digests, tier=level, is_gone=level == levels[-1])
        self._give_up(namespace, run, zero=zero)
        namespace.runs -= 1
        namespace.indexed_blocks -= len(run.digests)
        namespace.counters.count_gone(ghost.reason, len(run.digests))
        namespace.ghosts.add(run, ghost)
        for forgotten in namespace.ghosts.forget_beyond(books.ghost_bound):
            self.tidy(namespace, forgotten)

    def lose(self, namespace: Namespace, run: Run, page: int, now: float) -> None:
        """Remove a block whose page has wrong content, and all blocks below it, from every tier."""
        copy = run.copies[DEVICE]
        assert copy
        if sound := copy.pages.index(page):
            self._books.split(run, sound)
        ghost = Ghost("evicted", None, now)
        for damaged_run in [candidate for candidate in (run, *run.below()) if not candidate.is_hollow]:
            namespace.counters.damaged_blocks += len(damaged_run.digests)
            self.vacate(namespace, damaged_run, ghost)

    def tidy(self, namespace: Namespace, run: Run) -> None:
        """Remove structure that leads nowhere, and the tree when it is empty."""
        tree = run.tree
        prune(run)
        if not tree.top.children and not tree.pins and namespace.trees.get(tree.root) is tree:
            namespace.drop_tree(tree)

    def rest(self, namespace: Namespace, run: Run, at: float, stamp: int) -> None:
        """Make a run idle that no sequence uses any more: from now on it ages and can be evicted."""
        run.released, run.stamp = at, stamp
        for tier, copy in zip(self._books.tiers, run.copies, strict=True):
            if copy and not copy.is_listed:
                account = namespace.accounts[tier.level]
                account.add_idle(copy, tier.storage.page_bytes(run.tree.kv_format))
                tier.changed(account)
        if run.is_hollow:
            self.tidy(namespace, run)
        else:
            self._books.await_end(namespace, run)

    def keep_within_limit(self, namespace: Namespace, now: float) -> None:
        """Evict idle blocks above a limit: after the limit was lowered, and when blocks above it become idle."""
        for tier, account in zip(self._books.tiers, namespace.accounts, strict=True):
            if account.over_limit_bytes:
                tier.enforce_limit(account, self.evictor(now))

    def retire(self, namespace: Namespace, tree: Tree, purge: Purge) -> None:
        """Remove a whole tree permanently: nothing in it can match any more, and no ghost of it remains."""
        self._books.events.publish("cleared", tree.top, Digests(), tier=DEVICE)
        for run in tree.runs():
            if run.is_hollow:
                continue
            blocks = len(run.digests)
            purge.blocks += 0 if run.holders > run.strangers else blocks
            purge.bytes += self._give_up(namespace, run, zero=True)
            namespace.runs -= 1
            namespace.indexed_blocks -= blocks
            namespace.counters.purged_blocks += blocks
        namespace.drop_tree(tree)
        tree.is_retired = True

    def let_go_pages(
        self, namespace: Namespace, kv_format: str, pages: Sequence[int], purge: Purge | None, *, zero: bool = False
    ) -> None:
        """Remove one table's reference to these unindexed pages. Free those that no table names any more."""
        device = self._books.device
        free = self._unnamed(pages)
        if not free:
            return
        device.give_back(namespace.accounts[DEVICE], kv_format, free)
        if purge:
            purge.blocks += len(free)
            purge.bytes += len(free) * device.storage.page_bytes(kv_format)
        if purge or zero:
            self._books.zero(device, kv_format, free)

    def _unnamed(self, pages: Sequence[int]) -> list[int]:
        loose = self._books.loose
        if not loose:
            return list(pages)
        free = []
        for page in pages:
            tables = loose.pop(page, 1) - 1
            if tables > 1:
                loose[page] = tables
            elif not tables:
                free.append(page)
        return free

    def _demotes(self, namespace: Namespace, tier: Tier, run: Run, now: float) -> bool:
        limits, policy = self._books.limits, namespace.policy
        deepest = {"none": DEVICE, "host": 1, "disk": 2}[policy.offload]
        return (
            tier.level < min(deepest, len(self._books.tiers) - 1)
            and self._books.tiers[tier.level + 1].has_format(run.tree.kv_format)
            and run.hits >= limits.demote_after_hits
            and life_ends(run, policy) - now >= limits.demote_least_seconds
            and not self._has_other(run, tier)
        )

    def _demote(self, namespace: Namespace, tier: Tier, run: Run, asker: Account, cause: Cause, now: float) -> None:
        """Move a run to the tier below, if that can make room. Of a partial fit, the blocks nearest the root move."""
        below = self._books.tiers[tier.level + 1]
        account = namespace.accounts[below.level]
        pages, refused = self._room_below(account, below, run, now)
        if pages:
            moved_run = run if not refused else self._books.split(run, len(pages))
            self._record(namespace, tier, moved_run, asker, cause, now, is_kept=True)
            self._move_down(namespace, tier, below, moved_run, pages)
        if refused:
            self._record(namespace, tier, run, asker, cause, now)
            by, reason = (account, _refused(refused)) if pages else (asker, _gone(cause))
            self.vacate(namespace, run, Ghost(reason, by.namespace, now))

    def _room_below(self, account: Account, below: Tier, run: Run, now: float) -> tuple[list[int], Refused | None]:
        """Take pages for as many of the run's blocks as fit, step by step, so that only those are charged."""
        kv_format, needed_pages = run.tree.kv_format, len(run.digests)
        step = below.pages_in_step(kv_format)
        pages: list[int] = []
        while len(pages) < needed_pages:
            taken_pages = below.take(account, kv_format, min(step, needed_pages - len(pages)), self.evictor(now))
            if isinstance(taken_pages, Refused):
                return pages, taken_pages
            pages += taken_pages
        return pages, None

    def _move_down(self, namespace: Namespace, tier: Tier, below: Tier, run: Run, pages: list[int]) -> None:
        books, account, kv_format = self._books, namespace.accounts[below.level], run.tree.kv_format
        copy = run.copies[tier.level]
        assert copy
        run.copies[below.level] = lower = TierCopy(run, pages)
        below.storage.assign(pages, lower)
        account.add_shadow(lower, below.storage.page_bytes(kv_format))
        below.changed(account)
        books.operations.extend(
            Demote(kv_format, page, host_page) for page, host_page in zip(copy.pages, pages, strict=True)
        )
        books.events.publish("demoted", run, run.digests, tier=below.level)
        namespace.counters.demoted_blocks += len(pages)
        self._drop_copy(namespace, tier, copy)

    def _record(
        self,
        namespace: Namespace,
        tier: Tier,
        run: Run,
        asker: Account,
        cause: Cause,
        now: float,
        is_kept: bool = False,
    ) -> None:
        pair = Pair(namespace.namespace, asker.namespace, cause, tier.name)
        blocks = len(run.digests)
        size = blocks * tier.storage.page_bytes(run.tree.kv_format)
        self._books.ledger.record(pair, blocks=blocks, size=size, demoted=is_kept, now=now)

    def _drop_copy(self, namespace: Namespace, tier: Tier, copy: TierCopy) -> None:
        """Drop an idle run's copy in one tier. It keeps its copy in another."""
        run, kv_format = copy.run, copy.run.tree.kv_format
        account = namespace.accounts[tier.level]
        account.remove(copy, tier.storage.page_bytes(kv_format))
        run.copies[tier.level] = None
        tier.give_back(account, kv_format, copy.pages)
        remaining_copies = [
            (remaining_tier, remaining_copy)
            for remaining_tier, remaining_copy in zip(self._books.tiers, run.copies, strict=True)
            if remaining_copy
        ]
        best, best_copy = remaining_copies[0]
        if tier.level < best.level:  # its shadow is now its only copy
            account, page_bytes = namespace.accounts[best.level], best.storage.page_bytes(kv_format)
            account.remove(best_copy, page_bytes)
            account.add_idle(best_copy, page_bytes)

    def _give_up(self, namespace: Namespace, run: Run, *, zero: bool) -> int:
        """Give up a run's copies: free their pages, or leave them to block tables. Return the freed bytes."""
        books, kv_format, freed_bytes = self._books, run.tree.kv_format, 0
        for tier, copy in zip(books.tiers, run.copies, strict=True):
            if not copy:
                continue
            tables = run.holders - run.strangers
            if tier.level == DEVICE and tables:
                if tables > 1:
                    books.loose.update(dict.fromkeys(copy.pages, tables))
                tier.storage.assign(copy.pages, None)
                continue
            account, page_bytes = namespace.accounts[tier.level], tier.storage.page_bytes(kv_format)
            if copy.is_listed:
                account.remove(copy, page_bytes)
            tier.give_back(account, kv_format, copy.pages)
            freed_bytes += len(copy.pages) * page_bytes
            if zero:
                books.zero(tier, kv_format, copy.pages)
        run.copies = [None] * len(run.copies)
        run.strangers = run.holders
        return freed_bytes

    def _has_other(self, run: Run, tier: Tier) -> bool:
        return any(copy for level, copy in enumerate(run.copies) if level != tier.level)


def _gone(cause: Cause) -> GoneReason:
    return "quota" if cause == "quota" else "evicted"


def _refused(refused: Refused) -> GoneReason:
    return "quota" if refused.reason == "limit" else "evicted"
