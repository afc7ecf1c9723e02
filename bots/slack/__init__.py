"""Slack: what is said there, heard there and shown there, over slack-bolt's `AsyncApp`.

`parse` turns what Slack sends into an Inbound, `render` makes bodies of Markdown, `adapter` ties
them together behind the seam of `core.adapter`. Of Bolt only the way in is used: an event is
accepted before it is acknowledged, and an answer leaves when the core says so.
"""
