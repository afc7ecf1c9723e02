"""Server tools: those that the model's provider runs itself, inside an answer (Anthropic's).

Their calls and results are blocks of the answer, kept as they came (`core.pairs`); nothing is run
here. Names and options: the request types of the SDK (2.14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from core.errors import ToolError
from core.tools import Tool

# By name: the newest version, those one may ask for instead, and what can be set.
_ALL: Final[Mapping[str, tuple[str, frozenset[str], frozenset[str]]]] = {
    "web_search": (
        "web_search_20260318",
        frozenset({"web_search_20250305", "web_search_20260209"}),
        frozenset(
            {
                "max_uses",
                "allowed_domains",
                "blocked_domains",
                "user_location",
                "allowed_callers",
                "response_inclusion",
            }
        ),
    ),
    "web_fetch": (
        "web_fetch_20260318",
        frozenset({"web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309"}),
        frozenset(
            {
                "max_uses",
                "allowed_domains",
                "blocked_domains",
                "max_content_tokens",
                "citations",
                "allowed_callers",
                "response_inclusion",
                "url_sources",
                "use_cache",
            }
        ),
    ),
    "code_execution": (
        "code_execution_20260521",
        frozenset({"code_execution_20250825", "code_execution_20260120"}),
        frozenset({"allowed_callers"}),
    ),
}

NAMES: Final = tuple(_ALL)


def name_of(wanted: str) -> str | None:
    """The server tool that this names, by its name or with a version; None: it is none."""
    for name, (newest, others, _) in _ALL.items():
        if wanted in (name, newest) or wanted in others:
            return name
    return None


def server_tool(wanted: str, options: Mapping[str, Any] | None = None) -> Tool:
    """
    :param wanted: ``web_search``, ``web_fetch`` or ``code_execution``: the newest version; or a
        version by its full name
    :param options: as the API names them: ``max_uses``, ``allowed_domains``, ...
    :raises ValueError: there is no such tool, or it has no such option
    """
    name = name_of(wanted)
    if name is None:
        raise ValueError(f"{wanted}: no such server tool; there are {', '.join(NAMES)}")
    newest, _, known = _ALL[name]
    options = dict(options or {})
    for option in options:
        if option not in known:
            raise ValueError(f"{name}: no such option: {option}; there are {_listed(known)}")
    if options.get("allowed_domains") and options.get("blocked_domains"):
        raise ValueError(f"{name}: set allowed_domains or blocked_domains, not both")
    version = newest if wanted == name else wanted
    return Tool(
        name=name,
        function=_elsewhere,
        arguments=None,
        context_parameter=None,
        repeatable=False,
        timeout=60.0,
        json=msgspec.Raw(msgspec.json.encode({"type": version, "name": name, **options})),
        server=True,
        origin=f"run by Anthropic ({version})",
    )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _elsewhere(arguments: Mapping[str, Any]) -> str:
    raise ToolError("This tool is not run here.")
