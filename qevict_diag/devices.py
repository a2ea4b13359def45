"""The torch device of a name, if this machine has it."""

from typing import TYPE_CHECKING

from qevict_diag.errors import InputError

if TYPE_CHECKING:
    import torch


def torch_device(name: str) -> "torch.device":
    """The torch device called ``name``; InputError when this machine does not have it, or it holds no numbers."""
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, ValueError) as error:
        here = "cpu" + (f", cuda:0 to cuda:{torch.cuda.device_count() - 1}" if torch.cuda.is_available() else "")
        raise InputError(f"device {name!r} is not there; this machine has {here}") from error
    return device
