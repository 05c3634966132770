"""Pure mathematics: targets, returns, backups, policies, schedules, aggregates."""
