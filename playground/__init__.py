"""The other side of the wire: local stand-ins for the services a chat bot talks to.

Real HTTP servers on the loopback interface, spoken to by the unmodified official clients: for
trying the bot without an account, a key or a network, and for tests. Not a mock library, and no
part of the bot: nothing in here imports it.
"""
