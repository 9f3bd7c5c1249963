"""What `afa doctor` looks at before a run: findings, each one thing that was checked, from facts about the machine."""
