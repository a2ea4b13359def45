"""From bytes to text: UTF-8 only, and what the bytes seem to be where they are something else."""

from qevict_diag.errors import InputError

_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_ASCII_SHARE = 0.02  # of the units of a text in a wide encoding, at least, that are ASCII: spaces and ends of lines


def decode(data: bytes, where: str) -> str:
    """The text of bytes in UTF-8, with its mark or without; InputError for what is something else, or no text."""
    refuse_wide(data, where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}); save it as UTF-8: `file` may "
            "tell what it is, and `iconv -f THAT -t UTF-8` converts it"
        ) from error
    if "\0" in text:
        raise InputError(f"{where} holds NUL bytes, so it is no text; give a text in UTF-8")
    if not text.strip():
        raise InputError(f"{where} has no text; give at least a prompt's worth")
    return text


def refuse_wide(data: bytes, where: str) -> None:
    """InputError that names the encoding of bytes in UTF-16 or UTF-32."""
    wide = wide_encoding(data)
    if wide is not None:
        raise InputError(f"{where} is not UTF-8 but {wide}; convert it, `iconv -f {wide} -t UTF-8` does")


def wide_encoding(data: bytes) -> str | None:
    """The encoding of 2 or 4 bytes per unit that a mark or the places of the NUL bytes show; None for no such thing."""
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if marked is not None or b"\0" not in data:
        return marked
    nuls = [data[place::4].count(0) / (len(data) / 4) for place in range(4)]
    shapes = {  # the places of a unit's bytes that are NUL in ASCII, and one that hardly ever is
        "UTF-32LE": ((1, 2, 3), 0),
        "UTF-32BE": ((0, 1, 2), 3),
        "UTF-16LE": ((1, 3), 0),
        "UTF-16BE": ((0, 2), 1),
    }
    fits = (
        name
        for name, (high, low) in shapes.items()
        if min(nuls[place] for place in high) > max(_ASCII_SHARE, 10 * nuls[low])
    )
    return next(fits, None)
