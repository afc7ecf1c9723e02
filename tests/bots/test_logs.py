"""What a log line looks like, what is never in it, and how often it is repeated."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots import secrets
from bots.logs import NOISY, LineHandler, setup_logging
from core.events import emit, trouble

TOKEN = "123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
KEY = "sk-ant-" + "api03-abcdefghijklmnop"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", *NOISY)}
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, LineHandler)]:
        root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log(json: bool = False, level: str = "info", *secrets: str) -> io.StringIO:
    out = io.StringIO()
    setup_logging(json, level, secrets, out)
    return out


def say(text: str, at: float, level: int = logging.WARNING, name: str = "other") -> None:
    record = logging.LogRecord(name, level, "file.py", 1, text, (), None)
    record.created = at
    logging.getLogger().handle(record)


def objects(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("chinwag").exception("it failed")


# --- the look ---------------------------------------------------------------------------------


def test_a_readable_line() -> None:
    out = log()
    emit("accepted", "telegram-chat:123", ms=0.4, execution="x1", again=False, of=None)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d accepted        telegram-chat:123"
        r" ms=0.4 execution=x1 again=false of=null\n",
        out.getvalue(),
    )


def test_a_readable_line_quotes_what_has_blanks() -> None:
    out = log()
    emit("seen", why='two "words"', parts=("a", 1), seconds=2.0, long=1234567.25, empty="")
    assert out.getvalue()[9:] == (
        'seen            why="two \\"words\\"" parts="[\\"a\\", 1]" seconds=2 long=1234567.25'
        ' empty=""\n'
    )


def test_a_warning_and_what_a_library_says_stand_out() -> None:
    out = log()
    trouble("send.later", "telegram-chat:1", seconds=5)
    logging.getLogger("telegram.ext").error("Something %s", "odd")
    assert [line[9:] for line in out.getvalue().splitlines()] == [
        "WARNING send.later      telegram-chat:1 seconds=5",
        "ERROR telegram.ext    Something odd",
    ]


def test_the_time_is_the_local_one() -> None:
    out = log()
    say("x", at=86_400.0)
    assert out.getvalue().startswith(time.strftime("%H:%M:%S ", time.localtime(86_400)))


def test_a_json_line() -> None:
    out = log(json=True)
    emit("accepted", "telegram-chat:123", ms=0.4, parts=["a", 1], event="odd", bad=float("nan"))
    say("other", at=86_400.25)
    first, second = objects(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info",
        "event": "accepted",
        "key": "telegram-chat:123",
        "ms": 0.4,
        "parts": ["a", 1],
        "event_": "odd",
        "bad": "nan",
    }
    assert second == {
        "time": "1970-01-02T00:00:00.250Z",
        "level": "warning",
        "event": "log",
        "logger": "other",
        "message": "other",
    }


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for variable, value, coloured in (
        ("TERM", "xterm", True),
        ("NO_COLOR", "", True),
        ("NO_COLOR", "1", False),
    ):
        monkeypatch.setenv(variable, value)
        setup_logging(stream=(out := Terminal()))
        trouble("seen")
        assert ("\x1b[" in out.getvalue()) is coloured
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    setup_logging(stream=(out := Terminal()))
    trouble("seen")
    assert "\x1b[" not in out.getvalue()
    assert "\x1b[" not in log().getvalue()


def test_tracebacks_stand_below_or_in_a_field() -> None:
    out = log()
    fail("first\nsecond\x1b[2J")
    first, *below = out.getvalue().splitlines()
    assert first[9:] == "ERROR chinwag         it failed"
    assert all(line.startswith("    ") for line in below)
    assert below[0] == "    Traceback (most recent call last):"
    assert below[-2:] == ["    ValueError: first", "    second\\x1b[2J"]
    out = log(json=True)
    fail("first\nsecond")
    (line,) = objects(out)
    assert line["message"] == "it failed"
    assert line["traceback"].endswith("ValueError: first\nsecond")


# --- one record, one line ---------------------------------------------------------------------

HOSTILE = "a\nb\rc\x1b[31md\x7fe\x85f\u2028g\u202eh\ud800i\0"


@pytest.mark.parametrize("json", [False, True])
def test_nobody_forges_a_line(json: bool) -> None:
    out = log(json)
    emit("seen", HOSTILE, value=HOSTILE, parts=[HOSTILE], name={"a": HOSTILE})
    for name, text in (("x", HOSTILE), ("x\ny", "text")):
        # Past pytest's own handler, whose report cannot carry a lone surrogate.
        record = logging.LogRecord(name, logging.WARNING, "", 1, "%s", (text,), None)
        logging.getLogger().handlers[-1].handle(record)
    text = out.getvalue()
    assert text.count("\n") == 3
    assert text.replace("\n", "").isprintable()
    if json:
        assert objects(out)[0]["value"] == HOSTILE


def test_wrong_arguments_do_not_cost_the_message() -> None:
    out = log()
    record = logging.LogRecord("x", logging.WARNING, "", 1, "%d and %s", ("one",), None)
    logging.getLogger().handlers[-1].handle(record)  # pytest's own handler would raise
    assert out.getvalue()[9:] == "WARNING x               %d and %s ('one',)\n"


def test_what_cannot_be_written_is_said_without_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError(TOKEN)

    out = log()
    emit("seen", value=Odd(), other=TOKEN)
    assert out.getvalue() == "a log record of 'chinwag' could not be written\n"
    assert capsys.readouterr().err == ""
    out.close()
    emit("seen")
    logging.getLogger().handlers[-1].close()
    assert capsys.readouterr().err == ""


def test_long_values_are_cut() -> None:
    out = log()
    emit("seen", value="x" * 10_000, parts=["y" * 10_000])
    assert len(out.getvalue()) < 5_000
    assert "(10000 characters)" in out.getvalue()
    out = log(json=True)
    emit("seen", value="x" * 10_000, parts=["y" * 10_000], odd={(1, 2): 3})
    (line,) = objects(out)
    assert len(line["value"]) < 2_100
    assert len(line["parts"]) < 2_100
    assert line["odd"] == "{(1, 2): 3}"


def test_a_stream_that_knows_ascii_only() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    setup_logging(stream=out)
    emit("seen", value="ä")
    assert raw.getvalue()[9:] == b"seen            value=\\xe4\n"


# --- secrets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("json", [False, True])
def test_no_secret_is_ever_written(json: bool) -> None:
    known = 'pass"word\\with ä'
    out = log(json, "debug", known, "short", "123:abcdefgh")
    url = f"https://api.telegram.org/bot{TOKEN}/getMe"
    emit("seen", f"telegram-chat:{TOKEN}", url=url, parts=[KEY, known], deep={"a": {"b": TOKEN}})
    logging.getLogger("x").warning("GET %s %r", url, {"key": known})
    logging.getLogger("x").warning("GET http://localhost/bot1:tiny/x and /bot77%3Aother/ok")
    logging.getLogger("x").warning("postgres://me:hunter2@db/x xoxb-1-abcdef xapp-1-A1-abcdef")
    logging.getLogger("x").warning("the half alone: abcdefgh, quoted pass%22word%5Cwith%20%C3%A4")
    emit("seen", value="x" * 1_990 + KEY)
    try:
        raise ValueError(f"{TOKEN} {known}")
    except ValueError:
        logging.getLogger("x").exception("%s", KEY)
    text = out.getvalue()
    for secret in (TOKEN[-20:], KEY, known, "tiny", "other", "hunter2", "xoxb", "xapp", "abcdefgh"):
        assert secret not in text
    assert "sk-ant" not in text
    assert "pass" not in text
    assert "/bot[secret]/getMe" in text
    assert "://[secret]@db/x" in text
    if json:
        assert len(objects(out)) == 7


def test_what_looks_only_a_little_like_a_secret_stays() -> None:
    out = log(False, "info", "any", "")
    emit("any", "telegram-chat:-1001234567890", at="12:34:56", url="http://127.0.0.1:8080/a@b")
    assert out.getvalue()[9:] == (
        "any             telegram-chat:-1001234567890 at=12:34:56 url=http://127.0.0.1:8080/a@b\n"
    )


@given(st.from_regex(secrets._SHAPES))
def test_every_shape_is_looked_for(text: str) -> None:
    assert secrets.SECRET in secrets.redacting()(text)


@pytest.mark.parametrize("name", ["httpx", "telegram.ext.ExtBot", "uvicorn.access", "asyncio"])
def test_libraries_are_heard_from_warnings_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = log(level="debug")
    logger = logging.getLogger(name)
    # A server of another test may have silenced it.
    monkeypatch.setattr(logger, "propagate", True)
    before = logger.level
    try:
        logger.info("quiet")
        logger.setLevel(
            logging.DEBUG
        )  # as anthropic does when it is imported and ANTHROPIC_LOG set
        logger.info("quiet")
        logger.warning("loud")
    finally:
        logger.setLevel(before)
    assert out.getvalue().count("\n") == 1
    assert "loud" in out.getvalue()


def test_the_level_counts() -> None:
    out = log(level="error")
    trouble("seen")
    logging.getLogger("httpx").warning("x")
    assert out.getvalue() == ""
    out = log(level="debug")
    emit("seen", level=logging.DEBUG)
    assert "seen" in out.getvalue()


def test_setting_up_again_replaces_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    first = log()
    monkeypatch.setattr(sys, "stderr", second := io.StringIO())
    setup_logging()
    emit("seen")
    assert first.getvalue() == ""
    assert second.getvalue().count("seen") == 1


# --- repetition -------------------------------------------------------------------------------


def test_a_repeated_warning_comes_once_a_minute() -> None:
    out = log()
    for second in range(130):
        say("again", at=1_000.0 + second)
    logging.getLogger().handlers[-1].close()
    assert [line[9:] for line in out.getvalue().splitlines()] == [
        "WARNING other           again",
        "WARNING other           again (repeated 60 times)",
        "WARNING other           again (repeated 60 times)",
        "WARNING other           again (repeated 9 times)",
    ]


def test_a_count_is_told_when_something_else_happens() -> None:
    out = log(json=True)
    say("again", at=0)
    say("again", at=1)
    say("again", at=2)
    say("other", at=30)
    say("news", at=70, level=logging.INFO)
    say("again", at=71)
    say("news", at=200, level=logging.INFO)
    say("again", at=201)
    logging.getLogger().handlers[-1].close()
    lines = [(line["time"][14:19], line["message"], line.get("repeated")) for line in objects(out)]
    assert lines == [
        ("00:00", "again", None),
        ("00:30", "other", None),
        ("00:02", "again", 2),
        ("01:10", "news", None),
        ("01:11", "again", None),
        ("03:20", "news", None),
        ("03:21", "again", None),
    ]


def test_only_what_is_the_same_counts_as_repeated() -> None:
    out = log()
    for number in range(3):
        trouble("send.later", f"telegram-chat:{number}")
        emit("accepted")
    assert out.getvalue().count("send.later") == 3
    assert out.getvalue().count("accepted") == 3


def test_a_clock_that_is_set_back_hides_nothing() -> None:
    out = log()
    say("again", at=1_000)
    say("again", at=10)
    assert out.getvalue().count("again") == 2


def test_memory_for_repetition_has_a_bound() -> None:
    out = log()
    for round_ in range(2):
        for number in range(1_000):
            say(f"warning {number}", at=round_)
    handler = logging.getLogger().handlers[-1]
    assert isinstance(handler, LineHandler)
    assert len(handler._repeats._said) <= 256
    assert out.getvalue().count("\n") == 2_000
