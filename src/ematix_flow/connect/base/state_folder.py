"""Where this machine keeps what a stream must not forget and no target can remember; it makes the folder and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "EMATIX_FLOW_STATE_DIR"


def state_folder() -> Path:
    """Return the folder that the environment names, or the one in the user's home; it is there afterwards."""
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else Path.home() / ".ematix-flow" / "state"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
