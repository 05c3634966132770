"""The command: `rollax`, or `python -m rollax`.  What needs JAX is imported once it is known to be needed."""

from __future__ import annotations

import sys

from rollax import __version__

USAGE = """\
usage: rollax COMMAND ...

  train [AGENT]       train an agent; without one, Double DQN on CartPole-v1 with ten seeds
  sweep [AGENT]       train many settings in one program: random search, halving, population-based training
  tune [AGENT]        Bayesian search, in batches; the same command continues it
  resume DIR          continue an interrupted run, or extend a finished one with --steps
  eval DIR            play greedy episodes with a trained run
  plot DIR...         draw the learning curves of runs, and other figures
  report DIR...       all about runs in one HTML file: curves, scores, tables, films
  export DIR          write a trained policy as files that run without rollax
  watch DIR           see a trained agent play, in the terminal and as a film
  play NAME           play an environment yourself
  compare NAME        one experiment in PyTorch and in JAX, side by side
  bench               what this machine does in a second; or the same training here and in another library
  plan [AGENT]        what a run would need: iterations, memory, and what it depends on
  inspect [AGENT]     what JAX and XLA make of it: jaxpr, HLO, compilations, cost, memory, weights
  profile [AGENT]     record a trace, and see where the time goes
  list                agents, environments and presets
  check-env NAME      see whether an environment keeps to the protocol
  doctor              versions, devices and memory of this machine

`rollax COMMAND --help` explains a command, `rollax train AGENT --help` every setting with its default.
`rollax --version` tells the version."""


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"rollax {__version__}")
        return 0
    from rollax.commands.cli import run_command

    return run_command(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
