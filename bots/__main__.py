"""The command `chinwag`, also as ``python -m bots``. --version is answered before any import."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        from bots import __version__

        print(f"chinwag {__version__}")
        return
    try:
        _run()
    except KeyboardInterrupt:
        # While it was still being loaded.
        raise SystemExit(130) from None


def _run() -> None:
    # Before anything of core: a foreign `core` would end in an ImportError.
    from bots.shadow import check_not_shadowed

    check_not_shadowed()
    from bots.cli import run

    run()


if __name__ == "__main__":
    main()
