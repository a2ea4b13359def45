"""The time that SOURCE_DATE_EPOCH sets, for results that are the same whenever they are made."""

import datetime
import os

from qevict_diag.errors import InputError


def source_date() -> datetime.datetime | None:
    """The time in UTC that SOURCE_DATE_EPOCH tells in seconds since 1970; None where it is not set.

    InputError for anything else: numpy and matplotlib read it too, and fail over it in the middle of their work.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"SOURCE_DATE_EPOCH is {epoch[:40]!r}; give seconds since 1970, or unset it") from error
