"""A treasure hunt for people: as a picture."""

from __future__ import annotations

import colorsys

import jax
import numpy as np

from rollax.envs.treasurehunt.world import BONE, FOOD, GEM, WALL, World

TILE, STRIP = 32, 20  # pixels of a cell's side, and of the line below the board
GROUND, LINE, STONE, TEXT = (226, 209, 170), (208, 190, 150), (92, 84, 78), (60, 54, 48)
COLOURS = {GEM: (40, 150, 190), FOOD: (88, 160, 70), BONE: (250, 248, 240)}


def picture(world: World, turn: int) -> np.ndarray:
    """The board with its players, each in a colour of its own, as `uint8[height, width, 3]`."""
    from PIL import Image, ImageDraw

    top, position = (np.asarray(part) for part in jax.device_get(world))
    rows, cols = top.shape
    image = Image.new("RGB", (cols * TILE, rows * TILE + STRIP), GROUND)
    pen = ImageDraw.Draw(image)
    for (row, col), kind in np.ndenumerate(top):
        x, y = col * TILE, row * TILE
        pen.rectangle((x, y, x + TILE - 1, y + TILE - 1), outline=LINE, fill=STONE if kind == WALL else None)
        if kind == GEM:
            middle = TILE // 2
            corners = ((middle, 6), (TILE - 7, middle), (middle, TILE - 7), (6, middle))
            pen.polygon([(x + dx, y + dy) for dx, dy in corners], fill=COLOURS[kind], outline=TEXT)
        elif kind in COLOURS:
            pen.ellipse((x + 8, y + 8, x + TILE - 9, y + TILE - 9), fill=COLOURS[kind], outline=TEXT)
    for player, cell in enumerate(position):
        y, x = (int(part) * TILE for part in divmod(int(cell), cols))
        colour = tuple(int(255 * part) for part in colorsys.hsv_to_rgb(player / len(position), 0.75, 0.85))
        pen.rectangle((x + 5, y + 5, x + TILE - 6, y + TILE - 6), fill=colour, outline=TEXT)
        pen.text((x + 12, y + 10), str(player), fill=(255, 255, 255))
    pen.rectangle((0, rows * TILE, cols * TILE, rows * TILE + STRIP), fill=(250, 250, 248))
    pen.text((6, rows * TILE + 4), f"turn {turn}", fill=TEXT)
    return np.asarray(image)
