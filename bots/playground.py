"""`chinwag playground`: the agent against a local stand-in for Claude, which runs as a child.

Starts `chinwag chat` exactly as a person would, pointed at the stand-in by its base URL; nothing in
the agent knows. No key, no network; the conversations are kept in a folder of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from core.errors import ConfigError


def play(folder: Path) -> int:
    """Until the person leaves. The exit code of the chat."""
    folder.mkdir(parents=True, exist_ok=True)
    # The child is in a group of its own, so that Ctrl-C reaches the chat first: it finishes what
    # it is answering, and for that it needs the model.
    claude = subprocess.Popen(
        [sys.executable, "-m", "playground.claude", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert claude.stdout is not None
        url = claude.stdout.readline().strip()
        if not url.startswith("http://127.0.0.1:"):
            raise ConfigError("the local Claude did not start; its error stands above")
        environ = {name: value for name, value in os.environ.items() if _is_harmless(name)}
        environ |= {
            "ANTHROPIC_API_KEY": "playground",
            "ANTHROPIC_BASE_URL": url,
            "CHINWAG_STORE__URL": f"sqlite:{(folder / 'playground.db').absolute()}",
        }
        print("A local stand-in answers instead of Claude. Tell it your name; /reset; Ctrl-C.")
        chat = subprocess.Popen([sys.executable, "-m", "bots", "chat"], env=environ, cwd=folder)
        return _wait(chat)
    finally:
        claude.terminate()
        claude.wait()


def _is_harmless(name: str) -> bool:
    """A person's own tokens and settings stay out of the playground."""
    return not name.startswith(("CHINWAG_", "ANTHROPIC_", "TELEGRAM_", "SLACK_"))


def _wait(child: subprocess.Popen[bytes]) -> int:
    # Ctrl-C goes to the whole group: the chat ends by itself, and this must outlive it.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
