"""The shared core: sessions, turns, delivery. It knows no platform and no database."""

from core.agent import Agent
from core.keys import SessionKey
from core.memory import ConversationMemory
from core.session import Reply, Session
from core.snapshot import Snapshot
from core.store import BotStore, SessionRef, SessionStore
from core.tools import Tool, ToolContext, tool

__all__ = [
    "Agent",
    "BotStore",
    "ConversationMemory",
    "Reply",
    "Session",
    "SessionKey",
    "SessionRef",
    "SessionStore",
    "Snapshot",
    "Tool",
    "ToolContext",
    "tool",
]
