"""Chunked lists: each page of one consistent list, for as long as it is kept."""

import secrets
from collections import OrderedDict

from infra.cluster.port import Object, ObjectList
from infra.errors import Gone

LISTS_KEPT = 64


class Pages:
    """Lists that somebody reads page by page; the oldest is forgotten, as history is on a real server."""

    def __init__(self) -> None:
        self._lists: OrderedDict[str, ObjectList] = OrderedDict()

    def first(self, whole: ObjectList, limit: int) -> ObjectList:
        """The first page of a list; limit 0 is all of it."""
        if not limit or len(whole.items) <= limit:
            return whole
        key = secrets.token_hex(8)
        self._lists[key] = whole
        if len(self._lists) > LISTS_KEPT:
            self._lists.popitem(last=False)
        return self._page(key, 0, limit)

    def next(self, token: str, limit: int) -> ObjectList:
        """The page that a continue token stands for; asking twice gives the same page.

        Raises:
            Gone: the list is not kept any more.
        """
        key, _, start = token.partition(".")
        if key not in self._lists or not start.isdigit():
            raise Gone(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return self._page(key, int(start), limit)

    def remaining(self, page: ObjectList) -> int:
        """How many objects come after a page."""
        key, _, start = page.continue_.partition(".")
        return len(self._lists[key].items) - int(start) if page.continue_ else 0

    def _page(self, key: str, start: int, limit: int) -> ObjectList:
        whole = self._lists[key]
        self._lists.move_to_end(key)
        end = start + limit if limit else len(whole.items)
        items: list[Object] = whole.items[start:end]
        return ObjectList(items, whole.resource_version, f"{key}.{end}" if end < len(whole.items) else "")
