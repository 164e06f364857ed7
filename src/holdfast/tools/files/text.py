"""Text in files: UTF-8, bounded, and every refusal with its reason."""

from __future__ import annotations

import os

from holdfast.core.errors import InvalidCall
from holdfast.tools.call import Call
from holdfast.tools.files.safe_path import SafePath


def named(call: Call, path: str) -> str:
    """The path as errors name it."""
    return os.path.join(call.folder, path)


def read_bytes(spot: SafePath, bytes_max: int) -> bytes:
    with open(spot.open_file(), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise InvalidCall(f"{spot.path} has more than {bytes_max:,} bytes; raise max_bytes or read another file")
    return data


def read_text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidCall(f"{path} is not UTF-8 text (byte {error.start} cannot be read)") from None


def encoded(text: str, argument: str, bytes_max: int) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        where = f"{argument}: character {error.start}"
        raise InvalidCall(f"{where} is a lone surrogate, which UTF-8 cannot hold") from None
    if len(data) > bytes_max:
        raise InvalidCall(
            f"{argument}: the file would have {len(data):,} bytes, at most {bytes_max:,} are written "
            "(tools.files.max_bytes)"
        )
    return data
