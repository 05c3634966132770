"""A game of HackMatrix for people: what they see of each cell, the keys, and a picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.observation import owned_programs
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import (
    BLOCK,
    CRYPTOG,
    ENEMY_NAMES,
    EXIT,
    LAST_STAGE,
    MAX_HP,
    NO_PROGRAM,
    PICKUP,
    State,
)

# One key for each action, in the order of the actions.
KEYS = "wsad bcefghijklmnopqrtuvxyz1"
ACTION_NAMES = ("up", "down", "left", "right", "siphon", *(program.name for program in PROGRAMS))
TILE, PANEL = 56, 96  # pixels of a cell's side, and of the strip below the board
COLOURS = {
    "ground": (22, 26, 34),
    "line": (62, 70, 86),
    "siphoned": (50, 44, 82),
    "block": (84, 92, 110),
    "question": (124, 92, 150),
    "player": (120, 220, 255),
    "exit": (90, 200, 120),
    "pickup": (250, 210, 90),
    "credits": (225, 190, 95),
    "energy": (110, 170, 250),
    "text": (230, 233, 240),
    "label": (176, 186, 206),
    "faint": (140, 146, 160),
    "transmission": (200, 120, 220),
    "virus": (240, 95, 85),
    "daemon": (255, 150, 60),
    "glitch": (215, 110, 200),
    "cryptog": (130, 200, 150),
}


class Square(NamedTuple):
    """What a player sees of one cell."""

    content: int
    label: str  # of a block
    spawn: int  # of a block: the transmissions that its siphoning brings, as far as they are seen
    question: bool
    siphoned: bool  # of a block: it is drained
    credits: int
    energy: int
    transmission: int  # turns, 0 for none
    enemy: str  # its type, empty for none
    hp: int
    stunned: bool


def squares(state: State) -> list[list[Square]]:
    """The board as a player sees it, row 0 first."""
    host = jax.device_get(state)
    grid, enemies, trans = host.grid, host.enemies, host.transmissions
    row, col = divmod(int(host.player.cell), SIZE)
    first: dict[int, int] = {}
    for place in np.flatnonzero(enemies.alive):
        first.setdefault(int(enemies.cell[place]), int(place))

    def seen(place: int, cell: int) -> bool:
        return int(enemies.kind[place]) != CRYPTOG or cell // SIZE == row or cell % SIZE == col or bool(host.show)

    def square(cell: int) -> Square:
        content, program = int(grid.content[cell]), int(grid.program[cell])
        block, siphoned, question = content == BLOCK, bool(grid.siphoned[cell]), bool(grid.question[cell])
        label = ""
        if block:
            label = (
                "?" if question else str(int(grid.points[cell])) if program == NO_PROGRAM else PROGRAMS[program].name
            )
        hidden = block and not siphoned
        place = first.get(cell)
        visible = place is not None and seen(place, cell)
        return Square(
            content=content,
            label=label,
            spawn=int(grid.spawn[cell]) if block and not question and not siphoned else 0,
            question=block and question,
            siphoned=siphoned,
            credits=0 if hidden else int(grid.credits[cell]),
            energy=0 if hidden else int(grid.energy[cell]),
            transmission=max(1, int(trans.turns[cell])) if bool(trans.present[cell]) else 0,
            enemy=ENEMY_NAMES[int(enemies.kind[place])] if visible and place is not None else "",
            hp=int(enemies.hp[place]) if visible and place is not None else 0,
            stunned=bool(enemies.stunned[place]) if visible and place is not None else False,
        )

    return [[square(SIZE * r + c) for c in range(SIZE)] for r in range(SIZE)]


def status(state: State) -> list[str]:
    """A game's numbers in two lines, and the programs that are owned."""
    player = jax.device_get(state.player)
    owned = [PROGRAMS[i].name for i in np.flatnonzero(jax.device_get(owned_programs(state)))]
    return [
        f"stage {int(state.stage)}/{LAST_STAGE}   hp {int(player.hp)}/{MAX_HP}   attack {int(player.attack)}   "
        f"turn {int(state.turn)}",
        f"credits {int(player.credits)}   energy {int(player.energy)}   siphons {int(player.siphons)}   "
        f"score {int(player.score)}",
        "programs: " + (", ".join(owned) or "none"),
    ]


def picture(state: State) -> np.ndarray:
    """The board and the numbers as `uint8[height, width, 3]`."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (TILE * SIZE, TILE * SIZE + PANEL), COLOURS["ground"])
    pen = ImageDraw.Draw(image)
    player = divmod(int(state.player.cell), SIZE)
    for r, line in enumerate(squares(state)):
        for c, it in enumerate(line):
            _draw_square(pen, c * TILE, (SIZE - 1 - r) * TILE, it, is_player=(r, c) == player)
    for number, line in enumerate(status(state)):
        for part, shown in enumerate(_wrapped(line, 54)):
            pen.text((8, TILE * SIZE + 8 + 17 * number + 13 * part), shown, fill=COLOURS["text"])
    return np.asarray(image)


def _draw_square(pen: Any, x: int, y: int, it: Square, *, is_player: bool) -> None:
    box = (x, y, x + TILE - 1, y + TILE - 1)
    pen.rectangle(box, fill=COLOURS["siphoned" if it.siphoned else "ground"], outline=COLOURS["line"])
    if it.content == BLOCK:
        fill = None if it.siphoned else COLOURS["question" if it.question else "block"]  # a drained one is hollow
        pen.rounded_rectangle(_inner(box, 5), 6, fill=fill, outline=COLOURS["block"])
        pen.text((x + TILE / 2, y + TILE / 2), it.label, fill=COLOURS["faint" if it.siphoned else "text"], anchor="mm")
        if it.spawn:
            pen.text((x + TILE - 9, y + 8), str(it.spawn), fill=COLOURS["text"], anchor="rt")
    if it.content == EXIT:
        pen.rectangle(_inner(box, 7), outline=COLOURS["exit"], width=3)
    if it.content == PICKUP:
        pen.regular_polygon((x + TILE / 2, y + TILE / 2, 9), 4, fill=COLOURS["pickup"])
    for amount, name, left in ((it.credits, "credits", 8), (it.energy, "energy", 8)):
        for number in range(amount):
            spot = (x + left + 9 * number, y + TILE - 13)
            pen.ellipse((*spot, spot[0] + 6, spot[1] + 6), fill=COLOURS[name])
    if it.transmission:
        pen.ellipse(_inner(box, 12), outline=COLOURS["transmission"], width=2)
        pen.text((x + TILE / 2, y + TILE / 2), str(it.transmission), fill=COLOURS["transmission"], anchor="mm")
    if it.enemy:
        shape = {"virus": 3, "daemon": 4, "glitch": 6, "cryptog": 8}[it.enemy]
        pen.regular_polygon((x + TILE / 2, y + TILE / 2, 17), shape, fill=COLOURS[it.enemy])
        pen.text(
            (x + TILE / 2, y + TILE / 2), f"{it.hp}{'!' if it.stunned else ''}", fill=COLOURS["ground"], anchor="mm"
        )
    if is_player:
        pen.ellipse(_inner(box, 15), fill=COLOURS["player"])


def _inner(box: tuple[int, int, int, int], margin: int) -> tuple[int, int, int, int]:
    return box[0] + margin, box[1] + margin, box[2] - margin, box[3] - margin


def _wrapped(line: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(line, width) or [""]
