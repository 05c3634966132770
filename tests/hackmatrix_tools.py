"""Between HackMatrix's arrays and the plain-Python reference: states across, and the same dice for both."""

from __future__ import annotations

import random
from typing import Any

import hackmatrix_reference as reference
import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import ENEMY_NAMES, MAX_ENEMIES, NO_PROGRAM, State, restore

CONTENTS = ("empty", "block", "pickup", "exit")
PROGRAM_NAMES = [program.name for program in PROGRAMS]


def on_host(states: State) -> State:
    """A batch of states as NumPy arrays, numbers unpacked."""
    return jax.tree.map(np.asarray, states)


def row_of(states: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], states)


def to_reference(state: State, *, with_history: bool = True) -> reference.Game:
    """The reference's game of a single host state; without its history only that is as long."""
    grid, player = state.grid, state.player
    columns = {
        name: np.asarray(getattr(grid, name)).tolist()
        for name in ("content", "question", "points", "program", "spawn", "credits", "energy", "siphoned", "centre")
    }
    cells = {}
    for cell in range(36):
        values = {name: column[cell] for name, column in columns.items()}
        made = reference.Cell(
            content=CONTENTS[values["content"]],
            credits=values["credits"],
            energy=values["energy"],
            siphoned=values["siphoned"],
            centre=values["centre"],
        )
        if made.is_block:
            holds_data = values["program"] == NO_PROGRAM
            made.kind = "data" if holds_data else "program"
            made.program = None if holds_data else values["program"]
            made.question, made.spawn = values["question"], values["spawn"]
            made.points = values["points"] if holds_data else 0
        cells[divmod(cell, 6)] = made
    game = reference.Game(
        *divmod(int(player.cell), 6),
        hp=int(player.hp),
        credits=int(player.credits),
        energy=int(player.energy),
        data_siphons=int(player.siphons),
        attack_damage=int(player.attack),
        score=int(player.score),
        cells=cells,
        stage=int(state.stage),
        turn=int(state.turn),
        owned={program for program in range(23) if int(state.owned) >> program & 1},
        exit=divmod(int(state.exit), 6),
        show=bool(state.show),
        calm=bool(state.calm),
        step=bool(state.step),
        atk_uses=int(state.attack_uses),
        interval=int(state.interval),
        next_task=int(state.next_task),
        pending=int(state.pending),
        depth=len(state.history.rows) if with_history else 8,
    )
    enemies, trans = state.enemies, state.transmissions
    facts = ("kind", "cell", "hp", "disabled", "stunned", "from_siphon", "scheduled")
    told = {name: np.asarray(getattr(enemies, name)).tolist() for name in facts}
    for place in np.flatnonzero(enemies.alive).tolist():
        kind, cell, *rest = (told[name][place] for name in facts)
        game.enemies.append(reference.Enemy(ENEMY_NAMES[kind], *divmod(cell, 6), *rest))
    order = np.asarray(trans.order)
    told = {name: np.asarray(getattr(trans, name)).tolist() for name in ("turns", "kind", "from_siphon", "scheduled")}
    for cell in sorted(np.flatnonzero(trans.present).tolist(), key=lambda cell: order[cell]):
        turns, kind, *flags = (told[name][cell] for name in told)
        game.transmissions.append(reference.Transmission(*divmod(cell, 6), turns, ENEMY_NAMES[kind], *flags))
    if not with_history:
        nothing: list[Any] = [None]
        game.history = nothing * int(state.history.count)
    else:
        depth, count, head = len(state.history.rows), int(state.history.count), int(state.history.head)
        places = [(head - 1 - back) % depth for back in reversed(range(count))]
        game.history = [snapshot_of(state, np.asarray(state.history.rows[place])) for place in places]
    return game


def snapshot_of(state: State, words: np.ndarray) -> reference.Snapshot:
    held = jax.tree.map(np.asarray, restore(state, jnp.asarray(words)))
    game = to_reference(held, with_history=False)
    return reference.Snapshot(
        player={name: getattr(game, name) for name in reference.PLAYER_FIELDS},
        turn=game.turn,
        owned=game.owned,
        enemies=game.enemies,
        transmissions=game.transmissions,
        cells=game.cells,
        show=game.show,
        calm=game.calm,
        atk_uses=game.atk_uses,
    )


class SameDice(reference.Dice):
    """Decides as the arrays did: from the same random words, and for a new stage from what came of it."""

    def __init__(self, game: reference.Game, key: Any, before: State, after: State) -> None:
        super().__init__(0)
        # Until the next turn the dead leave empty places between the living.
        self.places = {
            id(enemy): p for enemy, p in zip(game.enemies, np.flatnonzero(before.enemies.alive), strict=True)
        }
        play_key = jax.random.split(key)[0]
        self.words = np.asarray(jax.random.bits(play_key, (2 * MAX_ENEMIES + 36,))).tolist()
        self.game, self.after = game, after
        self.orders = 0
        self.new_stage = None
        self.spawned: reference.Transmission | None = None

    def order(self, enemies):
        words = self.words[self.orders * MAX_ENEMIES :]
        self.orders += 1
        place = {id(enemy): number for number, enemy in enumerate(self.game.enemies)}
        return sorted(enemies, key=lambda enemy: (-words[place[id(enemy)]], place[id(enemy)]))

    def spawn_cell(self, cells):
        if self.new_stage is not None:
            self.spawned = self.new_stage.transmissions[len(self.game.transmissions)]
            assert self.spawned.position in cells, "a transmission where none may be"
            return self.spawned.position
        words = self.words[2 * MAX_ENEMIES :]
        chosen = max(
            cells, key=lambda cell: ((words[6 * cell[0] + cell[1]] & (2**31 - 1)) >> 2, -6 * cell[0] - cell[1])
        )
        row, col = chosen
        self.spawned = reference.Transmission(row, col, 1, ENEMY_NAMES[words[6 * row + col] & 3])
        return chosen

    def spawn_type(self):
        assert self.spawned is not None
        return self.spawned.type

    def warp_target(self, targets):
        drawn, count = self.words[0] % len(targets), len(self.game.enemies)
        if drawn < count:
            return drawn
        by_cell = sorted(range(count, len(targets)), key=lambda index: targets[index].position)
        return by_cell[drawn - count]

    def poly_type(self, enemy, other_types):
        turned = (ENEMY_NAMES.index(enemy.type) + 1 + self.words[self.places[id(enemy)]] % 3) % 4
        assert ENEMY_NAMES[turned] in other_types
        return ENEMY_NAMES[turned]

    def stage_board(self, game):
        self.new_stage = to_reference(self.after, with_history=False)
        game.cells, game.exit = self.new_stage.cells, self.new_stage.exit


def disagreements(game: reference.Game, state: State) -> dict[str, Any]:
    """Where the reference's game and a host state differ."""
    told = to_reference(state)
    for one in (game, told):
        one.events = reference.Events()
    names = [name for name in vars(told) if name not in ("undo_across_stages", "depth")]
    return {
        name: (getattr(told, name), getattr(game, name)) for name in names if getattr(told, name) != getattr(game, name)
    }


def random_scenario(rng: random.Random) -> dict[str, Any]:
    """A crowded game with much to do, in which every rule may come to pass."""
    cells = [(row, col) for row in range(6) for col in range(6)]

    def some(most: int, repeat: bool = False) -> list[tuple[int, int]]:
        return rng.choices(cells, k=rng.randint(0, most)) if repeat else rng.sample(cells, rng.randint(0, most))

    def flag(chance: float = 0.2) -> bool:
        return rng.random() < chance

    def block(row: int, col: int) -> dict[str, Any]:
        made: dict[str, Any] = {"row": row, "col": col, "siphoned": flag()}
        made["type"] = rng.choice(["data", "program", "question"])
        if made["type"] == "program" or (made["type"] == "question" and flag(0.5)):
            made["programActionIndex"] = rng.randint(5, 27)
        else:
            made["points"] = rng.randint(0, 11)
        return made | ({"spawnCount": rng.randint(0, 4)} if flag(0.7) else {})

    row, col = rng.choice(cells)
    player = {"row": row, "col": col, "hp": rng.randint(1, 3), "score": rng.randint(0, 9)}
    player |= {name: rng.randint(0, 12) for name in ("credits", "energy")}
    player |= {"dataSiphons": rng.randint(0, 2), "attackDamage": rng.randint(1, 3)}
    enemies = [
        {
            "type": rng.choice(ENEMY_NAMES), "row": r, "col": c, "hp": rng.randint(1, 3), "stunned": flag(),
            "spawnedFromSiphon": flag(), "isFromScheduledTask": flag(), "disabledTurns": rng.choice([0, 0, 0, 1, 2]),
        }
        for r, c in some(9, repeat=flag())
        if (r, c) != (row, col)
    ]  # fmt: skip
    transmissions = [
        {
            "row": r, "col": c, "turnsRemaining": rng.randint(1, 4), "enemyType": rng.choice(ENEMY_NAMES),
            "spawnedFromSiphon": flag(), "isFromScheduledTask": flag(),
        }
        for r, c in some(6)
        if (r, c) != (row, col)
    ]  # fmt: skip
    resources = [
        {"row": r, "col": c} | rng.choice([{"credits": 1}, {"credits": 2}, {"energy": 3}, {"dataSiphon": True}])
        for r, c in some(20)
    ]
    corner = rng.choice([cell for cell in ((0, 0), (0, 5), (5, 0), (5, 5)) if cell != (row, col)])
    return {
        "player": player,
        "enemies": enemies,
        "transmissions": transmissions,
        "blocks": [block(r, c) for r, c in some(12) if (r, c) != (row, col)],
        "resources": resources,
        "ownedPrograms": rng.sample(range(5, 28), rng.choice([0, 8, 23])),
        "stage": rng.randint(1, 8),
        "turn": rng.randint(0, 15),
        "showActivated": flag(),
        "scheduledTasksDisabled": flag(),
        "stepActive": flag(0.1),
        "atkPlusUses": rng.randint(0, 2),
        "exit": {"row": corner[0], "col": corner[1]},
        "siphonedCells": [list(cell) for cell in some(5)],
    }
