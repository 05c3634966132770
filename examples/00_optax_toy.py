"""The smallest training loop: a loss, its gradient, Adam's step, a thousand times in one compiled scan.

python examples/00_optax_toy.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

GOAL = jnp.array([1.0, -2.0, 3.0])


def loss_of(params: jax.Array) -> jax.Array:
    """A dummy: how far the parameters are from a goal."""
    return jnp.mean(jnp.square(params - GOAL))


def train(steps: int = 1_000, learning_rate: float = 0.01) -> jax.Array:
    """The loss before each step `[steps]`."""
    optimizer = optax.adam(learning_rate)
    params = jnp.zeros(3)

    def step(carry: tuple, _: None) -> tuple[tuple, jax.Array]:
        params, opt_state = carry
        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return jax.lax.scan(step, (params, optimizer.init(params)), length=steps)[1]


if __name__ == "__main__":
    losses = jax.jit(train)()
    for step in (0, 100, 300, 999):
        print(f"step {step:4d}  loss {losses[step]:.2e}")
    assert losses[-1] < 0.01 * losses[0], "the loss has to fall by more than 99 %"
