"""Settings of Hadoop's S3A, ``fs.s3a.*``, as options of s3fs.

Spark users have their keys and endpoints there. A dictionary with such names is accepted wherever
storage options are; names of s3fs beside them win. Settings that only tune Hadoop's client have no
meaning here and are left out. No message shows a value of a key, a secret or a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARK = "spark.hadoop."
HADOOP_PREFIX = "fs.s3a."
_BUCKET = "bucket."
_KEYS = {"access.key": "key", "secret.key": "secret", "session.token": "token"}
_TRUTHS = {"true": True, "false": False}

# Providers of credentials that take them from these settings; all others that botocore knows take
# them from the environment, ~/.aws or the role of the machine, and so does s3fs.
_FROM_SETTINGS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_ALGORITHMS = ("server-side-encryption-algorithm", "encryption.algorithm")
_ENCRYPTION_KEYS = ("server-side-encryption.key", "encryption.key")
_ENCRYPTIONS = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
_CENTRAL_ENDPOINT = "s3.amazonaws.com"

HADOOP_OPTIONS = tuple(
    f"{HADOOP_PREFIX}{name}"
    for name in (
        *_KEYS,
        *("aws.credentials.provider", "endpoint", "endpoint.region", "connection.ssl.enabled"),
        *("path.style.access", "requester.pays.enabled", *_ALGORITHMS, *_ENCRYPTION_KEYS),
    )
)
"""The settings that are translated; each may also be set for one bucket."""


def is_hadoop_option(name: object) -> bool:
    """Whether an option has a name of Hadoop's S3A, with or without Spark's prefix."""
    return isinstance(name, str) and name.removeprefix(_SPARK).startswith(HADOOP_PREFIX)


def from_hadoop_options(options: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return storage options with the settings of S3A, as they hold for a bucket, translated.

    Args:
        options: Storage options; those with names of S3A are translated, the others are kept.
        bucket: The bucket, whose own settings win; empty where the filesystem is not S3, which
            such settings are not about.
    """
    own = {name: value for name, value in options.items() if not is_hadoop_option(name)}
    if len(own) == len(options) or not bucket:
        return own
    translated = _translate(_settings_of(options, bucket))
    for name in translated.keys() & own.keys():
        if isinstance(translated[name], dict) and isinstance(own[name], dict):
            own[name] = {**translated[name], **own[name]}
    if {"profile", "key", "anon"} & own.keys():
        for name in ("key", "secret", "token", "anon"):  # never mixed with those of another user
            translated.pop(name, None)
    return {**translated, **own}


def _settings_of(options: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return the settings by their names after the prefix; those of the bucket win."""
    given = [(name, value) for name, value in options.items() if is_hadoop_option(name)]
    given.sort(key=lambda item: not item[0].startswith(_SPARK))  # Spark copies them to plain names
    named = {name.removeprefix(_SPARK).removeprefix(HADOOP_PREFIX): value for name, value in given}
    shared = {name: value for name, value in named.items() if not name.startswith(_BUCKET)}
    prefix = f"{_BUCKET}{bucket}."
    own = {
        name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)
    }
    return {name: value for name, value in {**shared, **own}.items() if value not in (None, "")}


def _translate(settings: Mapping[str, Any]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    found = _credentials(settings)
    if endpoint := _endpoint(settings):
        client["endpoint_url"] = endpoint
    if region := settings.get("endpoint.region"):
        client["region_name"] = str(region)
    if client:
        found["client_kwargs"] = client
    if _flag(settings, "path.style.access"):
        found["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if _flag(settings, "requester.pays.enabled"):
        found["requester_pays"] = True
    if encryption := _encryption(settings):
        found["s3_additional_kwargs"] = encryption
    return found


def _credentials(settings: Mapping[str, Any]) -> dict[str, Any]:
    listed = str(settings.get("aws.credentials.provider", "")).split(",")
    providers = [name.strip().rpartition(".")[2] for name in listed if name.strip()]
    keys = {ours: str(settings[name]) for name, ours in _KEYS.items() if name in settings}
    is_complete = {"key", "secret"} <= keys.keys()
    if is_complete and (not providers or any(name in _FROM_SETTINGS for name in providers)):
        return keys
    others = [name for name in providers if name not in _FROM_SETTINGS]
    return {"anon": True} if others == [_ANONYMOUS] else {}


def _endpoint(settings: Mapping[str, Any]) -> str | None:
    endpoint = str(settings.get("endpoint", ""))
    if not endpoint or endpoint == _CENTRAL_ENDPOINT:
        return None
    if "://" in endpoint:
        return endpoint
    is_secure = _flag(settings, "connection.ssl.enabled", default=True)
    return f"{'https' if is_secure else 'http'}://{endpoint}"


def _flag(settings: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    given = settings.get(name, default)
    value = _TRUTHS.get(str(given).strip().lower())
    if value is None:
        raise InvalidArgumentError(
            f"{HADOOP_PREFIX}{name} must be true or false, got {given!r}.",
            argument="storage_options",
        )
    return value


def _encryption(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return how the store is to encrypt; where it cannot be done, nothing is written in clear."""
    name = next((name for name in _ALGORITHMS if name in settings), None)
    if name is None:
        return {}
    algorithm = str(settings[name]).strip()
    if algorithm not in _ENCRYPTIONS:
        raise InvalidArgumentError(
            f"{HADOOP_PREFIX}{name} is {algorithm!r}, which is not supported: it must be one of "
            f"{', '.join(map(repr, _ENCRYPTIONS))}.\n"
            "Hint: pass s3_additional_kwargs in storage_options, as s3fs takes them.",
            argument="storage_options",
        )
    key = next((settings[name] for name in _ENCRYPTION_KEYS if name in settings), None)
    found = {"ServerSideEncryption": _ENCRYPTIONS[algorithm]}
    return {**found, "SSEKMSKeyId": str(key)} if key and algorithm != "AES256" else found
