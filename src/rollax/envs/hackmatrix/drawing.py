"""A game of HackMatrix for people: as text, as a picture, and the keys to play it with."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.observation import owned_programs
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import BLOCK, CRYPTOG, ENEMY_NAMES, EXIT, NO_PROGRAM, PICKUP, State

# One key for each action, in the order of the actions.
KEYS = "wsad bcefghijklmnopqrtuvxyz1"
ACTION_NAMES = ("up", "down", "left", "right", "siphon", *(program.name for program in PROGRAMS))
TILE, PANEL = 56, 96  # pixels of a cell's side, and of the strip below the board
COLOURS = {
    "ground": (22, 26, 34),
    "line": (48, 55, 68),
    "siphoned": (38, 34, 58),
    "block": (84, 92, 110),
    "question": (124, 92, 150),
    "player": (120, 220, 255),
    "exit": (90, 200, 120),
    "pickup": (250, 210, 90),
    "credits": (225, 190, 95),
    "energy": (110, 170, 250),
    "text": (230, 233, 240),
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
    question: bool
    siphoned: bool
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
        f"stage {int(state.stage)}   hp {int(player.hp)}   score {int(player.score)}   turn {int(state.turn)}",
        f"credits {int(player.credits)}   energy {int(player.energy)}   siphons {int(player.siphons)}   "
        f"attack {int(player.attack)}",
        "programs: " + (", ".join(owned) or "none"),
    ]


def text(state: State) -> str:
    """The board and the numbers as lines of plain text.

    @ player, V D G C enemies with their hp (! stunned), t a transmission with its turns, [..] a block (lower case once
    siphoned), * a pickup, X the exit, 2c and 1e resources.
    """
    board = squares(state)
    row, col = divmod(int(state.player.cell), SIZE)

    def show(r: int, c: int) -> str:
        it = board[r][c]
        ground = {EXIT: "X", PICKUP: "*"}.get(it.content, "")
        if it.content == BLOCK:
            ground = f"[{it.label if it.siphoned else it.label.upper()}]"
        elif it.credits or it.energy:
            ground += f"{it.credits}c" if it.credits else f"{it.energy}e"
        actor = "@" if (r, c) == (row, col) else ""
        if it.enemy:
            actor += f"{it.enemy[0].upper()}{it.hp}{'!' if it.stunned else ''}"
        if it.transmission:
            actor += f"t{it.transmission}"
        return f"{actor} {ground}".strip() or "."

    lines = ["+" + "-" * (9 * SIZE + 1) + "+"]
    for r in reversed(range(SIZE)):
        lines.append("| " + "".join(f"{show(r, c):<9.9}" for c in range(SIZE)) + "|")
    return "\n".join([*lines, lines[0], *status(state)])


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
        pen.rounded_rectangle(_inner(box, 5), 6, fill=COLOURS["question" if it.question else "block"])
        pen.text((x + TILE / 2, y + TILE / 2), it.label, fill=COLOURS["faint" if it.siphoned else "text"], anchor="mm")
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
