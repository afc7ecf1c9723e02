"""The bot that is shown when nobody names another: `example/`, copied into the folder of one run.

What its tools do stays in their process.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

EXAMPLE: Final = Path(__file__).parent / "example"


def write_demo(folder: Path) -> None:
    for name in ("config.toml", "errands.py"):
        shutil.copyfile(EXAMPLE / name, folder / name)
