"""Telegram: what is said there, heard there and shown there, over python-telegram-bot's `Bot`.

`parse` turns an update into an Inbound, `poll` fetches updates and confirms them, `render` makes
messages of Markdown, `adapter` ties them together behind the seam of `core.adapter`. Of
python-telegram-bot only `Bot` is used, not its `Application` or `Updater`: those confirm an update
before anybody has looked at it.
"""

import os

# With it a flood penalty is a timedelta; without it reading one warns.
os.environ["PTB_TIMEDELTA"] = "1"
