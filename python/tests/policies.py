"""Policies written in Python, in a module that worker processes can import."""

from collections import OrderedDict

import undercroft as uc


class Lru(uc.Policy):
    """Least recently used."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.order = OrderedDict()

    def __len__(self):
        return len(self.order)

    def __contains__(self, block):
        return block in self.order

    def residents(self):
        return list(self.order)

    def touch(self, block):
        self.order.move_to_end(block)

    def admit(self, block):
        victim = self.order.popitem(last=False)[0] if len(self.order) == self.capacity else None
        self.order[block] = None
        return victim

    def discard(self, block):
        self.order.pop(block, None)


class GhostFifo(Lru):
    """FIFO that remembers the blocks it evicted last, and reports so."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.ghosts = OrderedDict()

    def remembers(self, block):
        return block in self.ghosts

    def touch(self, block):
        pass

    def _evict(self):
        victim = self.order.popitem(last=False)[0]
        self.ghosts[victim] = None
        report = [(victim, "remembered")]
        while len(self.ghosts) > self.capacity:
            report.append((self.ghosts.popitem(last=False)[0], "forgotten"))
        return report

    def admit(self, block):
        self.ghosts.pop(block, None)
        report = self._evict() if len(self.order) == self.capacity else []
        self.order[block] = None
        return report

    def discard(self, block):
        super().discard(block)
        self.ghosts.pop(block, None)

    def resize(self, capacity):
        self.capacity = capacity
        report = []
        while len(self.order) > capacity:
            report += self._evict()
        while len(self.ghosts) > capacity:
            report.append((self.ghosts.popitem(last=False)[0], "forgotten"))
        return report
