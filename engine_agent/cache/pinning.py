"""Apply pins to the index: which runs a pin covers, when it covers them, and what happens when it ends."""

import math

from engine_agent.cache.books import DEVICE, Books, Namespace
from engine_agent.cache.departures import Departures
from engine_agent.cache.errors import PinOverBudget, UnknownPin
from engine_agent.cache.index import Run, Tree
from engine_agent.cache.keys import common_blocks
from engine_agent.cache.pins import Pin, PinStatus, within_budget
from engine_agent.cache.tiers import Tier


class Pinning:
    def __init__(self, books: Books, departures: Departures) -> None:
        self._books = books
        self._departures = departures

    def add(self, namespace: Namespace, pin: Pin, now: float) -> None:
        """Add a pin, or replace the pin with the same id. Raises PinOverBudget."""
        other_pins = [
            other_pin
            for other_pin in namespace.pins.values()
            if other_pin.pin_id != pin.pin_id and other_pin.state == "active"
        ]
        left_bytes = namespace.accounts[DEVICE].shares.pin_bytes - sum(
            other_pin.wanted_bytes for other_pin in other_pins
        )
        if pin.wanted_bytes > left_bytes:
            raise PinOverBudget(pin.pin_id, wanted_bytes=pin.wanted_bytes, budget_bytes=left_bytes)
        pin.tree.pins += 1  # before the replaced pin is removed, and the tree with it
        replaced = namespace.pins.pop(pin.pin_id, None)
        namespace.pins[pin.pin_id] = pin
        if replaced:
            self._end(namespace, replaced, now)
        self._deepen(namespace, pin.tree)
        self._activate(namespace, pin)
        self._departures.keep_within_limit(namespace, now)

    def remove(self, namespace: Namespace, pin_id: str, now: float) -> None:
        pin = namespace.pins.pop(pin_id, None)
        if pin is None:
            raise UnknownPin(pin_id)
        self._end(namespace, pin, now)
        self.settle(namespace, now)

    def settle(self, namespace: Namespace, now: float) -> None:
        """Activate the oldest pins that the budget covers, after it or the rest of it changed. The others wait."""
        covered = within_budget(namespace.pins.values(), namespace.accounts[DEVICE].shares.pin_bytes)
        for pin in namespace.pins.values():
            if pin.state == "active" and pin.pin_id not in covered:
                self._deactivate(namespace, pin, now)
        for pin in namespace.pins.values():
            if pin.state == "over_budget" and pin.pin_id in covered:
                self._activate(namespace, pin)
        self._departures.keep_within_limit(namespace, now)

    def disable(self, namespace: Namespace, now: float) -> None:
        """Deactivate all pins while caching is off: they protect nothing and wait."""
        for pin in namespace.pins.values():
            if pin.state == "active":
                self._deactivate(namespace, pin, now)
            if pin.state == "over_budget":
                pin.state = "disabled"

    def purge(self, namespace: Namespace) -> None:
        """Mark all pins as purged until they are set again: their blocks and the key that identifies them are gone."""
        for pin in namespace.pins.values():
            pin.purge()
        purged = [pin for pin in namespace.pins.values() if pin.state == "purged"]
        for pin in purged[: -self._books.limits.purged_pins]:
            del namespace.pins[pin.pin_id]

    def end_due(self, namespace: Namespace, now: float) -> None:
        """End pins as of their `ends_at`, not of this call: the pinned blocks age from that moment."""
        due = sorted((pin for pin in namespace.pins.values() if pin.ends_at <= now), key=lambda pin: pin.ends_at)
        for pin in due:
            del namespace.pins[pin.pin_id]
            self._end(namespace, pin, pin.ends_at)
        if due:
            self.settle(namespace, now)

    def cover(self, namespace: Namespace, run: Run) -> None:
        """Count the pins that waited for the blocks of a new run. `run` is its lowest part afterwards."""
        ends = sorted(
            blocks
            for pin in namespace.pins.values()
            if pin.tree is run.tree and pin.state == "active" and (blocks := shared_blocks(pin, run))
        )
        start = run.start
        for blocks in ends:  # the nearest ends first, so that each part counts all pins that extend at least to its end
            end = start + blocks
            if run.start < end < run.end:
                self._books.split(run, end - run.start)
        for blocks in ends:
            part: Run | None = run
            while part and part.parent and part.start >= start:
                if part.end <= start + blocks:
                    part.pins += 1
                part = part.parent

    def status(self, pin: Pin) -> PinStatus:
        resident = [run for run in covered_runs(pin) if not run.is_hollow]
        blocks = sum(len(run.digests) for run in resident)
        page_bytes = self._books.device.storage.page_bytes(pin.tree.kv_format)
        return PinStatus(
            pin_id=pin.pin_id,
            owner=pin.owner,
            state=pin.state,
            wanted_blocks=pin.wanted_blocks,
            resident_blocks=blocks,
            resident_bytes=blocks * page_bytes,
            ends_at=pin.ends_at,
        )

    def next_end(self, namespace: Namespace) -> float:
        return min((pin.ends_at for pin in namespace.pins.values()), default=math.inf)

    def _end(self, namespace: Namespace, pin: Pin, at: float) -> None:
        if pin.state == "active":
            self._deactivate(namespace, pin, at)
        tree = pin.tree
        tree.pins -= 1
        self._deepen(namespace, tree)
        if not tree.pins and not tree.top.children and namespace.trees.get(tree.root) is tree:
            namespace.drop_tree(tree)

    def _deepen(self, namespace: Namespace, tree: Tree) -> None:
        """Update the depth of the tree's deepest pin."""
        depths = (pin.wanted_blocks for pin in namespace.pins.values() if pin.tree is tree)
        tree.pinned_blocks = max(depths, default=0)

    def _activate(self, namespace: Namespace, pin: Pin) -> None:
        pin.state = "active"
        if crossing_run := _run_across(pin):
            self._books.split(crossing_run, shared_blocks(pin, crossing_run))
        for run in covered_runs(pin):
            if not run.holders and not run.pins:
                self._unlist(namespace, run)
            run.pins += 1

    def _deactivate(self, namespace: Namespace, pin: Pin, at: float) -> None:
        pin.state = "over_budget"
        stamp = self._books.next_stamp()
        for run in reversed(covered_runs(pin)):
            run.pins -= 1
            if run.pins:
                continue
            if not run.holders:
                self._departures.rest(namespace, run, at, stamp)
            if not run.is_hollow:  # its TTL and age apply again
                self._books.note_birth(namespace, run)
                self._books.await_end(namespace, run)

    def _unlist(self, namespace: Namespace, run: Run) -> None:
        for tier, copy in zip(self._books.tiers, run.copies, strict=True):
            if copy and copy.is_listed and not any(run.copies[: tier.level]):
                account = namespace.accounts[tier.level]
                account.remove(copy, tier.storage.page_bytes(run.tree.kv_format))
                tier.changed(account)


def covered_runs(pin: Pin) -> list[Run]:
    """Return the runs in the tree that lie wholly within the pin's chain."""
    runs: list[Run] = []
    run, depth = pin.tree.top, 0
    while depth < len(pin.digests):
        child = run.children.get(pin.digests[depth])
        if child is None or shared_blocks(pin, child) < len(child.digests):
            break
        runs.append(child)
        run, depth = child, child.end
    return runs


def _run_across(pin: Pin) -> Run | None:
    """Return the run in which the pin ends or leaves the chain, unless that is at the run's end."""
    covered = covered_runs(pin)
    run = covered[-1] if covered else pin.tree.top
    return run.children.get(pin.digests[run.end]) if run.end < len(pin.digests) else None


def shared_blocks(pin: Pin, run: Run) -> int:
    """Return how many blocks of the run the pin's chain covers."""
    return common_blocks(pin.digests, run.start, run.digests, len(pin.digests))


def pinned_or_reserved_bytes(namespace: Namespace, device: Tier) -> int:
    """Return the bytes of a namespace's part of the device that are idle and that no other namespace can get."""
    account = namespace.accounts[DEVICE]
    return max(pinned_bytes(namespace, device), min(account.resident_bytes, account.shares.reserved_bytes))


def pinned_bytes(namespace: Namespace, device: Tier) -> int:
    """Return the bytes of the device that the namespace's active pins cover."""
    pinned = {id(run): run for pin in namespace.pins.values() if pin.state == "active" for run in covered_runs(pin)}
    pages = sum(len(copy.pages) for run in pinned.values() if (copy := run.copies[DEVICE]))
    formats = [pin.tree.kv_format for pin in namespace.pins.values() if pin.state == "active"]
    largest_page = max((device.storage.page_bytes(kv_format) for kv_format in formats), default=0)
    return pages * largest_page
