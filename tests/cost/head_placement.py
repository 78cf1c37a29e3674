"""Heads of attention on several devices, by trying every placement."""

from functools import cache


def most_keys(queries: int, keys: int, devices: int) -> int:
    """The fewest heads of keys that the device with most of them needs, where the heads of queries are spread evenly.

    A device has heads of queries in a row, no more than a device must have, and each head of keys that they use.
    """
    longest, shared = -(-queries // devices), queries // keys

    @cache
    def best(begin: int, left: int) -> int:
        if begin == queries:
            return 0
        if not left:
            return queries + 1
        ends = range(begin + 1, min(begin + longest, queries) + 1)
        return min(max(len({head // shared for head in range(begin, end)}), best(end, left - 1)) for end in ends)

    return best(0, devices)
