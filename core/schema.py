"""From a function to what a model must know of it: a struct of its arguments, and a JSON schema.

Types come from hints, descriptions from the docstring, in the form of ``:param name: text`` or of
an ``Args:`` section; `Annotated[..., Meta(description=...)]` says more, and wins.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

_FIELD: Final = re.compile(r"^:(\w+)\s*([^:]*):(.*)$")
_SECTION: Final = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$")
_ARGUMENT: Final = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:(.*)$")
_OF_ARGUMENTS: Final = ("Args", "Arguments", "Parameters")


class Described(NamedTuple):
    """A docstring, taken apart: what it says of all, and of each parameter."""

    text: str
    parameters: dict[str, str]


class Signature(NamedTuple):
    """
    :param arguments: what a model sends is converted into it, and so checked
    :param context_parameter: the parameter that gets the context, when one does
    """

    arguments: type[msgspec.Struct]
    context_parameter: str | None


def described(function: object) -> Described:
    lines = (inspect.getdoc(function) or "").splitlines()
    said: list[str] = []
    parameters: dict[str, list[str]] = {}
    section = ""
    into: list[str] | None = said
    for line in lines:
        bare, indented = line.strip(), line.startswith((" ", "\t"))
        if found := _FIELD.match(line):
            kind, name, text = found.groups()
            into = None
            if kind == "param" and name.split():
                into = parameters.setdefault(name.split()[-1], [text.strip()])
        elif found := _SECTION.match(line):
            section, into = found[1], None
        elif section and bare and not indented:
            section, into = "", said
            said.append(line)
        elif section in _OF_ARGUMENTS and (found := _ARGUMENT.match(bare)):
            into = parameters.setdefault(found[1], [found[2].strip()])
        elif into is said:
            said.append(line)
        elif into is not None and bare:
            into.append(bare)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(said)).strip()
    return Described(text, {name: " ".join(words).strip() for name, words in parameters.items()})


def signature(
    function: Callable[..., Any],
    label: str,
    context: type,
    descriptions: dict[str, str],
    *,
    bound: bool = True,
) -> Signature:
    """
    :param label: the tool's name, for errors
    :param context: a parameter with this type gets the context
    :param bound: False: it is a class's method, whose first parameter is the object
    :raises TypeError: a parameter has no type hint, or cannot be given by its name
    """
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    context_parameter = None
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters if bound else parameters[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {label}: {parameter} cannot be given by its name")
        if parameter.name not in hints:
            raise TypeError(f"tool {label}: parameter {parameter.name!r} needs a type hint")
        hint = hints[parameter.name]
        if hint is context:
            context_parameter = parameter.name
            continue
        if text := descriptions.get(parameter.name):
            hint = _with_description(hint, text)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    arguments = msgspec.defstruct(label, fields, kw_only=True, forbid_unknown_fields=True)
    return Signature(arguments, context_parameter)


def _with_description(hint: Any, text: str) -> Any:
    if get_origin(hint) is Annotated:
        for each in get_args(hint)[1:]:
            if isinstance(each, msgspec.Meta) and each.description:
                return hint
    return Annotated[hint, msgspec.Meta(description=text)]


def schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """
    :raises TypeError: a type that has no JSON schema
    """
    (root,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = dict(components.pop(root["$ref"].removeprefix("#/$defs/")))
    schema.pop("title", None)
    return {**schema, "$defs": components} if components else schema
