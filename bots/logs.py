"""What the log looks like: readable lines or JSON lines, one per record, without secrets.

Underneath there is only the standard library's logging: events (`core.events`) and what libraries
say leave through one handler on the root logger, and redaction is the last thing that happens to
them. It writes no files and rotates none: that is for whoever runs the program.
"""

from __future__ import annotations

import json as jsonlib
import logging
import math
import os
import re
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol, TextIO

from bots.secrets import redacting

# At INFO and DEBUG they print tokens in URLs, whole bodies and dumps of objects.
NOISY: Final = (
    "aiohttp",
    "aiosqlite",
    "anthropic",
    "asyncio",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "markdown_it",
    "slack_bolt",
    "slack_sdk",
    "telegram",
    "uvicorn",
)
REPEAT_SECONDS: Final = 60.0
_MOST_REPEATS: Final = 256  # different warnings that are remembered at a time
_LONGEST_VALUE: Final = 2_000  # characters
_LONGEST_TRACEBACK: Final = 20_000

_BOLD, _FAINT, _RED, _YELLOW = "1", "2", "31", "33"

Redact = Callable[[str], str]


def setup_logging(
    json: bool = False,
    level: str = "info",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Make the root logger write to `stream`, instead of where an earlier call sent it.

    :param json: one JSON object a line, not readable lines
    :param level: ``debug``, ``info``, ``warning`` or ``error``
    :param secrets: values that must never be shown; token shapes are taken out besides
    :param stream: None: standard error
    """
    out = stream or sys.stderr
    redact = redacting(secrets)
    lines = JsonLines(redact) if json else ReadableLines(redact, colours=_wants_colours(out))
    number = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, LineHandler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(LineHandler(out, lines, redact))
    root.setLevel(number)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, number))


def _wants_colours(stream: TextIO) -> bool:
    # https://no-color.org
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Lines(Protocol):
    """A way to write records."""

    def body(self, record: logging.LogRecord) -> str:
        """All but the time. Two records with the same body say the same."""
        ...

    def line(self, at: float, body: str, repeated: int) -> str:
        """
        :param at: seconds since 1970
        :param repeated: how often it has been said since the last line; 0 or 1: just now
        """
        ...


class LineHandler(logging.Handler):
    """Writes each record in one piece: formatted, then redacted, then nothing more."""

    def __init__(self, stream: TextIO, lines: Lines, redact: Redact) -> None:
        super().__init__()
        self._stream = stream
        self._lines = lines
        self._redact = redact
        self._repeats = Repeats()
        self.addFilter(_is_wanted)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            body = self._lines.body(record)
            warns = record.levelno >= logging.WARNING
            due = self._repeats.due(record.created, body if warns else None)
            for line in due:
                self._write(*line)
            if not warns:
                self._write(record.created, body, 0)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        try:
            for line in self._repeats.rest():
                self._write(*line)
        except (OSError, ValueError):
            pass  # the stream was closed before us, and there is no other place to say so
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        # The standard one prints message and arguments, and nobody would redact them.
        try:
            self._stream.write(f"a log record of {record.name!r} could not be written\n")
        except (OSError, ValueError):
            pass  # as above

    def _write(self, at: float, body: str, repeated: int) -> None:
        text = self._redact(self._lines.line(at, body, repeated)) + "\n"
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


def _is_wanted(record: logging.LogRecord) -> bool:
    # A library that sets the level of its own logger when it is imported does not get around this.
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] not in NOISY


class Due(NamedTuple):
    """A line to be written now."""

    at: float
    body: str
    repeated: int


class Repeats:
    """Who says the same again is heard once a minute, with a count. Forgets what is over."""

    def __init__(self) -> None:
        # body -> when it was written, when it was last said, how often since it was written;
        # what was written longest ago comes first.
        self._said: OrderedDict[str, tuple[float, float, int]] = OrderedDict()

    def due(self, now: float, body: str | None) -> Iterator[Due]:
        """What is to be written now that `body` is being said (None: nothing that could repeat)."""
        if body is not None:
            yield from self._say(now, body)
        while self._said:
            other, (written, _, _) = next(iter(self._said.items()))
            if _within(written, now) and len(self._said) <= _MOST_REPEATS:
                return
            yield from self._end(other, now)

    def rest(self) -> Iterator[Due]:
        """What is left to say at the end."""
        while self._said:
            body, (_, last, count) = self._said.popitem(last=False)
            if count:
                yield Due(last, body, count)

    def _say(self, now: float, body: str) -> Iterator[Due]:
        written, _, count = self._said.get(body, (now, now, -1))
        if count >= 0 and _within(written, now):
            self._said[body] = (written, now, count + 1)
            return
        self._said[body] = (now, now, 0)
        self._said.move_to_end(body)
        yield Due(now, body, count + 1)

    def _end(self, body: str, now: float) -> Iterator[Due]:
        _, last, count = self._said.pop(body)
        if count:
            # Its next minute begins: it may go on.
            if len(self._said) < _MOST_REPEATS:
                self._said[body] = (now, now, 0)
            yield Due(last, body, count)


def _within(written: float, now: float) -> bool:
    return 0 <= now - written < REPEAT_SECONDS  # a clock that was set back ends the minute


class ReadableLines:
    """``12:34:56 accepted        telegram-chat:123 ms=0.4``, local time; tracebacks below."""

    def __init__(self, redact: Redact, *, colours: bool = False) -> None:
        self._redact = redact
        self._colours = colours

    def body(self, record: logging.LogRecord) -> str:
        event = _event(record)
        if event is None:
            words = [_printable(record.name).ljust(15), self._plain(_message(record))]
        else:
            key = event.get("key")
            words = [self._colour(_BOLD, self._plain(record.getMessage()).ljust(15))]
            words += [self._plain(key)] if key is not None else []
            words += [f"{name}={self._value(v)}" for name, v in event.items() if name != "key"]
        if record.levelno >= logging.WARNING:
            colour = _RED if record.levelno >= logging.ERROR else _YELLOW
            words.insert(0, self._colour(colour, record.levelname))
        below = _short(_traceback(record), self._redact, _LONGEST_TRACEBACK).splitlines()
        return "\n    ".join([" ".join(words).rstrip(), *(_printable(line) for line in below)])

    def line(self, at: float, body: str, repeated: int) -> str:
        clock = self._colour(_FAINT, time.strftime("%H:%M:%S", time.localtime(at)))
        first, *below = body.split("\n")
        times = f" (repeated {repeated} times)" if repeated > 1 else ""
        return "\n".join([f"{clock} {first}{times}", *below])

    def _plain(self, value: object) -> str:
        return _printable(_short(str(value), self._redact))

    def _value(self, value: object) -> str:
        if isinstance(value, float):
            return f"{value:.3f}".rstrip("0").rstrip(".")
        if type(value) is int:
            return str(value)
        if value is None or isinstance(value, bool):
            return jsonlib.dumps(value)
        text = self._plain(_dump(value) if isinstance(value, list | tuple | dict) else value)
        quote = '"'
        if re.fullmatch(r'[^\s"=]+', text):
            return text
        return quote + text.replace(quote, "\\" + quote) + quote

    def _colour(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text


class JsonLines:
    """``{"time": ..., "level": ..., "event": ..., "key": ..., ...}``, time in UTC."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    def body(self, record: logging.LogRecord) -> str:
        event = _event(record)
        what = {"level": record.levelname.lower()}
        fields: dict[str, object]
        if event is None:
            fields = {"event": "log", "logger": record.name, "message": _message(record)}
        else:
            fields = {"event": record.getMessage(), **_renamed(event)}
        shown = {**what, **{name: self._value(value) for name, value in fields.items()}}
        trace = _traceback(record)
        if trace:
            shown["traceback"] = _short(trace, self._redact, _LONGEST_TRACEBACK)
        return _json(shown)[1:-1]

    def line(self, at: float, body: str, repeated: int) -> str:
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        times = f', "repeated": {repeated}' if repeated > 1 else ""
        return f'{{"time": "{stamp.replace("+00:00", "Z")}", {body}{times}}}'

    def _value(self, value: object) -> object:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, list | tuple | dict):
            text = _short(_dump(value), self._redact)
            try:
                return jsonlib.loads(text, parse_constant=str)
            except ValueError:
                return text  # it was too long, or not JSON
        return _short(str(value), self._redact)


# Names that a line has of its own.
_TAKEN: Final = ("time", "level", "event", "logger", "message", "traceback", "repeated")


def _event(record: logging.LogRecord) -> Mapping[str, object] | None:
    """The fields of an event of ours; None: a library speaks."""
    fields = getattr(record, "event", None)
    return fields if isinstance(fields, Mapping) else None


def _renamed(event: Mapping[str, object]) -> dict[str, object]:
    return {f"{name}_" if name in _TAKEN else name: value for name, value in event.items()}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # wrong arguments must not cost the message
        return f"{record.msg} {record.args!r}"


def _traceback(record: logging.LogRecord) -> str:
    trace = ""
    if record.exc_info and record.exc_info[0] is not None:
        trace = "".join(traceback.format_exception(*record.exc_info))
    return (trace + (record.stack_info or "")).rstrip()


def _dump(value: object) -> str:
    try:
        return jsonlib.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _json(value: object) -> str:
    # All but plain ASCII is escaped by this, what ends a line or turns the writing around too;
    # but not DEL.
    return jsonlib.dumps(value).replace("\x7f", "\\u007f")


def _printable(text: str) -> str:
    """Without line ends, control characters, and what turns the direction of writing around."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _short(text: str, redact: Redact, longest: int = _LONGEST_VALUE) -> str:
    if len(text) <= longest:
        return text
    # Half a token would not be known for one any more.
    return f"{redact(text)[:longest]}... ({len(text)} characters)"
