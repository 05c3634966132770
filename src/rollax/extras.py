"""What need not be installed: modules, the extras of `pip install 'rollax[...]'` that bring them, and who says so."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from rollax.errors import ConfigError


class Extra(NamedTuple):
    """Where a module comes from."""

    name: str  # of the extra
    title: str  # of what it brings
    remark: str = ""


EXTRAS: dict[str, Extra] = {
    "ale_py": Extra("atari", "ale-py", " (GPL-2.0-only, games included)"),
    "gymnasium": Extra("atari", "Gymnasium"),
    "ray": Extra("ray", "Ray"),
    "optuna": Extra("tune", "Optuna"),
    "tensorboardX": Extra("log", "tensorboardX"),
    "wandb": Extra("log", "wandb"),
    "imageio_ffmpeg": Extra("video", "a video encoder"),
    "flatbuffers": Extra("export", "flatbuffers"),
    "jax2onnx": Extra("onnx", "a converter"),
    "torch": Extra("torch", "PyTorch"),
    "stable_baselines3": Extra("sb3", "Stable-Baselines3"),
    "sbx": Extra("sbx", "SBX"),
}


def installed(module: str) -> bool:
    """Whether a module is there; nothing is imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # half of it is there
        return False


def missing(module: str, wanted: str, otherwise: str = "") -> list[str]:
    """That `wanted` needs the module, if it is not there: a line with its fix, and how else one may go on."""
    if installed(module):
        return []
    extra = EXTRAS[module]
    return [f"{wanted} needs {extra.title}: pip install 'rollax[{extra.name}]'{extra.remark}{otherwise}"]


def demand(module: str, wanted: str, otherwise: str = "") -> None:
    """Raises ConfigError where `wanted` needs a module that is not there."""
    if problems := missing(module, wanted, otherwise):
        raise ConfigError(problems)
