"""The tree of errors that the docstring draws is the tree that there is."""

from __future__ import annotations

import re

import pytest

from core import errors

LINE = re.compile(r"^ {4}(?P<indent>(?:[│ ] {3})*)(?P<branch>[├└]── )?(?P<name>\w+)(?P<text> .*)?$")


def drawn() -> dict[str, str | None]:
    """Name of each error and of its parent, as drawn."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").partition("::\n")[2].splitlines():
        if not line.strip():
            continue
        match = LINE.match(line)
        assert match, line
        depth = len(match["indent"]) // 4 + (1 if match["branch"] else 0)
        assert depth <= len(above), line
        assert match["name"] not in parents, line
        del above[depth:]
        parents[match["name"]] = above[-1] if above else None
        above.append(match["name"])
    return parents


def real() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__ == errors.__name__
    }


def test_the_drawing_is_the_tree() -> None:
    found = {
        name: None if each is errors.ChinwagError else each.__bases__[0].__name__
        for name, each in real().items()
    }
    assert drawn() == found


@pytest.mark.parametrize("name", sorted(real()))
def test_every_error_is_one_of_ours_and_says_what_it_means(name: str) -> None:
    assert issubclass(real()[name], errors.ChinwagError)
    assert (real()[name].__doc__ or "").strip()


def test_only_an_invalid_key_is_a_builtin_error_too() -> None:
    many = [name for name, each in real().items() if len(each.__bases__) > 1]
    assert many == ["InvalidKey"]
    assert issubclass(errors.InvalidKey, ValueError)


def test_what_errors_carry() -> None:
    assert errors.TryLater(2.5).seconds == 2.5
    assert str(errors.TryLater(2.5)) == "try again in 2.5 s"
    assert str(errors.TryLater(2.5, "flood")) == "flood"
    moved = errors.Moved("telegram-chat:-1", "telegram-chat:-2")
    assert (moved.old, moved.new) == ("telegram-chat:-1", "telegram-chat:-2")
    assert str(moved) == "telegram-chat:-1 is now telegram-chat:-2"
    assert errors.ModelUnavailable("busy").retry_after is None
    assert errors.ModelUnavailable("busy", 3.0).retry_after == 3.0
    fatal = errors.Fatal(4, "the token is refused")
    assert (fatal.exit_code, str(fatal)) == (4, "the token is refused")
