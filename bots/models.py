"""The clients of all model providers, as the settings want them. Nothing is asked or imported yet:
each imports its SDK with the first question to one of its models.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import SecretStr

from bots.settings import Settings
from core.claude import Claude
from core.errors import ConfigError
from core.openai import OpenAI
from core.providers import Providers

# What the provider of a model needs besides, and the extra that brings it.
_PACKAGES: Final[Mapping[str, str]] = {
    "openai": "openai",
    "bedrock": "boto3",
    "vertex": "google.auth",
}


def build_client(settings: Settings) -> Providers:
    """
    :raises ConfigError: the package that a configured model needs is not installed
    """
    missing = list(_missing(settings))
    if missing:
        raise ConfigError("\n".join(missing))
    bedrock, vertex, foundry = settings.bedrock, settings.vertex, settings.foundry
    return Providers(
        {
            "anthropic": Claude(_shown(settings.anthropic.api_key), settings.anthropic.base_url),
            "openai": OpenAI(_shown(settings.openai.api_key), settings.openai.base_url),
            "bedrock": Claude(
                None,
                bedrock.base_url,
                platform="bedrock",
                options={"aws_region": bedrock.region},
            ),
            "vertex": Claude(
                None,
                vertex.base_url,
                platform="vertex",
                options={"region": vertex.region, "project_id": vertex.project},
            ),
            "foundry": Claude(
                _shown(foundry.api_key),
                foundry.base_url,
                platform="foundry",
                options={"resource": foundry.resource},
            ),
        }
    )


def _missing(settings: Settings) -> Iterator[str]:
    for key in ("model", "fallback"):
        model: str = getattr(settings.agent, key) or ""
        provider, slash, _ = model.partition("/")
        package = _PACKAGES.get(provider) if slash else None
        if package and not _is_installed(package):
            yield (
                f"[agent] {key}: {model} needs the package {package}: install chinwag[{provider}]"
            )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even what it is part of
        return False


def _shown(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
