"""A game of HackMatrix in a terminal: the board, what its signs mean, and what programs cost and do."""

from __future__ import annotations

import jax
import numpy as np

from rollax.envs.hackmatrix.actions import FIRST_PROGRAM
from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.drawing import COLOURS, KEYS, Square, squares, status
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import BLOCK, EXIT, NO_PROGRAM, PICKUP, State

WIDTH = 9  # of a cell: what a block can hold is at most as long
BESIDE = 3  # columns between the board and the legend
Spans = list[tuple[str, str]]  # texts, each with the name of its colour
EFFECTS = {
    "push": "shove all enemies one cell away",
    "pull": "draw all enemies one cell nearer",
    "crash": "destroy all on the 8 cells around you",
    "warp": "jump onto a random enemy or transmission",
    "poly": "turn every enemy into another type",
    "wait": "let the enemies move",
    "debug": "hit all enemies that stand on blocks",
    "row": "hit all enemies in your row",
    "col": "hit all enemies in your column",
    "undo": "go back one turn",
    "step": "skip the enemies' next turn",
    "siph+": "get a data siphon",
    "exch": "get 4 energy",
    "show": "see all cryptogs in this stage",
    "reset": "back to 3 hp",
    "calm": "no more scheduled enemies in this stage",
    "d_bom": "remove a near daemon, 1 to all around it",
    "delay": "all transmissions come 3 turns later",
    "anti-v": "hit all viruses for 1",
    "score": "get 8 points less the stage's number",
    "reduc": "each block brings one transmission less",
    "atk+": "attack + 1, twice in a stage",
    "hack": "hit all enemies on siphoned cells",
}
SIGNS = (  # a line each: signs, their colours, and what they mean
    (("@", "player", "you"), ("X", "exit", "exit"), ("*", "pickup", "data siphon")),
    (("V", "virus", "virus, moves twice"), ("D", "daemon", "daemon, has 3 hp")),
    (("G", "glitch", "glitch, walks over blocks"),),
    (("C", "cryptog", "cryptog, seen in your row and column only"),),
    (("D2!", "daemon", "has 2 hp and is stunned"), ("t1", "transmission", "enemy in 1 turn")),
    (("[7]", "label", ""), ("7", "transmission", "block of 7 points that brings 7 transmissions")),
    (("[warp]", "label", ""), ("5", "transmission", "block of a program, likewise")),
    (("[?]", "label", "unknown"), ("(7)", "faint", "drained"), ("░░", "faint", "siphoned ground")),
    (("2c", "credits", "credits"), ("1e", "energy", "energy, which siphons collect")),
)
RULES = (
    "A direction shoots what stands first in that line;",
    "with nothing there it walks. A siphon drains your cell",
    "and the four next to it. hp 0 ends the game.",
)


def text(state: State, *, colours: bool = False) -> str:
    """The board and the numbers; of each cell who is there, and below what is there."""
    player, bar = divmod(int(state.player.cell), SIZE), _painted([("│", "line")], colours)
    lines = [_rule("┌┬┐", colours)]
    rows = list(enumerate(squares(state)))
    for r, line in reversed(rows):
        cells = [(_actors(it, is_player=(r, c) == player), _ground(it)) for c, it in enumerate(line)]
        for half in range(2):
            painted = [_painted(cell[half], colours, WIDTH) for cell in cells]
            lines.append(bar + bar.join(painted) + bar)
        lines.append(_rule("├┼┤" if r else "└┴┘", colours))
    return "\n".join([*lines, *status(state)])


def whole(state: State, may: np.ndarray, columns: int, *, colours: bool) -> str:
    """The same with its legend beside it where there are enough columns, else with a word on how to see it.

    `may` says which actions are legal.
    """
    board, signs = text(state, colours=colours).splitlines(), _legend(state, may)
    wide = SIZE * (WIDTH + 1) + 1
    if columns < wide + BESIDE + max(sum(len(part) for part, _ in line) for line in signs):
        return "\n".join([*board, "? shows what the signs mean and what programs do"])
    blank = " " * wide
    rows = max(len(board), len(signs))
    left = [line + " " * max(0, wide - len(line)) if "\x1b" not in line else line for line in board]
    left += [blank] * (rows - len(left))
    right = [_painted(line, colours) for line in signs] + [""] * (rows - len(signs))
    return "\n".join(f"{one}{' ' * BESIDE}{other}".rstrip() for one, other in zip(left, right, strict=True))


def legend(state: State, may: np.ndarray) -> list[str]:
    """What the signs mean, and the programs that one has or could get, as plain lines."""
    return ["".join(part for part, _ in line) for line in _legend(state, may)]


def _legend(state: State, may: np.ndarray) -> list[Spans]:
    host = jax.device_get(state)
    owned = [i for i in range(len(PROGRAMS)) if int(host.owned) >> i & 1]
    shown = (host.grid.content == BLOCK) & ~host.grid.question & ~host.grid.siphoned
    lying = sorted({int(i) for i in host.grid.program[shown] if i != NO_PROGRAM} - set(owned))
    lines = [_explained(line) for line in SIGNS]
    lines += [[], *([(rule, "faint")] for rule in RULES), []]
    if owned:
        lines.append([("your programs", "player"), (" (- cannot run now)", "faint")])
        lines += [_described(i, ready=bool(may[FIRST_PROGRAM + i])) for i in owned]
    if lying:
        lines.append([("programs in blocks", "player")])
        lines += [_described(i) for i in lying]
    return lines


def _explained(line: tuple[tuple[str, str, str], ...]) -> Spans:
    """Signs with what they mean, apart from each other; one without a meaning belongs to the next."""
    parts: Spans = []
    for sign, colour, meaning in line:
        apart = [("    ", "text")] if parts and parts[-1][1] == "text" else []
        parts += [*apart, (sign, colour), *([(f" {meaning}", "text")] if meaning else [])]
    return parts


def _described(index: int, *, ready: bool | None = None) -> Spans:
    """A program with its price and effect, and with its key where one has it."""
    program = PROGRAMS[index]
    key = " " if ready is None else KEYS[FIRST_PROGRAM + index] if ready else "-"
    price = price_of(index)
    colour = "text" if ready else "faint"
    return [(f"{key} {program.name:<6} ", colour), (f"{price:<5} ", "credits"), (EFFECTS[program.name], colour)]


def price_of(index: int) -> str:
    program = PROGRAMS[index]
    parts = [f"{program.credits}c"] * bool(program.credits) + [f"{program.energy}e"] * bool(program.energy)
    return " ".join(parts) or "free"


def _actors(it: Square, *, is_player: bool) -> Spans:
    """Who is on a cell; of a drained block also what lies under it, for which there is no place below."""
    parts: Spans = [("@", "player")] if is_player else []
    if it.enemy:
        parts.append((f"{it.enemy[0].upper()}{it.hp}{'!' if it.stunned else ''}", it.enemy))
    if it.transmission:
        parts.append((f"t{it.transmission}", "transmission"))
    return _spaced(parts + (_resources(it) if it.content == BLOCK else []))


def _ground(it: Square) -> Spans:
    if it.content == BLOCK:
        if it.siphoned:
            return [(f"({it.label})", "faint")]
        return [(f"[{it.label}]", "label"), (str(it.spawn or ""), "transmission")]
    sign = {EXIT: [("X", "exit")], PICKUP: [("*", "pickup")]}.get(it.content, [])
    return _spaced([*sign, *_resources(it), *([("░░", "faint")] if it.siphoned else [])])


def _resources(it: Square) -> Spans:
    amounts = ((it.credits, "credits"), (it.energy, "energy"))
    return [(f"{amount}{name[0]}", name) for amount, name in amounts if amount]


def _spaced(parts: Spans) -> Spans:
    return [(f" {part}" if number else part, colour) for number, (part, colour) in enumerate(parts)]


def _painted(parts: Spans, colours: bool, width: int = 0) -> str:
    """Texts one after the other, filled up to a width."""
    filled = " " * max(0, width - sum(len(part) for part, _ in parts))
    return "".join(_paint(part, colour) if colours else part for part, colour in parts) + filled


def _paint(part: str, colour: str) -> str:
    red, green, blue = COLOURS[colour]
    return f"\x1b[38;2;{red};{green};{blue}m{part}\x1b[0m" if part else ""


def _rule(ends: str, colours: bool) -> str:
    left, middle, right = ends
    return _painted([(left + middle.join("─" * WIDTH for _ in range(SIZE)) + right, "line")], colours)
