"""The shared core: sessions, turns, delivery. It knows no platform and no database."""

from core.agent import Agent
from core.errors import ToolError
from core.keys import SessionKey
from core.memory import ConversationMemory
from core.reply import Reply, Stream
from core.results import File, Image
from core.runtime import Runtime
from core.session import Session
from core.snapshot import Snapshot
from core.store import BotStore, SessionRef, SessionStore
from core.tools import Tool, ToolContext, tool

__all__ = [
    "Agent",
    "BotStore",
    "ConversationMemory",
    "File",
    "Image",
    "Reply",
    "Runtime",
    "Session",
    "SessionKey",
    "SessionRef",
    "SessionStore",
    "Snapshot",
    "Stream",
    "Tool",
    "ToolContext",
    "ToolError",
    "tool",
]
