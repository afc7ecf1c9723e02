"""Files: shared by people, uploaded by the bot in three steps, downloaded with the bot's token.

The steps are files.getUploadURLExternal, a POST to the address it gives, and
files.completeUploadExternal (docs.slack.dev, "Working with files"). A private file asks for the
token of an app in its workspace with files:read; whoever has none gets a page to sign in, with
status 200. Not here: thumbnails, file types that are forbidden, virus checks.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from playground.slack_blocks import checked
from playground.slack_chats import Channel, Json, Refused, Team
from playground.slack_events import posted
from playground.slack_messages import thread_of
from playground.slack_world import Grant, World

LOGIN = "<!doctype html><title>Sign in to {} | Slack</title><h1>Sign in</h1>"


@dataclass(eq=False, slots=True)
class File:
    """A file. `data` is None until it has been uploaded; `more` overrides fields of its JSON."""

    id: str
    team: str
    owner: str
    name: str
    media_type: str
    length: int
    created: int
    data: bytes | None = None
    title: str = ""
    shared: list[str] = field(default_factory=list)
    more: Json = field(default_factory=dict)

    def json(self, world: World) -> Json:
        kind = self.name.rpartition(".")[2].lower() if "." in self.name else "text"
        base = f"{world.url}/files-pri/{self.team}-{self.id}"
        about: Json = {
            "id": self.id,
            "created": self.created,
            "timestamp": self.created,
            "name": self.name,
            "title": self.title or self.name,
            "mimetype": self.media_type,
            "filetype": kind,
            "pretty_type": kind.upper(),
            "user": self.owner,
            "user_team": self.team,
            "editable": False,
            "size": self.length,
            "mode": "hosted",
            "is_external": False,
            "external_type": "",
            "is_public": False,
            "public_url_shared": False,
            "display_as_bot": False,
            "username": "",
            "url_private": f"{base}/{self.name}",
            "url_private_download": f"{base}/download/{self.name}",
            "media_display_type": "unknown",
            "permalink": f"https://{world.teams[self.team].domain}.slack.com/files/{self.id}",
            "permalink_public": f"https://slack-files.com/{self.team}-{self.id}-0",
            "is_starred": False,
            "has_rich_preview": False,
            "file_access": "visible",
        }
        return about | self.more

    def stub(self) -> Json:
        """What stands in a message of a channel shared with others: files.info has the rest."""
        return {
            "id": self.id,
            "created": 0,
            "timestamp": 0,
            "user": "",
            "mode": "file_access",
            "file_access": "check_file_info",
        }


def make(
    world: World, team: Team, owner: str, name: str, media_type: str, data: bytes, more: Json
) -> File:
    """A file that is there, as a client of a person uploads it."""
    file = File(
        world.name("F"), team.id, owner, name, media_type, len(data), int(world.clock()), data
    )
    file.more = more
    world.files[file.id] = file
    return file


def get_upload_url(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "files:write")
    team = world.caller_team(grant, given)
    name, length = given.get("filename"), given.get("length")
    if not isinstance(name, str) or not name or not isinstance(length, int) or length <= 0:
        raise Refused("invalid_arguments")
    file = File(
        world.name("F"), team.id, grant.user, name, _guessed(name), length, int(world.clock())
    )
    world.files[file.id] = file
    ticket = world.name("u", 24)
    world.uploads[ticket] = file.id
    return {"upload_url": f"{world.url}/upload/v1/{ticket}", "file_id": file.id}


def uploaded(world: World, ticket: str, data: bytes) -> str:
    """The second step; returns what the answer says. Raises `Refused`."""
    file = world.files.get(world.uploads.get(ticket, ""))
    if file is None:
        raise Refused("invalid_ticket", 404)
    if len(data) != file.length:
        raise Refused("length_mismatch", 400)
    file.data = data
    return f"OK - {len(data)}"


def complete_upload(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "files:write")
    team = world.caller_team(grant, given)
    wanted = given.get("files")
    if not isinstance(wanted, list) or not wanted:
        raise Refused("invalid_arguments")
    files = []
    for each in wanted:
        file = world.files.get(str(each.get("id"))) if isinstance(each, dict) else None
        if file is None or file.data is None or file.owner != grant.user:
            raise Refused("file_not_found")
        file.title = str(each.get("title") or file.name)
        files.append(file)
    where = given.get("channel_id") or given.get("channels")
    for name in filter(None, str(where or "").split(",")):
        _share(world, team, world.channel(grant, given | {"channel": name}), files, given)
    return {"files": [file.json(world) for file in files]}


def info(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "files:read")
    return {"file": _seen(world, grant, given).json(world), "comments": []}


def delete(world: World, grant: Grant, given: Json) -> Json:
    world.needs(grant, "files:write")
    file = _seen(world, grant, given)
    if file.owner != grant.user:
        raise Refused("cant_delete_file")
    del world.files[file.id]
    return {}


def readable(world: World, path_id: str, token: str) -> File | None:
    """The private file, for a token that may read it; None for any other. Raises `Refused` when
    there is no such file."""
    team, _, file_id = path_id.partition("-")
    file = world.files.get(file_id)
    if file is None or file.data is None or file.team != team:
        raise Refused("file_not_found", 404)
    grant = world.grants.get(token)
    good = grant is not None and grant.dead is None and grant.kind in ("bot", "user")
    if grant is None or not good or (grant.team not in (None, team)):
        return None
    if grant.scopes is not None and "files:read" not in grant.scopes:
        return None
    return file


def message_parts(
    world: World, channel: Channel, files: list[File], *, stubs: bool = False
) -> Json:
    """The fields of a message that shares files."""
    for file in files:
        file.shared.append(channel.id)
    return {
        "subtype": "file_share",
        "files": [file.stub() if stubs else file.json(world) for file in files],
        "upload": False,
        "display_as_bot": False,
    }


def _share(world: World, team: Team, channel: Channel, files: list[File], given: Json) -> None:
    bot = team.bot
    if bot is None or bot.id not in channel.members:
        raise Refused("not_in_channel")
    if channel.archived:
        raise Refused("is_archived")
    thread = thread_of(channel, given)
    text = str(given.get("initial_comment") or "")
    parts: dict[str, Any] = message_parts(world, channel, files)
    if not text and given.get("blocks"):
        parts["blocks"] = checked(given["blocks"])
    message = world.message(channel, bot, text, thread=thread, **parts)
    sent = channel.record(message, time.monotonic())
    names = [file.name for file in files]
    where = {"team": team.id, "channel": channel.id, "ts": message["ts"]}
    world.tell("sent", where | {"thread": thread, "text": sent.text, "files": names})
    posted(world, team, channel, message)


def _seen(world: World, grant: Grant, given: Json) -> File:
    file = world.files.get(str(given.get("file")))
    if file is None or (grant.team is not None and file.team != grant.team):
        raise Refused("file_not_found")
    team = world.teams[file.team]
    inside = [c for c in file.shared if c in team.channels]
    if file.owner != grant.user and not any(
        grant.user in team.channels[channel].members for channel in inside
    ):
        raise Refused("file_not_found")
    return file


def _guessed(name: str) -> str:
    kinds = {
        "csv": "text/csv",
        "gif": "image/gif",
        "html": "text/html",
        "jpeg": "image/jpeg",
        "jpg": "image/jpeg",
        "json": "application/json",
        "md": "text/plain",
        "pdf": "application/pdf",
        "png": "image/png",
        "txt": "text/plain",
    }
    return kinds.get(name.rpartition(".")[2].lower(), "application/octet-stream")
