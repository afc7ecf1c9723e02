"""What others bring along: an object from a Python file, or from an entry point.

A file is loaded by its path, so that the current folder never gets onto ``sys.path``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from bots.media import Transcribe
from bots.secrets import redacting
from bots.sections import guarded
from core.adapter import Adapter
from core.command import Command, command_of
from core.errors import ConfigError
from core.tools import Tool, tool


def load_object(place: str, base: Path, group: str | None = None) -> Any:
    """
    :param place: ``path/to/file.py:name``, relative to `base`, or the name of an entry point
    :param group: where an entry point is looked for
    :raises ConfigError: there is none, or it cannot be loaded
    """
    file, colon, name = place.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(base / file, name)
    if group is not None:
        for entry in entry_points(group=group, name=place):
            try:
                return entry.load()
            except Exception as error:
                raise ConfigError(
                    f"{place}: cannot be loaded: {type(error).__name__}: {error}"
                ) from error
    kinds = '"path/to/file.py:name"' + (f" or an entry point of {group}" if group else "")
    raise ConfigError(f"{place!r}: want {kinds}")


def _from_file(file: Path, name: str) -> Any:
    if not file.is_file():
        raise ConfigError(f"{file}: no such file")
    # A name of its own for each file, so that two files of one name are two modules.
    label = f"chinwag_file_{sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    module = sys.modules.get(label)
    if module is None:
        spec = importlib.util.spec_from_file_location(label, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[label] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[label]
            raise ConfigError(
                f"{file}: cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(f"{file}: there is no {name!r} in it") from None


def load_tools(place: str, base: Path) -> tuple[Tool, ...]:
    """A Tool, a function or a class of which one is made, or a list of these.

    :raises ConfigError: there is nothing of that kind
    """
    found = load_object(place, base, group="chinwag.tools")
    several = found if isinstance(found, list | tuple) else (found,)
    return tuple(replace(_tool(each, place), origin=place) for each in several)


def _tool(found: Any, place: str) -> Tool:
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise ConfigError(f"{place}: is neither a tool nor a function")
    try:
        return tool(found)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: {error}") from error


def load_command(name: str, place: str, base: Path) -> Command:
    """A Command under this name, or a plain function that is made one."""
    found = load_object(place, base, group="chinwag.commands")
    where = f"[commands] {name}"
    try:
        if isinstance(found, Command):
            return replace(found, name=name)
        if callable(found) and not isinstance(found, type):
            return command_of(found, name)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    raise ConfigError(f"{where}: {place} is neither a command nor a function")


def load_transcriber(place: str, base: Path) -> Transcribe:
    """A function that writes down what is spoken in a recording, see `bots.media.Transcribe`.

    :raises ConfigError: there is none
    """
    found = load_object(place, base, group="chinwag.transcribers")
    if not callable(found):
        raise ConfigError(f"[media] transcriber: {place} is no function")
    transcribe: Transcribe = found
    return transcribe


def load_adapter(name: str, use: str, options: Mapping[str, Any], base: Path) -> Adapter:
    """
    :param options: the other keys of its section; checked by the class's own `Settings`, a
        pydantic model or a msgspec Struct, and given to the class as its one argument. A class
        without `Settings` takes no options and no argument
    """
    made = load_object(use, base, group="chinwag.adapters")
    where = f"[adapters.{name}]"
    # What somebody else's class says of a value may have the value in it.
    redact = redacting(guarded(options))
    try:
        adapter = made(*_arguments(made, options, where, use))
    except ConfigError as error:
        raise ConfigError(redact(str(error))) from None
    except Exception as error:
        why = redact(f"{type(error).__name__}: {error}")
        raise ConfigError(f"{where}: {use} cannot be made: {why}") from error
    if not isinstance(adapter, Adapter):
        raise ConfigError(f"{where}: {use} is no Adapter; see core/adapter.py")
    return adapter


def _arguments(made: Any, options: Mapping[str, Any], where: str, use: str) -> tuple[Any, ...]:
    model = getattr(made, "Settings", None)
    if model is not None:
        return (_checked(model, options, where),)
    if options:
        raise ConfigError(f"{where}: no such key: {', '.join(options)}; {use} has no settings")
    return ()


def _checked(model: type[Any], options: Mapping[str, Any], where: str) -> Any:
    unknown = _unknown(model, options)
    if unknown:
        raise ConfigError("\n".join(f"{where} {key}: no such key" for key in unknown))
    try:
        if issubclass(model, BaseModel):
            return model(**options)
        return msgspec.convert(dict(options), model)
    except ValidationError as error:
        lines = [
            f"{where} {'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise ConfigError("\n".join(lines)) from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _unknown(model: type[Any], options: Mapping[str, Any]) -> list[str]:
    """Keys that the model has no field for. Both libraries pass over them by default, and a slip
    of the pen would go unseen; a model that says what shall happen to them is not interfered with.
    """
    if issubclass(model, msgspec.Struct):
        known = set(model.__struct_encode_fields__)
    elif issubclass(model, BaseModel) and model.model_config.get("extra") is None:
        fields = model.model_fields
        if any(field.validation_alias not in (None, field.alias) for field in fields.values()):
            return []
        known = {*fields, *(field.alias for field in fields.values() if field.alias)}
    else:
        return []
    return [key for key in options if key not in known]
