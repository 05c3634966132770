"""Pure mathematics: targets, returns, backups, policies, distributions over actions, schedules, aggregates."""
