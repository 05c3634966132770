"""Environments that can be drawn: a state and what it shows, as a picture."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rollax.envs.protocol import Task

Drawer = Callable[[Any, Any], np.ndarray]  # from a state and its raw features to uint8[height, width, 3]
WIDTH, HEIGHT, CAPTION = 360, 240, 22
INK, GROUND, ACCENT = (40, 44, 52), (250, 250, 248), (204, 82, 60)


def drawer_of(task: Task) -> Drawer | None:
    """How to draw an environment: its own `picture(state)`, or one of those below; None if nobody knows how."""
    if hasattr(task.env, "picture"):
        return lambda state, features: task.env.picture(state)
    if task.binary:
        return lambda state, features: draw_channels(features)
    return KNOWN.get(type(task.env).__name__)


def names_and_keys(task: Any) -> tuple[tuple[str, ...], str]:
    """A name and a key for each numbered action: the environment's own, those below, or numbers and letters."""
    env = getattr(task, "env", task)
    names, keys = ACTIONS.get(type(env).__name__, ((), ""))
    if hasattr(env, "full_action_set") and hasattr(env, "action_set"):  # a game of MinAtar's
        chosen = np.asarray(env.action_set).tolist()
        names, keys = tuple(MINATAR_ACTIONS[i] for i in chosen), "".join(MINATAR_KEYS[i] for i in chosen)
    names = tuple(getattr(env, "action_names", names) or (f"action {i}" for i in range(task.num_actions)))
    return names, getattr(env, "keys", keys or "0123456789abcdefghijklmnopqrstuvwxyz"[: task.num_actions])


def captioned(picture: np.ndarray, caption: str) -> np.ndarray:
    """A picture with a line of text below it."""
    from PIL import Image, ImageDraw

    strip = Image.new("RGB", (picture.shape[1], CAPTION), INK)
    ImageDraw.Draw(strip).text((8, CAPTION / 2), caption, fill=GROUND, anchor="lm")
    return np.concatenate([picture, np.asarray(strip)])


def draw_channels(features: Any, pixels: int = 24) -> np.ndarray:
    """A MinAtar board: each channel a colour, the one with the fewest cells on top."""
    board = np.asarray(jax.tree.leaves(jax.device_get(features))[0]).astype(bool)
    rows, cols, channels = board.shape
    image = np.full((rows, cols, 3), 20, np.uint8)
    for channel in sorted(range(channels), key=lambda channel: -board[..., channel].sum()):
        colour = [int(255 * part) for part in colorsys.hsv_to_rgb(channel / channels, 0.65, 0.95)]
        image[board[..., channel]] = colour
    return np.repeat(np.repeat(image, pixels, axis=0), pixels, axis=1)


def _canvas() -> tuple[Any, Any]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
    return image, ImageDraw.Draw(image)


def draw_cart_pole(state: Any, features: Any) -> np.ndarray:
    image, pen = _canvas()
    base, scale = HEIGHT * 0.75, WIDTH / 5.2
    x, angle = WIDTH / 2 + float(state.x) * scale, float(state.theta)
    pen.line((0, base + 12, WIDTH, base + 12), fill=INK)
    for edge in (-2.4, 2.4):
        pen.line((WIDTH / 2 + edge * scale, base - 8, WIDTH / 2 + edge * scale, base + 12), fill=ACCENT)
    pen.rectangle((x - 26, base - 12, x + 26, base + 10), fill=INK)
    tip = (x + 110 * math.sin(angle), base - 12 - 110 * math.cos(angle))
    pen.line((x, base - 12, *tip), fill=ACCENT, width=7)
    return np.asarray(image)


def draw_mountain_car(state: Any, features: Any) -> np.ndarray:
    image, pen = _canvas()

    def place(position: float) -> tuple[float, float]:
        height = math.sin(3 * position) * 0.45 + 0.55
        return (position + 1.2) / 1.8 * WIDTH, HEIGHT - 30 - height * 150

    pen.line([place(-1.2 + 1.8 * i / 100) for i in range(101)], fill=INK, width=2)
    flag = place(0.5)
    pen.line((*flag, flag[0], flag[1] - 30), fill=ACCENT, width=3)
    x, y = place(float(state.position))
    pen.ellipse((x - 9, y - 20, x + 9, y - 2), fill=ACCENT)
    return np.asarray(image)


def draw_acrobot(state: Any, features: Any) -> np.ndarray:
    image, pen = _canvas()
    centre, length = (WIDTH / 2, HEIGHT / 2), 52
    first = float(state.joint_angle1)
    second = first + float(state.joint_angle2)
    elbow = (centre[0] + length * math.sin(first), centre[1] + length * math.cos(first))
    tip = (elbow[0] + length * math.sin(second), elbow[1] + length * math.cos(second))
    pen.line((0, centre[1] - length, WIDTH, centre[1] - length), fill=ACCENT)
    pen.line((*centre, *elbow), fill=INK, width=8)
    pen.line((*elbow, *tip), fill=INK, width=6)
    pen.ellipse((centre[0] - 6, centre[1] - 6, centre[0] + 6, centre[1] + 6), fill=ACCENT)
    return np.asarray(image)


def draw_pendulum(state: Any, features: Any) -> np.ndarray:
    image, pen = _canvas()
    centre, length, angle = (WIDTH / 2, HEIGHT / 2), 95, float(state.theta)  # 0 is upright
    tip = (centre[0] - length * math.sin(angle), centre[1] - length * math.cos(angle))
    pen.line((*centre, *tip), fill=INK, width=10)
    pen.ellipse((tip[0] - 11, tip[1] - 11, tip[0] + 11, tip[1] + 11), fill=ACCENT)
    pen.ellipse((centre[0] - 5, centre[1] - 5, centre[0] + 5, centre[1] + 5), fill=INK)
    return np.asarray(image)


def draw_catch(state: Any, features: Any) -> np.ndarray:
    rows, cols = np.shape(features)
    board = np.full((rows, cols, 3), GROUND, np.uint8)
    board[int(state.paddle_y), int(state.paddle_x)] = INK
    board[int(state.ball_y), int(state.ball_x)] = ACCENT
    return np.repeat(np.repeat(board, 24, axis=0), 24, axis=1)


KNOWN: dict[str, Drawer] = {
    "CartPole": draw_cart_pole,
    "PositionOnlyCartPole": draw_cart_pole,
    "MountainCar": draw_mountain_car,
    "ContinuousMountainCar": draw_mountain_car,
    "Acrobot": draw_acrobot,
    "Pendulum": draw_pendulum,
    "Catch": draw_catch,
}
# Names and keys of numbered actions; arrow keys count as w, s, a and d.
ACTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "CartPole": (("left", "right"), "ad"),
    "PositionOnlyCartPole": (("left", "right"), "ad"),
    "Catch": (("left", "stay", "right"), "asd"),
    "MountainCar": (("left", "coast", "right"), "asd"),
    "Acrobot": (("torque -1", "torque 0", "torque +1"), "asd"),
}
MINATAR_ACTIONS, MINATAR_KEYS = ("stay", "left", "up", "right", "down", "fire"), "xawds "
