"""How fast this machine is with the library, and beside others: `rollax bench`."""
