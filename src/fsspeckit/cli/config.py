"""Storage options and defaults from the command line, the environment and a config file.

The command line wins over ``FSSPECKIT_STORAGE_OPTIONS``, which wins over the file, in TOML::

    engine = "duckdb"

    [storage.s3]                      # for URLs that begin with s3://
    endpoint_url = "https://minio.example"
    key = "…"
    secret = "…"

What fsspec itself reads from the environment (``FSSPEC_S3_KEY``), and what libraries read
(``AWS_PROFILE``), applies as well.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Settings", "hide", "load_settings"]

_VARIABLE = "FSSPECKIT_STORAGE_OPTIONS"
_CONFIG_VARIABLE = "FSSPECKIT_CONFIG"
_SECRET_NAMES = ("secret", "token", "password", "passwd", "key", "credential", "sas")
_HIDDEN = "***"
_LOCAL = ("file", "local")
_HADOOP = ("fs.s3a.", "spark.hadoop.")

_secrets: set[str] = set()
"""Values that no message of this process may contain."""


@dataclass(frozen=True)
class Settings:
    """The default engine and storage options."""

    engine: str = "spark"
    explicit: Mapping[str, Any] = field(default_factory=dict)
    """Storage options from the command line and the environment."""

    by_protocol: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Storage options from the config file."""

    def storage_options(self, path: str) -> dict[str, Any]:
        """Return the options for the filesystem of a path."""
        from fsspeckit.storage import canonical_scheme, passwords_of, scheme_of

        for password in passwords_of(path):
            _remember({"password": password})
        protocol = scheme_of(path) or "file"
        found: dict[str, Any] = {}
        for heading, options in self.by_protocol.items():
            if canonical_scheme(heading) == protocol:
                found.update(options)
        return found if protocol in _LOCAL else {**found, **self.explicit}


def load_settings(options: Sequence[str] = (), config: Path | None = None) -> Settings:
    """Read all settings, and hide values that look like secrets in messages from now on."""
    file = _file(config)
    if unknown := sorted(file.keys() - {"engine", "storage"}):
        raise InvalidArgumentError(
            f"the config file sets {unknown!r}, which are not settings.\n"
            'Hint: it holds lines such as engine = "duckdb", and headings such as [storage.s3].'
        )
    given = {**_from_environment(), **_from_options(options)}
    storage = file.get("storage", {})
    if not isinstance(storage, dict) or not all(isinstance(v, dict) for v in storage.values()):
        raise InvalidArgumentError(
            "[storage] of the config file must hold tables such as [storage.s3].\n"
            "Hint: put the options of a URL scheme below a heading of their own."
        )
    engine = file.get("engine", "spark")
    if not isinstance(engine, str):
        raise InvalidArgumentError("engine in the config file must be a text in quotes.")
    _remember(given)
    _remember(storage)
    return Settings(engine, given, storage)


def _from_options(options: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in options:
        name, separator, value = text.partition("=")
        if not separator or not name.strip(":. "):
            raise InvalidArgumentError(
                f"--storage-option must be KEY=VALUE, got {_masked(text)!r}.\n"
                "Hint: for example --storage-option anon=true."
            )
        is_json, name = name.endswith(":"), name.removesuffix(":")
        # Hadoop's names have dots of their own.
        names = [name] if name.startswith(_HADOOP) else name.split(".")
        _put(found, names, _value(name, value, is_json))
    return found


def _masked(text: str) -> str:
    """An option without '=' may be a secret itself."""
    return text if len(text) < 4 else text[:2] + _HIDDEN


def _put(found: dict[str, Any], names: Sequence[str], value: Any) -> None:
    """Set an option; names with dots are options inside of others."""
    *outer, last = names
    for name in outer:
        found = found.setdefault(name, {})
        if not isinstance(found, dict):
            raise InvalidArgumentError(
                f"--storage-option {'.'.join(names)} is inside of {name!r}, which already has a "
                "value.\nHint: pass only one of them."
            )
    found[last] = value


def _value(name: str, text: str, is_json: bool) -> Any:
    if not is_json:
        _check_text(name, text)
        # The text "false" would count as true.
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"--storage-option {name} is not valid JSON: {error}.\n"
            "Hint: write KEY=VALUE for text, KEY:=JSON for numbers and objects."
        ) from error


def _check_text(name: str, text: str) -> None:
    """Refuse JSON that is given as text: no filesystem takes it so."""
    try:
        is_json = text.startswith(("{", "[")) and bool(json.loads(text))
    except ValueError:
        return
    if is_json:
        raise InvalidArgumentError(
            f"--storage-option {name} is given as text, but is JSON.\n"
            f"Hint: write {name}:=... for an object or a list, or {name}.KEY=... for one value."
        )


def _from_environment() -> dict[str, Any]:
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError(
            f"{_VARIABLE} in the environment must be a JSON object.\n"
            'Hint: for example {"endpoint_url": "https://minio.example"}.'
        )
    return found


def _file(given: Path | None) -> dict[str, Any]:
    import tomllib  # not needed by --help

    variable = os.environ.get(_CONFIG_VARIABLE)
    named = given or (Path(variable) if variable else None)
    path = named or _default_file()
    try:
        text = path.read_bytes()
    except OSError as error:
        if named is None and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise InvalidArgumentError(
            f"the config file {str(path)!r} cannot be read: {error.strerror}.\n"
            "Hint: check --config and FSSPECKIT_CONFIG."
        ) from error
    try:
        return tomllib.loads(text.decode())
    except ValueError as error:  # TOML and UTF-8
        raise InvalidArgumentError(
            f"the config file {str(path)!r} is not valid TOML: {error}.\n"
            'Hint: it holds lines such as engine = "duckdb", and headings such as [storage.s3].'
        ) from error


def _default_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "fsspeckit" / "config.toml"


def _remember(options: Mapping[str, Any]) -> None:
    _secrets.update(value for value in _secret_values(options) if len(value) > 3)


def _secret_values(options: Mapping[str, Any], secret: bool = False) -> Iterator[str]:
    for name, value in options.items():
        is_secret = secret or any(part in name.lower() for part in _SECRET_NAMES)
        if isinstance(value, dict):
            yield from _secret_values(value, is_secret)
        elif is_secret and isinstance(value, str):
            yield value


def hide(text: str) -> str:
    """Return a text without the secrets that this process was given."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text
