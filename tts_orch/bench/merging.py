"""Results of a part that runs again: rows measured anew take the place of their predecessors, all others stay."""

from __future__ import annotations

import hashlib
import json
from typing import Final, TypeAlias

from tts_orch.json_lines import JsonObject

__all__ = ["merged"]

_ROW_LISTS: Final = ("rows", "siblings")
_KEY: Final = (
    "workload",
    "temperature",
    "method",
    "nodes",
    "lockstep",
    "order",
    "siblings",
    "scope",
    "table_entries",
    "batch",
    "warm",
)
"""What tells the rows of a part apart, as far as they have it."""

_Key: TypeAlias = "tuple[object, ...]"


def merged(before: JsonObject, after: JsonObject, made: JsonObject) -> JsonObject:
    """Return the results of a part after it ran again, perhaps for some of its rows only.

    Every row says in `made` which run it is from; `made` of the part has what is known of these runs. What stands beside
    the rows is that of the last run.

    Args:
        before: results of the part so far, empty for none.
        after: what was found now.
        made: where, when and with what.
    """
    run = hashlib.blake2b(json.dumps(made, sort_keys=True).encode(), digest_size=8).hexdigest()
    result = dict(after)
    for name in _ROW_LISTS:
        if name in after:
            rows = [{**row, "made": run} for row in after[name]]
            result[name] = list((_by_key(before.get(name, [])) | _by_key(rows)).values())
    runs = {**before.get("made", {}), run: made}
    used = {row["made"] for name in _ROW_LISTS for row in result.get(name, [])}
    return {"made": {name: known for name, known in runs.items() if name in used}, **result}


def _by_key(rows: list[JsonObject]) -> dict[_Key, JsonObject]:
    return {tuple(row.get(name) for name in _KEY): row for row in rows}
