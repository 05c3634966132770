"""The values of a game, hidden ones included, as plain data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.hackmatrix.actions import FIRST_PROGRAM
from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import ENEMY_NAMES, State


def read(state: State) -> dict[str, Any]:
    """A game's values as plain Python, hidden ones included.

    `player` with the names of a scenario; `stage`, `turn_count`, `exit` (`row`, `col`), `owned_programs` (as actions),
    the flags `show`, `calm` and `step_active`, `atk_plus_uses`, `scheduled_task_interval`, `next_scheduled_task_turn`,
    `pending_siphon_transmissions`, `snapshots` (how often UNDO could go back), and, in their order, `enemies` (`row`,
    `col`, `type`, `hp`, `disabled_turns`, `is_stunned`, `spawned_from_siphon`, `is_from_scheduled_task`) and
    `transmissions` (`row`, `col`, `turns`, `type` and the same two origins).
    """
    host = jax.tree.map(np.asarray, jax.device_get(state._replace(history=state.history._replace(rows=jnp.zeros(0)))))
    player, enemies, trans = host.player, host.enemies, host.transmissions
    order = sorted(np.flatnonzero(trans.present).tolist(), key=lambda cell: int(trans.order[cell]))
    return {
        "player": {
            "row": int(player.cell) // SIZE,
            "col": int(player.cell) % SIZE,
            "hp": int(player.hp),
            "credits": int(player.credits),
            "energy": int(player.energy),
            "dataSiphons": int(player.siphons),
            "attackDamage": int(player.attack),
            "score": int(player.score),
        },
        "stage": int(host.stage),
        "turn_count": int(host.turn),
        "exit": {"row": int(host.exit) // SIZE, "col": int(host.exit) % SIZE},
        "owned_programs": [FIRST_PROGRAM + i for i in range(len(PROGRAMS)) if int(host.owned) >> i & 1],
        "show": bool(host.show),
        "calm": bool(host.calm),
        "step_active": bool(host.step),
        "atk_plus_uses": int(host.attack_uses),
        "scheduled_task_interval": int(host.interval),
        "next_scheduled_task_turn": int(host.next_task),
        "pending_siphon_transmissions": int(host.pending),
        "snapshots": int(host.history.count),
        "enemies": [
            {
                "row": int(enemies.cell[i]) // SIZE,
                "col": int(enemies.cell[i]) % SIZE,
                "type": ENEMY_NAMES[int(enemies.kind[i])],
                "hp": int(enemies.hp[i]),
                "disabled_turns": int(enemies.disabled[i]),
                "is_stunned": bool(enemies.stunned[i]),
                "spawned_from_siphon": bool(enemies.from_siphon[i]),
                "is_from_scheduled_task": bool(enemies.scheduled[i]),
            }
            for i in np.flatnonzero(enemies.alive)
        ],
        "transmissions": [
            {
                "row": cell // SIZE,
                "col": cell % SIZE,
                "turns": int(trans.turns[cell]),
                "type": ENEMY_NAMES[int(trans.kind[cell])],
                "spawned_from_siphon": bool(trans.from_siphon[cell]),
                "is_from_scheduled_task": bool(trans.scheduled[cell]),
            }
            for cell in order
        ],
    }
