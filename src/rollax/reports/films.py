"""Watching a trained agent play: episodes, drawn in the terminal and as a moving picture."""

from __future__ import annotations

import functools
import io
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.pictures import Drawer, captioned, drawer_of
from rollax.envs.protocol import Task
from rollax.errors import CheckpointError, ConfigError, EnvError, demand
from rollax.programs.plan import make_plan
from rollax.reports.episodes import Ending, Move, Scene, action_name, caption, episode, player_of
from rollax.runs.reader import kind_of
from rollax.runs.result import Policy, load
from rollax.runs.sources import experiment_of
from rollax.runs.zoo import PREFIX, is_named

CLEAR = "\x1b[H\x1b[2J"
SHORT_FILM, LONG_FILM = 500, 5_000  # steps, in JAX and outside it


def watch(
    run_dir: str | Path,
    *,
    member: int = 0,
    best: bool = False,
    seed: int = 0,
    most: int = 0,
    frames_per_second: int = 0,
    out: str | Path | None = None,
    screen: TextIO | None = None,
    trust: bool = False,
) -> tuple[Path, Ending]:
    """Lets an agent of a run, or of the zoo, play an episode; returns the path of the moving picture and its ending.

    Where an ending depends on more than the environment's name, its `info` has the protocol too.

    Without `most` steps or a rate it is as long and as fast as suits the environment.  With a screen every moment is
    also shown there, as text if the environment has one, else as coloured blocks.
    """
    target = Path(out) if out else film_path(run_dir)
    if out:
        check_film(target)
    experiment = experiment_of(run_dir, trust=trust)  # that a run is missing is said first
    if not out and kind_of(target) not in ("", "a file"):
        raise CheckpointError(f"{target} is {kind_of(target)}, where a real file must be")
    policy = load(run_dir, member, best=best, trust=trust)
    if policy.task.outside:
        played = film(policy, experiment.env, seed, most or LONG_FILM)
    else:
        played = animation(policy, experiment.env, seed, most or SHORT_FILM)
    rate = frames_per_second or policy.task.pictures_per_second
    frames, ending = [], None
    for moment in played:
        if isinstance(moment, Ending):
            ending = moment
            break
        frames.append(moment.picture)
        if screen is not None:
            print(CLEAR + moment.text(), file=screen, flush=True)
            time.sleep(1 / rate)
    assert ending is not None
    protocol = make_plan(experiment).protocol
    if protocol:
        ending = ending._replace(info={**ending.info, **protocol})
    save = save_video if target.suffix == ".mp4" else save_animation
    return save(frames, target, rate), ending


def film_path(run_dir: str | Path) -> Path:
    """Where a film is written that was given no place: in the run folder, or here for a policy of the zoo."""
    return Path(f"{str(run_dir).removeprefix(PREFIX)}.gif") if is_named(run_dir) else Path(run_dir) / "watch.gif"


def gif_of(policy: Policy, name: str) -> bytes | None:
    """A greedy episode as a GIF, from its beginning; None of an environment that has no picture."""
    task = policy.task
    if (task.camera if task.outside else drawer_of(task)) is None:
        return None
    played = (film if task.outside else animation)(policy, name, 0, SHORT_FILM)
    frames = [moment.picture for moment in played if isinstance(moment, Shot)]
    file = io.BytesIO()
    write_animation(frames, file, task.pictures_per_second)
    return file.getvalue()


class Shot(NamedTuple):
    """A moment of an episode as it is drawn."""

    picture: np.ndarray
    text: Callable[[], str]


def animation(policy: Policy, name: str, seed: int, most: int) -> Iterator[Shot | Ending]:
    """An episode of an environment in JAX."""
    task = policy.task
    draw = drawer_for(task, name)
    for moment in episode(task, player_of(policy, seed), seed, most):
        scene = moment.last if isinstance(moment, Ending) else moment
        if scene is not None:
            picture = captioned(draw(scene.state, scene.obs.features), caption(scene))
            yield Shot(picture, functools.partial(as_text, task, draw, scene))
        if isinstance(moment, Ending):
            yield moment


def film(policy: Policy, name: str, seed: int, most: int) -> Iterator[Shot | Ending]:
    """An episode of an environment outside JAX: the agent plays in one, a camera follows in another like it."""
    task = policy.task
    if task.camera is None:
        raise ConfigError(f"env={name!r} cannot be drawn: it has no pictures in colours")
    player, camera = task.stepper(1), task.camera_stepper()
    with closing(player), closing(camera):
        seeds = np.array([seed], np.int32)
        shown, picture = player.reset(seeds), camera.reset(seeds)
        envs = task.begin(jax.random.key(0), 1, policy.start())
        before, carry, ended, fresh, total = envs.obs, envs.carry, jnp.ones(1, bool), jnp.ones(1, bool), 0.0
        move = None
        for step in range(most):
            obs = task.observe(before, shown, ended)
            scene = Scene((), obs, total, step, move)
            text = functools.partial(with_caption, as_blocks(picture[0]), scene)
            yield Shot(captioned(picture[0], caption(scene)), text)
            action, carry = policy.decide(carry, obs, fresh, seed + step)
            player.submit(action)
            camera.submit(action)
            played, filmed = player.result(), camera.result()
            total += float(played.reward[0])
            move = Move(action_name(task, action[0]), float(played.reward[0]), [])
            if played.lost is not None:
                raise EnvError(f"{name} broke and was started anew while it was filmed; try again")
            if played.reward[0] != filmed.reward[0] or played.ended[0] != filmed.ended[0]:
                raise EnvError(f"{name} does not play the same twice with the same seed and actions")
            if played.ended[0]:
                yield Ending(total, step + 1, bool(played.terminated[0]), {})
                return
            before, shown, picture, ended = obs, played.shown, filmed.shown, jnp.zeros(1, bool)
            fresh = played.terminated | played.truncated
        yield Ending(total, most, False, {"left": f"after {most} steps, before its end"})


def drawer_for(task: Task, name: str) -> Drawer:
    """How to draw an environment.  Raises ConfigError where nobody knows."""
    draw = drawer_of(task)
    if draw is None:
        raise ConfigError(f"env={name!r} cannot be drawn; give it a method picture(state)")
    return draw


def as_text(task: Task, draw: Drawer, scene: Scene) -> str:
    """A scene for a terminal."""
    write = getattr(task.env, "text", None)
    text = write(scene.state) if write else as_blocks(draw(scene.state, scene.obs.features))
    return with_caption(text, scene)


def with_caption(text: str, scene: Scene) -> str:
    return f"{text}\n{caption(scene)}"


def as_blocks(picture: np.ndarray, columns: int = 72) -> str:
    """A picture as half blocks in 24-bit colours: two pixels in each character."""
    step = max(1, picture.shape[1] // columns)
    small = picture[::step, ::step]
    small = small[: len(small) // 2 * 2]
    lines = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        cells = (
            f"\x1b[38;2;{u[0]};{u[1]};{u[2]}m\x1b[48;2;{low[0]};{low[1]};{low[2]}m▀"
            for u, low in zip(upper.tolist(), lower.tolist(), strict=True)
        )
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def check_film(target: Path) -> None:
    """Refuses a film that could not be written, before anything is played."""
    if target.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"out={target} must end in .gif or .mp4")
    if not target.parent.is_dir():
        raise ConfigError(f"out={target} cannot be written: there is no folder {target.parent}")
    if target.suffix == ".mp4":
        demand("imageio_ffmpeg", f"out={target}", ", or name a .gif")


def save_video(frames: list[np.ndarray], target: Path, frames_per_second: int) -> Path:
    """Writes pictures as an MP4, each pixel drawn as four: eyes want larger pictures, encoders even sizes."""
    import imageio_ffmpeg

    height, width = (2 * side for side in frames[0].shape[:2])
    writer = imageio_ffmpeg.write_frames(str(target), (width, height), fps=frames_per_second, macro_block_size=2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the encoder is a process of its own, begun by a fork
            writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(np.repeat(np.repeat(frame, 2, axis=0), 2, axis=1)))
        writer.close()
    except OSError as error:
        raise ConfigError(f"out={target} cannot be written: {error}") from error
    if not target.exists() or not target.stat().st_size:
        raise ConfigError(f"out={target} cannot be written: the encoder failed")
    return target


def write_animation(frames: list[np.ndarray], file: Path | BinaryIO, frames_per_second: int) -> None:
    """Writes pictures as an animated GIF; its last picture stays for a second."""
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    durations = [1000 // frames_per_second] * (len(images) - 1) + [1000]
    images[0].save(
        file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False
    )


def save_animation(frames: list[np.ndarray], target: Path, frames_per_second: int) -> Path:
    """The same with what can go wrong on a disk, as an error of ours."""
    try:
        write_animation(frames, target, frames_per_second)
    except (OSError, ValueError) as error:
        raise ConfigError(f"out={target} cannot be written: {error}") from error
    return target
