"""The platforms and the program: the only place where core, stores and SDKs meet."""

from typing import Final

__version__: Final = "0.1.0"
