"""OAuth v2: the page where somebody installs the app, codes and tokens, and how it all ends.

/oauth/v2/authorize shows the workspaces; the choice sends the browser back with `code` and `state`,
or with `error=access_denied`. A code is good once, for ten minutes, with the redirect_uri it was
asked with. With token rotation a bot token lives for twelve hours and its refresh token is good
once; the bot token before it lives until its own end (docs.slack.dev, "Installing with OAuth",
"Token rotation", reference of oauth.v2.access). Not here: PKCE, workspace approval by admins.
"""

import html
from dataclasses import dataclass
from urllib.parse import urlencode

from playground.slack_chats import Bot, Json, Refused, Team
from playground.slack_world import Grant, World

CODE_SECONDS = 600
TOKEN_SECONDS = 43_200


@dataclass(eq=False, slots=True)
class Code:
    """What somebody has agreed to. `team` is None for a whole organisation."""

    code: str
    team: str | None
    enterprise: str | None
    user: str
    scopes: frozenset[str]
    user_scopes: frozenset[str]
    redirect: str | None
    at: float  # by the world's clock


def checked_request(world: World, asked: Json) -> str:
    """Where the browser goes afterwards. Raises `Refused` for what Slack shows as an error page."""
    if asked.get("client_id") != world.app.client_id:
        raise Refused("invalid_client_id", 400)
    if not asked.get("scope") and not asked.get("user_scope"):
        raise Refused("no_scopes", 400)
    known = world.app.redirect_urls
    redirect = str(asked.get("redirect_uri") or (known[0] if known else ""))
    if not redirect or (known and not any(redirect.startswith(url) for url in known)):
        raise Refused("bad_redirect_uri", 400)
    return redirect


def page(world: World, asked: Json) -> str:
    """The page where one chooses a workspace. Raises `Refused`."""
    redirect = checked_request(world, asked)
    choices = []
    for team in world.teams.values():
        query = html.escape(urlencode(asked | {"team": team.id}))
        choices.append(f'<p><a href="?{query}">{html.escape(team.name)}</a></p>')
    refusal = urlencode({"error": "access_denied", "state": asked.get("state") or ""})
    return (
        f"<!doctype html><title>Install {html.escape(world.app.name)}</title>"
        f"<h1>Where shall {html.escape(world.app.name)} be installed?</h1>{''.join(choices)}"
        f'<p><a href="{html.escape(f"{redirect}?{refusal}")}">Cancel</a></p>'
    )


def agreed(world: World, asked: Json, team: Team, user: str, *, org: bool = False) -> str:
    """Somebody says yes; returns the address that the browser is sent to. Raises `Refused`."""
    redirect = checked_request(world, asked)
    if org and team.enterprise is None:
        raise Refused("not_an_enterprise", 400)
    given = asked.get("redirect_uri")
    code = Code(
        f"{world.dice.randrange(10**12)}.{world.dice.getrandbits(160):040x}",
        None if org else team.id,
        team.enterprise,
        user,
        _scopes(asked.get("scope")),
        _scopes(asked.get("user_scope")),
        str(given) if given else None,
        world.clock(),
    )
    world.codes[code.code] = code
    world.tell("agreed", {"team": team.id, "user": user})
    join = "&" if "?" in redirect else "?"
    return f"{redirect}{join}{urlencode({'code': code.code, 'state': asked.get('state') or ''})}"


def access(world: World, grant: Grant, given: Json) -> Json:
    """oauth.v2.access: a code becomes tokens, or a refresh token becomes new ones."""
    if given.get("client_id") != world.app.client_id:
        raise Refused("invalid_client_id")
    if given.get("client_secret") != world.app.client_secret:
        raise Refused("bad_client_secret")
    kind = given.get("grant_type") or "authorization_code"
    if kind == "refresh_token":
        return _refreshed(world, given)
    if kind != "authorization_code":
        raise Refused("invalid_grant_type")
    code = world.codes.pop(str(given.get("code")), None)
    if code is None or world.clock() - code.at > CODE_SECONDS:
        raise Refused("invalid_code")
    if code.redirect is not None and given.get("redirect_uri") != code.redirect:
        raise Refused("bad_redirect_uri")
    return _installed(world, code)


def revoke(world: World, grant: Grant, given: Json) -> Json:
    """auth.revoke: the app gives its own token back."""
    if given.get("test"):
        return {"revoked": False}
    revoked(world, [grant])
    return {"revoked": True}


def uninstall(world: World, grant: Grant, given: Json) -> Json:
    """apps.uninstall: the app leaves by itself."""
    if given.get("client_id") != world.app.client_id:
        raise Refused("invalid_client_id")
    if given.get("client_secret") != world.app.client_secret:
        raise Refused("bad_client_secret")
    uninstalled(world, world.caller_team(grant, given))
    return {}


def revoked(world: World, grants: list[Grant], error: str = "token_revoked") -> None:
    """These tokens are no good any more, and the app hears of it."""
    for grant in grants:
        grant.dead = error
    for team in world.teams.values():
        theirs = [g for g in grants if g.team == team.id or _of_all(g, team)]
        if team.bot is None or not theirs:
            continue
        tokens: Json = {
            kind: [g.user for g in theirs if g.kind == name]
            for kind, name in (("oauth", "user"), ("bot", "bot"))
        }
        _tell_without_grant(world, team, {"type": "tokens_revoked", "tokens": tokens})


def uninstalled(world: World, team: Team) -> None:
    """The app is taken out of a workspace: its tokens end, its user leaves, two events follow."""
    if team.bot is None:
        raise Refused("not_installed")
    theirs = [g for g in world.grants.values() if g.team == team.id and g.dead is None]
    revoked(world, theirs, "account_inactive")
    _tell_without_grant(world, team, {"type": "app_uninstalled"})
    for channel in team.channels.values():
        if team.bot.id in channel.members:
            channel.members.remove(team.bot.id)
    team.people.pop(team.bot.id, None)
    team.bot = None


def _installed(world: World, code: Code) -> Json:
    teams = [
        team
        for team in world.teams.values()
        if team.id == code.team or (code.team is None and team.enterprise == code.enterprise)
    ]
    bot = join(world, teams)
    answer: Json = {
        "app_id": world.app.id,
        "authed_user": {"id": code.user},
        "is_enterprise_install": code.team is None,
        "enterprise": _enterprise(code.enterprise),
        "team": None if code.team is None else {"id": code.team, "name": teams[0].name},
    }
    if code.scopes:
        grant = _new(world, "bot", code, bot.id, code.scopes)
        answer |= _answer(world, grant) | {"bot_user_id": bot.id}
    if code.user_scopes:
        grant = _new(world, "user", code, code.user, code.user_scopes)
        answer["authed_user"] |= _answer(world, grant)
    world.tell("installed", {"team": code.team, "enterprise": code.enterprise})
    return answer


def join(world: World, teams: list[Team]) -> Bot:
    """The user of the app in these workspaces: one, also where they are of one organisation."""
    old = next((team.bot for team in teams if team.bot is not None), None)
    app, first = world.app, teams[0]
    bot = old or Bot(world.name("U"), world.name("B"), app.name, first.id, app.id)
    for team in teams:
        if team.bot is None:
            team.bot = team.people[bot.id] = bot
            for channel in team.channels.values():
                if channel.kind == "im" and bot.id not in channel.members:
                    channel.members.append(bot.id)
    return bot


def _refreshed(world: World, given: Json) -> Json:
    wanted = given.get("refresh_token")
    old = next((g for g in world.grants.values() if g.refresh and g.refresh == wanted), None)
    if old is None or old.dead is not None:
        raise Refused("invalid_refresh_token")
    old.refresh = None
    new = Grant("", old.kind, old.team, old.user, old.scopes, old.enterprise)
    _name(world, new)
    team = world.teams.get(old.team or "")
    return _answer(world, new) | {
        "app_id": world.app.id,
        "bot_user_id": new.user,
        "is_enterprise_install": old.team is None,
        "enterprise": _enterprise(old.enterprise),
        "team": None if team is None else {"id": team.id, "name": team.name},
    }


def _new(world: World, kind: str, code: Code, user: str, scopes: frozenset[str]) -> Grant:
    grant = Grant("", kind, code.team, user, scopes, code.enterprise)
    _name(world, grant)
    return grant


def _name(world: World, grant: Grant) -> None:
    letter = {"bot": "b", "user": "p"}[grant.kind]
    secret = f"{world.dice.getrandbits(96):024x}"
    grant.token = f"xox{letter}-{world.dice.randrange(10**12)}-{secret}"
    if world.app.rotation:
        grant.token = f"xoxe.{grant.token}"
        grant.refresh = f"xoxe-1-{world.dice.getrandbits(160):040x}"
        grant.expires = world.clock() + TOKEN_SECONDS
    world.grants[grant.token] = grant


def _answer(world: World, grant: Grant) -> Json:
    answer: Json = {
        "access_token": grant.token,
        "token_type": grant.kind,
        "scope": ",".join(sorted(grant.scopes or ())),
    }
    if grant.expires is not None:
        answer |= {
            "expires_in": int(grant.expires - world.clock()),
            "refresh_token": grant.refresh,
        }
    return answer


def _tell_without_grant(world: World, team: Team, event: Json) -> None:
    delivery = world.event(team, event | {"event_ts": world.ts()}, str(event["type"]))
    if delivery is not None:
        delivery.payload.pop("authorizations", None)


def _of_all(grant: Grant, team: Team) -> bool:
    grid = team.enterprise
    return grant.team is None and grid is not None and grant.enterprise == grid


def _enterprise(enterprise: str | None) -> Json | None:
    return None if enterprise is None else {"id": enterprise, "name": "Grid"}


def _scopes(asked: object) -> frozenset[str]:
    return frozenset(str(asked or "").replace(" ", ",").split(",")) - {""}
