"""What a planner is worth: simulated acquisition, accuracy with intervals, labelled patients, the league of fields."""
