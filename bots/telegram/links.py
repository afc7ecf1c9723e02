"""Which addresses may be links, and whether a label says where its link leads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from markdown_it.common.normalize_url import normalizeLink

# No user name, whose look-alike hosts mislead, and nothing that two programs may read differently.
_WEB: Final = re.compile(r"https?://((?:[a-z0-9.-]+|\[[0-9a-f:.]+\]))(:\d+)?(?:[/?#].*)?", re.I)
_MAX_ADDRESS: Final = 2048
_HOSTS: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+")


@dataclass(frozen=True, slots=True)
class Web:
    url: str
    host: str


def web(address: str) -> Web | None:
    """The address when it may be a link: http or https, and one host that every program reads."""
    if len(address) > _MAX_ADDRESS:
        return None
    url = normalizeLink(address)
    match = _WEB.fullmatch(url)
    return Web(url, match[1].lower() + (match[2] or "")) if match else None


def names_only(label: str, host: str) -> bool:
    """Whether the label names this host and no other; "good.org via evil.org" does not."""
    named = {one.removeprefix("www.") for one in _HOSTS.findall(label.lower())}
    return named == {host.partition(":")[0].removeprefix("www.")}
