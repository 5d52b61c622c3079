"""The documents of the control directory: JSON with a format, a version and a checksum."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fsspeckit.errors import CorruptRecordError

VERSION = 1


def encode_document(kind: str, content: dict[str, Any], *, indent: int | None = 2) -> bytes:
    """Encode a versioned JSON document with a checksum over its content."""
    document = {"format": kind, "version": VERSION, **content}
    document["checksum"] = checksum_of(document)
    return (json.dumps(document, indent=indent, ensure_ascii=False) + "\n").encode()


def decode_document(path: str, data: bytes, kind: str) -> dict[str, Any]:
    """Decode such a document; CorruptRecordError if it is damaged or from a newer version."""
    try:
        document: Any = json.loads(data)
    except ValueError as error:  # also bytes that are not text
        raise CorruptRecordError.damaged(path, f"it is not JSON ({error})") from error
    return check_document(path, document, kind)


def check_document(path: str, document: Any, kind: str) -> dict[str, Any]:
    """Return a document without its checksum, which must fit its content."""
    if not isinstance(document, dict) or document.get("format") != kind:
        raise CorruptRecordError.damaged(path, f"it is not a {kind} document")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CorruptRecordError.newer(path, version, VERSION)
    expected = document.pop("checksum", None)
    if version != VERSION or expected != checksum_of(document):
        raise CorruptRecordError.damaged(path, "its checksum does not fit its content")
    return document


def checksum_of(document: dict[str, Any]) -> str:
    """Return the checksum of a document that has none yet."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
